"""The example of docs/tuning.md: a real vLLM with several k under several loads, what ``tune`` prints, and its plot.

    PYTHONPATH=tests SPECDEC_VLLM_PYTHON=... python -m vllm.tuning_example DIRECTORY

Takes about six minutes on two cores, 10 GB of memory, and nothing else should run. ``DIRECTORY`` takes the recordings,
``tune.txt`` and ``tuning.svg``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

from specdec_exporter.baseline.file import Context
from vllm import closed_loop, saturated
from vllm.checkpoints import write_checkpoints
from vllm.exporter import run_command
from vllm.language import build_language
from vllm.server import Installation

_KS: Final = (0, 1, 3, 6)
_CLIENTS: Final = (1, 4, 12, 28)
_SHARE: Final = 0.6
_ROUNDS: Final = 3
_SECONDS: Final = 4.0


def main() -> int:
    """Record everything into the directory on the command line, and let ``tune`` read it."""
    parser = argparse.ArgumentParser(description="Record the example of docs/tuning.md.")
    parser.add_argument("directory", type=Path, help="where the recordings go; must not have any yet")
    directory: Path = parser.parse_args().directory
    if not (python := os.environ.get("SPECDEC_VLLM_PYTHON")):
        parser.error("SPECDEC_VLLM_PYTHON is not set: it names the Python that has vLLM, as install.py prints it")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as models:
        write_checkpoints(Path(models), build_language(), target_layers=saturated.TARGET_LAYERS)
        files = record(Installation(Path(python)), models=Path(models), directory=directory)
    plot = directory / "tuning.svg"
    result = run_command("tune", *map(str, files), "--plot", str(plot))
    if result.returncode:
        sys.exit(f"tuning_example.py: {result.stderr}")
    (directory / "tune.txt").write_text(result.stdout)
    print(result.stdout)
    return 0


def record(installation: Installation, *, models: Path, directory: Path) -> list[Path]:
    """Record every k under every load, the servers in turn."""
    servers = {k: closed_loop.server(k, installation, models=models, directory=directory) for k in _KS}
    files = []
    with closed_loop.running(list(servers.values())):
        for clients, number in itertools.product(_CLIENTS, range(_ROUNDS)):
            for k, server in servers.items():
                files.append(directory / f"k{k}-{clients}-{number}.yaml")
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
