"""The recordings of docs/record-and-compare.md, made anew beside real servers, and what ``compare`` says of them.

    PYTHONPATH=tests SPECDEC_VLLM_PYTHON=... python -m vllm.paying_off DIRECTORY

Each recording is a ramp of clients, so that it knows several loads. Of the two that share bursts, each request goes to
a server by chance. The recordings and the reports are in DIRECTORY; a quarter of an hour on two quiet cores.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from specdec_exporter.baseline.file import Context
from vllm import closed_loop
from vllm.checkpoints import write_checkpoints
from vllm.language import CYCLE_LENGTH, Prompt, build_language, excerpt
from vllm.server import Installation, Server, named_installation

RAMP: Final = (1, 2, 4, 8)  # clients
STEP_SECONDS: Final = 20.0
SHARES: Final = {"good": 0.9, "fair": 0.6, "poor": 0.3}  # of the successors that the draft model knows
RUNS: Final = ((10, "good"), (3, "good"), (10, "fair"), (2, "fair"), (10, "poor"), (1, "poor"))  # k and traffic
LONG_TOKENS: Final = 600
BURSTS: Final = (2, 12)  # clients, in turns of some seconds
BURST_SECONDS: Final = (12.0, 4.0)
SHARED_SECONDS: Final = 128.0
COMPARED: Final = (
    ("plain", "plain-again"),
    ("plain", "ngram"),
    *(("plain", f"{traffic}-k{k}") for k, traffic in RUNS),
    ("plain-long", "good-long-k3"),
    ("plain", "good-k3", "good-k10"),
    ("plain", "fair-k2", "fair-k10"),
    ("plain", "poor-k1", "poor-k10"),
    ("burst-plain", "burst-k3"),
)


def main() -> int:
    """Record, then compare."""
    parser = argparse.ArgumentParser(description="Record real vLLM servers with and without speculation.")
    parser.add_argument("directory", type=Path, help="an empty folder for recordings and reports")
    directory = parser.parse_args().directory
    _record(directory, named_installation(parser))
    for names in COMPARED:
        files = [str(directory / f"{name}.yaml") for name in names]
        _report(directory, "-".join(names), files)
    _report(directory, "paired", [*(str(directory / f"burst-{name}.yaml") for name in ("plain", "k3")), "--paired"])
    return 0


def _report(directory: Path, name: str, arguments: Sequence[str]) -> None:
    command = (sys.executable, "-m", "specdec_exporter", "compare", *arguments, "--verbose")
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    (directory / f"{name}.txt").write_text(said.stdout + said.stderr)
    print(f"\n== compare {name}\n{said.stdout}{said.stderr}", flush=True)


def _record(directory: Path, installation: Installation) -> None:
    models = directory / "models"
    models.mkdir(parents=True)
    write_checkpoints(models, build_language(), target_layers=closed_loop.TARGET_LAYERS)
    uncached = ("--no-enable-prefix-caching",)  # with a cache, prompts that are sent again would cost nothing
    made = {
        k: closed_loop.server(k, installation, models=models, directory=directory, arguments=uncached)
        for k in (0, 1, 2, 3, 10)
    }
    lookup = closed_loop.server(
        10, installation, models=models, directory=directory, arguments=uncached, method="ngram"
    )
    with closed_loop.running([*made.values(), lookup]):
        _ramp(made[0], directory / "plain.yaml", closed_loop.prompts(SHARES["good"]))
        for k, traffic in RUNS:
            _ramp(made[k], directory / f"{traffic}-k{k}.yaml", closed_loop.prompts(SHARES[traffic]))
        # A long cycle never repeats, so prompt lookup gets prompts that hold the answer.
        _ramp(lookup, directory / "ngram.yaml", _long(closed_loop.MAX_TOKENS + CYCLE_LENGTH))
        for k, name in ((0, "plain-long"), (3, "good-long-k3")):
            _ramp(made[k], directory / f"{name}.yaml", _long(LONG_TOKENS))
        _ramp(made[0], directory / "plain-again.yaml", closed_loop.prompts(SHARES["good"]))
        _shared(made[0], made[3], directory)


def _long(tokens: int) -> tuple[Prompt, ...]:
    starts = (7 * index % CYCLE_LENGTH for index in range(CYCLE_LENGTH))
    return tuple(excerpt(SHARES["good"], start=start, length=tokens) for start in starts)


def _ramp(server: Server, output: Path, prompts: Sequence[Prompt]) -> None:
    print(f"recording {output.name}", flush=True)
    with closed_loop.in_turn(server, [(number, prompts) for number in RAMP], STEP_SECONDS):
        closed_loop.record(server, output, seconds=STEP_SECONDS * len(RAMP), context=_context(server))


def _context(server: Server) -> Context:
    return Context(
        hardware="2 CPU cores",
        request_parameters=f"temperature 0, {closed_loop.MAX_TOKENS} tokens",
        command=" ".join(server.command[2:]),
    )


def _shared(plain: Server, drafting: Server, directory: Path) -> None:
    """Record two replicas that get the same bursts, each request one of them by chance."""
    print("recording two replicas", flush=True)
    with _bursts([plain, drafting]), ThreadPoolExecutor(2) as pool:
        for server, name in ((plain, "plain"), (drafting, "k3")):
            output = directory / f"burst-{name}.yaml"
            pool.submit(closed_loop.record, server, output, seconds=SHARED_SECONDS, context=_context(server))


@contextlib.contextmanager
def _bursts(servers: Sequence[Server]) -> Iterator[None]:
    """Send few requests at a time, then many, again and again."""
    ended, chance = threading.Event(), random.Random(1)
    waiting = itertools.cycle(closed_loop.prompts(SHARES["good"]))
    allowed = BURSTS[0]

    def send(place: int) -> None:
        while not ended.is_set():
            if place >= allowed:
                time.sleep(0.05)
            else:
                server, prompt = chance.choice(servers), next(waiting)
                server.answer(prompt, max_tokens=closed_loop.MAX_TOKENS, temperature=0)

    with ThreadPoolExecutor(BURSTS[1] + 1) as pool:
        for place in range(BURSTS[1]):
            pool.submit(send, place)

        def change() -> None:
            nonlocal allowed
            for number, seconds in itertools.cycle(zip(BURSTS, BURST_SECONDS, strict=True)):
                allowed = number
                if ended.wait(seconds):
                    return

        turns = pool.submit(change)
        try:
            yield
        finally:
            ended.set()
            turns.result()


if __name__ == "__main__":
    sys.exit(main())
