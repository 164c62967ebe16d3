"""The recordings of docs/record-and-compare.md, made anew beside real servers, and what ``compare`` says of them.

    PYTHONPATH=lab:tests SPECDEC_VLLM_PYTHON=... python -m vllm.paying_off DIRECTORY

Each recording is a ramp of clients, so that it knows several loads. The recordings and the reports are in DIRECTORY;
some minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

from specdec_exporter.baseline.file import Context
from vllm import closed_loop
from vllm.checkpoints import write_checkpoints
from vllm.language import build_language
from vllm.server import Installation, named_installation

RAMP: Final = (1, 2, 4, 8)  # clients
STEP_SECONDS: Final = 20.0
FAIR: Final = 0.6  # of the successors, the draft model knows
RECORDINGS: Final = {"plain": 0, "fair-k2": 2, "fair-k10": 10}  # names and k
COMPARED: Final = (("plain", "fair-k2"), ("plain", "fair-k2", "fair-k10"))


def main() -> int:
    """Record, then compare."""
    parser = argparse.ArgumentParser(description="Record real vLLM servers with and without speculation.")
    parser.add_argument("directory", type=Path, help="an empty folder for recordings and reports")
    directory = parser.parse_args().directory
    _record(directory, named_installation(parser))
    for names in COMPARED:
        files = [str(directory / f"{name}.yaml") for name in names]
        command = (sys.executable, "-m", "specdec_exporter", "compare", *files)
        said = subprocess.run(command, check=False, capture_output=True, text=True)
        (directory / f"{'-'.join(names)}.txt").write_text(said.stdout + said.stderr)
        print(f"\n== compare {' '.join(names)}\n{said.stdout}{said.stderr}", flush=True)
    return 0


def _record(directory: Path, installation: Installation) -> None:
    models = directory / "models"
    models.mkdir(parents=True)
    write_checkpoints(models, build_language(), target_layers=closed_loop.TARGET_LAYERS)
    servers = {
        name: closed_loop.server(k, installation, models=models, directory=directory) for name, k in RECORDINGS.items()
    }
    prompts = closed_loop.prompts(FAIR)
    with closed_loop.running([*servers.values()]):
        for name, server in servers.items():
            print(f"recording {name}", flush=True)
            context = Context(
                hardware="2 CPU cores",
                request_parameters=f"temperature 0, {closed_loop.MAX_TOKENS} tokens",
                command=" ".join(server.command[2:]),
            )
            with closed_loop.in_turn(server, [(number, prompts) for number in RAMP], STEP_SECONDS):
                output, seconds = directory / f"{name}.yaml", STEP_SECONDS * len(RAMP)
                closed_loop.record(server, output, seconds=seconds, context=context)


if __name__ == "__main__":
    sys.exit(main())
