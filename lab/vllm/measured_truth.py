"""What speculation gives the clients of real servers, by their own clocks, and what the product says of it.

    PYTHONPATH=lab:tests SPECDEC_VLLM_PYTHON=... python -m vllm.measured_truth DIRECTORY [CASE]...

prints the table of docs/evidence/compare.md. For each case DIRECTORY gets the recordings of the server without and with
drafts under the same traffic (``CASE-plain.yaml``, ``CASE-drafting.yaml``), what their clients saw meanwhile
(``.truth.json``), and what the exporter beside the drafting server said in the end (``CASE.status.json``). A case whose
files are there already is not played again, so a change of the product can be tried on them in seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from specdec_exporter.baseline.file import Context
from specdec_exporter.baseline.reading import read_baseline
from specdec_exporter.comparison.compare import Comparison, compare
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import load_policy
from vllm import closed_loop
from vllm.checkpoints import WIDE, write_checkpoints
from vllm.exporter import serving
from vllm.language import CYCLE_LENGTH, Prompt, build_language, excerpt
from vllm.server import Installation, Server, named_installation
from vllm.streaming import Traffic, Truth, streaming, truth

K: Final = 5
SPAN_SECONDS: Final = 120.0
TARGET_LAYERS: Final = 8  # of 34 MB: a step takes 25 ms on two quiet cores, 40 to 60 ms on busy ones


def _prompts(*shares: float) -> tuple[Prompt, ...]:
    """Prompts of 30 to 100 tokens, of which the draft model knows these shares of the successors, in turn."""
    return tuple(
        excerpt(shares[index % len(shares)], start=7 * index % CYCLE_LENGTH, length=30 + 37 * index % 71)
        for index in range(CYCLE_LENGTH)
    )


_KNOWN: Final = _prompts(0.9, 1.0)
_HARDLY_KNOWN: Final = _prompts(0.6)
CASES: Final = {
    "gain-one-client": Traffic(_KNOWN, max_tokens=32, clients=1),
    "loss-four-clients": Traffic(_HARDLY_KNOWN, max_tokens=96, clients=4),
    "gain-fixed-rate": Traffic(_KNOWN, max_tokens=96, per_second=0.4),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What the clients of both servers got, and what the product says: ``compare``, and ``serve`` by its status API."""

    traffic: Traffic
    plain: Truth
    drafting: Truth
    comparison: Comparison
    status: dict[str, Any]

    @property
    def speedup(self) -> float:
        """The ratio of the mean times per output token: what each user sees."""
        return self.plain.time_per_output_token_seconds / self.drafting.time_per_output_token_seconds

    @property
    def more_tokens(self) -> float:
        """The ratio of the output tokens per second, which fixed arrivals hold near 1."""
        return self.drafting.tokens_per_second / self.plain.tokens_per_second

    @property
    def truths(self) -> tuple[float, ...]:
        """The ratios that may be told: with a fixed number of clients either one is a speed-up."""
        return (self.speedup, self.more_tokens) if self.traffic.clients else (self.speedup,)


def told(comparison: Comparison) -> Estimate | None:
    """The speed-up that ``compare`` judges; ``None`` where it does not know it."""
    return comparison.speedup.judged


def told_live(status: dict[str, Any]) -> Estimate | None:
    """The speed-up that ``serve`` judges, likewise."""
    measured = status["measured"]
    return Estimate(**measured["speedup"]) if measured and measured["speedup"] else None


def play(names: Sequence[str], installation: Installation, directory: Path) -> None:
    """Measure the cases ``names``; both servers run, and one of them is busy."""
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="servers-", dir=directory))
    models = scratch / "models"
    models.mkdir()
    write_checkpoints(models, build_language(), target_layers=TARGET_LAYERS, width=WIDE)
    plain, drafting = (closed_loop.server(k, installation, models=models, directory=scratch) for k in (0, K))
    with closed_loop.running([plain, drafting]):
        for name in names:
            baseline = directory / f"{name}-plain.yaml"
            _play(plain, CASES[name], baseline)
            with serving(
                drafting.url, drafting.log_path, own_log=scratch / f"{name}.log", baseline=baseline
            ) as exporter:
                _play(drafting, CASES[name], directory / f"{name}-drafting.yaml")
                (directory / f"{name}.status.json").write_text(json.dumps(exporter.status(), indent=1))
    shutil.rmtree(models)  # 300 MB


def _play(server: Server, traffic: Traffic, recording: Path) -> None:
    """Record ``server`` under ``traffic``, and what its clients see in the same seconds."""
    context = Context(hardware="2 CPU cores", request_parameters=f"temperature 0, {traffic.max_tokens} tokens")
    with streaming(server, traffic) as answers:
        begin = time.monotonic()
        closed_loop.record(server, recording, seconds=SPAN_SECONDS, context=context)
        end = time.monotonic()
    _truth_of(recording).write_text(json.dumps(dataclasses.asdict(truth(answers, begin, end)), indent=1))


def _truth_of(recording: Path) -> Path:
    return recording.with_suffix(".truth.json")


def outcome(name: str, directory: Path) -> Outcome:
    """Read what :func:`play` has measured, and compare it."""
    plain, drafting = (directory / f"{name}-{side}.yaml" for side in ("plain", "drafting"))
    return Outcome(
        traffic=CASES[name],
        plain=Truth(**json.loads(_truth_of(plain).read_text())),
        drafting=Truth(**json.loads(_truth_of(drafting).read_text())),
        comparison=compare(read_baseline(str(plain)), read_baseline(str(drafting)), load_policy()),
        status=json.loads((directory / f"{name}.status.json").read_text()),
    )


def table(outcomes: dict[str, Outcome]) -> Iterator[str]:
    """The rows of docs/evidence/compare.md."""
    yield "| case | truth: tokens/s | truth: time per output token | `compare` | `serve` |"
    yield "| --- | --- | --- | --- | --- |"
    for name, each in outcomes.items():
        decision, verdict = each.comparison.decision, each.status["verdict"]["code"]
        more = f"{each.more_tokens:.2f}" if each.traffic.clients else "-"
        compared, live = _words(told(each.comparison)), _words(told_live(each.status))
        yield f"| {name} | {more} | {each.speedup:.2f} | {compared}; {decision.code} | {live}; {verdict} |"


def _words(speedup: Estimate | None) -> str:
    if speedup is None:
        return "not known"
    if speedup.low is None or speedup.high is None:
        return f"{speedup.value:.2f}"
    return f"{speedup.value:.2f} ({speedup.low:.2f} to {speedup.high:.2f})"


def main() -> int:
    """Play what is missing, then print the table."""
    parser = argparse.ArgumentParser(description="Measure what speculation gives the clients of real vLLM servers.")
    parser.add_argument("directory", type=Path, help="a folder for recordings and truths")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"all if none is named; one of: {', '.join(CASES)}")
    arguments = parser.parse_args()
    directory: Path = arguments.directory
    names = arguments.cases or [*CASES]
    if missing := [name for name in names if not (directory / f"{name}.status.json").exists()]:
        play(missing, named_installation(parser), directory)
    print("\n".join(table({name: outcome(name, directory) for name in names})))
    return 0


if __name__ == "__main__":
    sys.exit(main())
