"""The example of docs/tuning.md: ``tune --temperatures`` beside a real vLLM, without speculation and with n-gram.

    PYTHONPATH=tests SPECDEC_VLLM_PYTHON=... python -m vllm.temperature_example DIRECTORY

Takes about eight minutes on two cores. n-gram, because a draft model accepts nothing above temperature 0 on the CPU
(0.32.0).
"""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from vllm import example, saturated
from vllm.example import Place
from vllm.scenarios import Scenario
from vllm.server import running

_TEMPERATURES: Final = "0,0.4,0.8,1"
_CLIENTS: Final = "8"
_K: Final = 4


def main() -> int:
    """Record everything into the directory on the command line, and print what ``tune`` says."""
    with example.place("docs/tuning.md") as place:
        plain = sweep(place, saturated.PLAIN)
        sweep(place, dataclasses.replace(saturated.NGRAM, k=_K), *plain)
    return 0


def sweep(place: Place, scenario: Scenario, *others: str) -> list[str]:
    """Record one server at all temperatures; the recordings' files."""
    folder = place.directory / f"{scenario.name}-recordings"
    with running(
        saturated.server(scenario, place.installation, models=place.models, directory=place.directory)
    ) as server:
        saturated.warm_up(server, share=1.0)
        load = shlex.join((sys.executable, "-m", "vllm.send", server.url, _CLIENTS))
        subprocess.run(
            [
                *(sys.executable, "-m", "specdec_exporter", "tune", *others, f"--temperatures={_TEMPERATURES}"),
                *(f"--load-command={load}", f"--directory={folder}", f"--predictor.url={server.url}"),
                *(f"--predictor.log-path={server.log_path}", "--warm-up=3s", "--duration=40s"),
                *("--hardware=2 CPU cores", "--request-parameters=8 at once, toy prompts"),
                f"--command={shlex.join(('vllm', 'serve', 'toy', *scenario.arguments(Path())))}",
            ],
            check=True,
        )
    return [str(each) for each in sorted(folder.glob("*.yaml"))]


if __name__ == "__main__":
    sys.exit(main())
