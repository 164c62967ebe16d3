"""The example of docs/tuning.md: a real vLLM with several k under several loads, what ``tune`` prints, and its plot.

    PYTHONPATH=tests SPECDEC_VLLM_PYTHON=... python -m vllm.tuning_example DIRECTORY

Takes about six minutes on two cores, 10 GB of memory, and nothing else should run. ``DIRECTORY`` takes the recordings,
``tune.txt`` and ``tuning.svg``.
"""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from pathlib import Path
from typing import Final

from specdec_exporter.baseline.file import Context
from vllm import closed_loop, example
from vllm.example import Place
from vllm.exporter import run_command

_KS: Final = (0, 1, 3, 6)
_CLIENTS: Final = (1, 4, 12, 28)
_SHARE: Final = 0.6
_ROUNDS: Final = 3
_SECONDS: Final = 4.0


def main() -> int:
    """Record everything into the directory on the command line, and let ``tune`` read it."""
    with example.place("docs/tuning.md") as place:
        files = record(place)
    plot = place.directory / "tuning.svg"
    result = run_command("tune", *map(str, files), "--plot", str(plot))
    if result.returncode:
        sys.exit(f"tuning_example.py: {result.stderr}")
    (place.directory / "tune.txt").write_text(result.stdout)
    print(result.stdout)
    return 0


def record(place: Place) -> list[Path]:
    """Record every k under every load, the servers in turn."""
    servers = {
        k: closed_loop.server(k, place.installation, models=place.models, directory=place.directory) for k in _KS
    }
    files = []
    with closed_loop.running(list(servers.values())):
        for clients, number in itertools.product(_CLIENTS, range(_ROUNDS)):
            for k, server in servers.items():
                files.append(place.file(f"k{k}-{clients}-{number}"))
                context = Context(
                    hardware=f"{os.cpu_count()} CPU cores",
                    model="toy",
                    request_parameters="temperature 0, toy prompts",
                    command=shlex.join(("vllm", "serve", "target", *closed_loop.scenario(k).arguments(Path()))),
                )
                with closed_loop.clients(server, clients, closed_loop.prompts(_SHARE)):
                    closed_loop.record(server, files[-1], seconds=_SECONDS, context=context)
    return files


if __name__ == "__main__":
    sys.exit(main())
