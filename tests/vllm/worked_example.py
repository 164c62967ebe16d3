"""The worked example of docs/is-it-paying-off.md: five recordings of a real vLLM, and the table that they make.

    PYTHONPATH=tests SPECDEC_VLLM_PYTHON=... python -m vllm.worked_example DIRECTORY

Takes three to five minutes on two cores, and nothing else should run on them. ``DIRECTORY`` takes the recordings, which
``specdec-exporter compare`` reads, and the servers' logs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from vllm import saturated
from vllm.checkpoints import write_checkpoints
from vllm.exporter import run_command
from vllm.language import build_language
from vllm.scenarios import Scenario
from vllm.server import Installation, running

_REQUESTS: Final = 250
_HEADER: Final = ("recording", "requests/s", "tokens/s", "acceptance", "length", "TPOT", "speed-up", "decision")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One recording: its name, and the share of the successors that a draft model knows."""

    name: str
    share: float


# Prompt lookup copies from the prompt, so what a draft model knows is nothing to it, nor to no speculation at all.
_CASES: Final = (
    (saturated.PLAIN, (Case("plain", 0.9),)),
    (saturated.NGRAM, (Case("ngram", 0.9),)),
    (saturated.DRAFT_MODEL, (Case("draft-good", 0.9), Case("draft-fair", 0.6), Case("draft-poor", 0.3))),
)


def main() -> int:
    """Record all cases into the directory on the command line, and print the table."""
    parser = argparse.ArgumentParser(description="Record the worked example of docs/is-it-paying-off.md.")
    parser.add_argument("directory", type=Path, help="where the recordings go; must not have any yet")
    directory: Path = parser.parse_args().directory
    if not (python := os.environ.get("SPECDEC_VLLM_PYTHON")):
        parser.error("SPECDEC_VLLM_PYTHON is not set: it names the Python that has vLLM, as install.py prints it")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as models:
        write_checkpoints(Path(models), build_language(), target_layers=saturated.TARGET_LAYERS)
        for scenario, cases in _CASES:
            record(scenario, cases, Installation(Path(python)), models=Path(models), directory=directory)
    print_table([_HEADER, *(row(directory, case.name) for _, cases in _CASES for case in cases)])
    return 0


def record(
    scenario: Scenario, cases: Iterable[Case], installation: Installation, *, models: Path, directory: Path
) -> None:
    """Record the cases of one server, one after the other."""
    with running(saturated.server(scenario, installation, models=models, directory=directory)) as server:
        saturated.warm_up(server, share=1.0)
        for case in cases:
            saturated.record(
                server,
                directory / f"{case.name}.yaml",
                share=case.share,
                requests=_REQUESTS,
                arguments=(
                    *("--hardware", f"{os.cpu_count()} CPU cores", "--model", "toy"),
                    *("--request-parameters", f"{saturated.CLIENTS} at once, temperature 0, toy prompts"),
                    *("--command", f"vllm serve, {scenario.name}"),
                ),
            )
            print(f"{case.name}: {_REQUESTS} requests", file=sys.stderr)


def row(directory: Path, name: str) -> tuple[str, ...]:
    """The cells of one recording, compared with the plain one."""
    files = (str(directory / f"{each}.yaml") for each in ("plain", name))
    result = run_command("compare", *files, "--output", "json")
    if result.returncode:
        sys.exit(f"worked_example.py: {result.stderr}")
    comparison: dict[str, Any] = json.loads(result.stdout)
    side = comparison["candidate"]
    plain = side["method"] is None
    realised = comparison["speedup"]["realised"]
    return (
        name,
        f"{side['requests_per_second']:.1f}",
        f"{side['generation_tokens_per_second']:.0f}",
        "-" if plain else f"{side['acceptance_ratio']['value']:.2f}",
        "-" if plain else f"{side['mean_acceptance_length']['value']:.2f}",
        f"{1000 * comparison['latencies'][0]['mean_seconds']['candidate']:.1f} ms",
        "-" if plain else f"{realised['value']:.2f}x ({realised['low']:.2f} to {realised['high']:.2f})",
        "-" if plain else comparison["decision"]["code"],
    )


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows, the first of which is the header, as a Markdown table."""
    header, *body = (f"| {' | '.join(cells)} |" for cells in rows)
    print("\n".join((header, "|" + " --- |" * len(rows[0]), *body)))


if __name__ == "__main__":
    sys.exit(main())
