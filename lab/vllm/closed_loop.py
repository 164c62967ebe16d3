"""Records servers under closed loops: so many clients, each of which sends its next request when it has its answer.

With fewer clients than the server takes at once nothing waits, so the number of clients is the load. Servers that are
compared run side by side, but only one is busy at a time, and they take turns every few seconds: whatever else slows
the machine down slows all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from specdec_exporter.baseline import live
from specdec_exporter.baseline.file import Context
from specdec_exporter.baseline.writing import write_baseline
from vllm.language import CYCLE_LENGTH, Prompt, excerpt
from vllm.scenarios import Scenario
from vllm.server import Installation, Server

TARGET_LAYERS: Final = 16  # the draft has one: on a CPU it is slow enough for drafts to pay, or to cost
MAX_TOKENS: Final = 100  # a request is short beside a recording, and prefill is one step in many
MAX_CLIENTS: Final = 32

# The engine runs the model itself, so each server has one process less. That saves a third of the time of a start.
# The toy's matrices are too small for two threads, which then mostly wait for each other.
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
_STARTING: Final = 2  # at once; more only take longer
_WARM_UP_REQUESTS: Final = 24
_WARM_UP_CLIENTS: Final = 12
_TIMEOUT_SECONDS: Final = 10.0


def server(k: int, installation: Installation, *, models: Path, directory: Path) -> Server:
    """A server with ``k`` draft tokens per step, which keeps its files in a folder of its own in ``directory``."""
    kind = Scenario(name=f"draft_model-k{k}", method="draft_model" if k else None, k=k, phases=())
    own = directory / kind.name
    own.mkdir()
    return Server(
        installation,
        models=models,
        directory=own,
        # With a cache of prefixes, prompts that are sent again would cost nothing.
        arguments=(*kind.arguments(models), "--max-num-seqs", str(MAX_CLIENTS), "--no-enable-prefix-caching"),
        environment=_ENVIRONMENT,
    )


@contextlib.contextmanager
def running(servers: Sequence[Server]) -> Iterator[None]:
    """Start the servers and warm them up, and stop them in the end."""
    with contextlib.ExitStack() as stack:
        for each in servers:
            stack.callback(each.stop)
        with ThreadPoolExecutor(_STARTING) as pool:
            list(pool.map(Server.start, servers))
        for each in servers:
            _warm_up(each)
        yield


def _warm_up(server: Server) -> None:
    """Let the server make its first, slow steps before anything is recorded."""
    with ThreadPoolExecutor(_WARM_UP_CLIENTS) as pool:
        requests = prompts(1.0)[:_WARM_UP_REQUESTS]
        list(pool.map(lambda prompt: server.answer(prompt, max_tokens=MAX_TOKENS, temperature=0), requests))


@contextlib.contextmanager
def clients(server: Server, number: int, prompts: Sequence[Prompt]) -> Iterator[None]:
    """Keep ``number`` clients busy with ``prompts``, again and again."""
    ended, waiting = threading.Event(), itertools.cycle(prompts)

    def send() -> None:
        while not ended.is_set():
            server.answer(next(waiting), max_tokens=MAX_TOKENS, temperature=0)

    with ThreadPoolExecutor(number) as pool:
        sending = [pool.submit(send) for _ in range(number)]
        try:
            yield
        finally:
            ended.set()
    for each in sending:
        each.result()


@contextlib.contextmanager
def in_turn(server: Server, phases: Sequence[tuple[int, Sequence[Prompt]]], seconds: float) -> Iterator[None]:
    """Send the traffic of one phase after the other, each a number of clients and their prompts, for ``seconds``."""

    def send() -> None:
        for number, sent in phases:
            with clients(server, number, sent):
                time.sleep(seconds)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        sending.join()


def prompts(share: float) -> tuple[Prompt, ...]:
    """Excerpts of which the draft model knows ``share`` of the successors, from all over their cycle."""
    return tuple(excerpt(share, start=7 * index % CYCLE_LENGTH) for index in range(CYCLE_LENGTH))


def record(server: Server, output: Path, *, seconds: float, context: Context | None = None) -> None:
    """Do what ``baseline record`` does, without the second that another process would take to start."""
    found = live.record(
        server.url,
        duration_seconds=seconds,
        name=output.stem,
        context=context,
        log_paths=[str(server.log_path)],
        timeout_seconds=_TIMEOUT_SECONDS,
    )
    write_baseline(str(output), asyncio.run(found))
