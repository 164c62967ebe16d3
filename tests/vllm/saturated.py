"""Records what a saturated server does: ``baseline record`` beside it while more requests wait than it takes at once.

The queue makes every latency follow the throughput, time to first token included. Prompts have one form whatever
speculates, so recordings are of like traffic: an excerpt with flaws, which prompt lookup can copy from, of a cycle that
the draft model knows a chosen share of.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from running import wait_until
from vllm.exporter import Exposition
from vllm.language import CYCLE_LENGTH, Prompt, flawed_copy
from vllm.scenarios import Scenario
from vllm.server import Installation, Server

TARGET_LAYERS: Final = 16  # the draft has one: on a CPU it is slow enough for drafts to pay, or to cost
MAX_TOKENS: Final = 34
CLIENTS: Final = 16  # of which the server takes 8 at once
DIFFERENT_PROMPTS: Final = 200
K: Final = 10
PLAIN: Final = Scenario(name="plain", method=None, k=0, phases=())
NGRAM: Final = Scenario(name="ngram", method="ngram", k=K, phases=())
DRAFT_MODEL: Final = Scenario(name="draft_model", method="draft_model", k=K, phases=())

# The toy's matrices are too small for two threads, which then mostly wait for each other.
ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1"}

_WARM_UP_REQUESTS: Final = CLIENTS
_RECORDING: Final = "24h"  # never reached: the last request ends it
_SECONDS: Final = 600.0


def server(scenario: Scenario, installation: Installation, *, models: Path, directory: Path) -> Server:
    """A server for a scenario, which keeps its files in a folder of its own in ``directory``."""
    own = directory / scenario.name
    own.mkdir()
    return Server(
        installation, models=models, directory=own, arguments=scenario.arguments(models), environment=ENVIRONMENT
    )


def warm_up(server: Server, *, share: float) -> None:
    """Let the server make its first, slow steps before anything is recorded."""
    _send(server, share=share, requests=_WARM_UP_REQUESTS)


def record(server: Server, output: Path, *, share: float, requests: int, arguments: Sequence[str] = ()) -> str:
    """Record ``requests`` to a baseline file, all of them and nothing else; what the command said.

    The draft model knows ``share`` of the successors. Ctrl-C ends the recording, which is therefore flagged as
    interrupted: how long so many requests take is not known in advance.
    """
    before, asked = _finished(server), _asked(server)
    said_path = output.with_suffix(".log")
    command = (
        *(sys.executable, "-m", "specdec_exporter", "baseline", "record", f"--predictor.url={server.url}"),
        *(f"--predictor.log-path={server.log_path}", f"--duration={_RECORDING}", f"--output={output}"),
        *arguments,
    )
    with (
        said_path.open("w") as said,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT) as process,
    ):
        try:
            wait_until(lambda: _asked(server) > asked or process.poll() is not None, seconds=_SECONDS, what="recording")
            _send(server, share=share, requests=requests)
            # A request is counted with its last step, which can be just after its answer.
            wait_until(lambda: _finished(server) == before + requests, seconds=_SECONDS, what=f"{requests} requests")
            process.send_signal(signal.SIGINT)
            status = process.wait(_SECONDS)
        finally:
            process.kill()
    assert status == 0, said_path.read_text()
    return said_path.read_text()


def prompts(share: float, number: int) -> tuple[Prompt, ...]:
    """``number`` prompts, one of :data:`DIFFERENT_PROMPTS` each."""
    return tuple(
        flawed_copy(share, start=7 * index % CYCLE_LENGTH, length=48, flaw_every=16) for index in range(number)
    )


def _send(server: Server, *, share: float, requests: int) -> None:
    with ThreadPoolExecutor(CLIENTS) as clients:
        for _ in clients.map(
            lambda prompt: server.complete_all((prompt,), max_tokens=MAX_TOKENS), prompts(share, requests)
        ):
            pass


def _finished(server: Server) -> float:
    counted = Exposition(server.metrics()).select("vllm:e2e_request_latency_seconds_count")
    return sum(value for _, value in counted)


def _asked(server: Server) -> int:
    """How often the server was asked for its version, which follows the first reading of a recording."""
    return server.log().count('"GET /version ')
