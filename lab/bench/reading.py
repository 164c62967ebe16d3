"""Reading a big log to its end: ``analyze`` against mtail. CPU time."""

from __future__ import annotations

import os
import re
import shutil
import statistics
from collections.abc import Iterable
from pathlib import Path

from bench.predictor_log import PredictorLog
from bench.processes import python, run
from bench.rows import BenchError, Row, figure
from support.fieldtools import ROOT

MTAIL_RATIO = 5.0

_TOOLS = ROOT / ".tools" / "bin"
_PROGRAM = Path(__file__).with_name("windows.mtail")


def measure(log: PredictorLog, beginning: PredictorLog, empty: Path, rounds: int) -> list[Row]:
    """Rows of both readers on ``log``, in ``rounds`` rounds of one run each.

    ``beginning``: the part of it that mtail gets, which takes much longer; its time is scaled to the whole.
    """
    mtail = shutil.which("mtail", path=f"{_TOOLS}{os.pathsep}{os.environ.get('PATH', '')}")
    if mtail is None:
        raise BenchError("mtail is missing: tests/debian.sh mtail")
    _analyze(log)  # warms the page cache, and Python's bytecode
    megabytes = log.size_bytes / 1e6
    whole, starts, theirs = [], [], []
    for _ in range(rounds):
        whole.append(_analyze(log))
        starts.append(python("specdec_exporter", "analyze", empty, ends_with=2).cpu_seconds)  # it warns: nothing in it
        theirs.append(_mtail(mtail, beginning) * log.size_bytes / beginning.size_bytes)
    start = statistics.median(starts)
    ours = [seconds - start for seconds in whole]
    return [
        figure("analyze, start apart", [megabytes / seconds for seconds in ours], "MB/s of CPU"),
        figure("analyze: its start (an empty log)", starts, "s"),
        figure("mtail", [megabytes / seconds for seconds in theirs], "MB/s of CPU"),
        figure("analyze against mtail", [b / a for a, b in zip(ours, theirs, strict=True)], "x", at_least=MTAIL_RATIO),
    ]


def _analyze(log: PredictorLog) -> float:
    done = python("specdec_exporter", "analyze", log.path, ends_with=2)  # the verdict is a guess: look
    report = re.sub(r"(?<=\d),(?=\d)", "", done.output)
    found = [re.search(rf"{name}\s+(\d+)", report) for name in ("Windows:", "Accepted tokens", "Draft tokens")]
    _agree("analyze", [int(match[1]) for match in found if match], log.totals)
    return done.cpu_seconds


def _mtail(mtail: str, log: PredictorLog) -> float:
    done = run(
        mtail,
        "-one_shot",
        "-one_shot_format=prometheus",
        "-logtostderr",
        "-address=127.0.0.1",
        "-port=0",
        f"-progs={_PROGRAM}",
        f"-logs={log.path}",
    )
    counted = re.findall(r"^spec_decoding_lines\{.*\} (\d+)", done.output, re.MULTILINE)
    _agree("mtail", map(int, counted), log.totals[:1])
    return done.cpu_seconds


def _agree(tool: str, found: Iterable[int], expected: tuple[int, ...]) -> None:
    """Raise unless the tool found what is in the log: a reader that skips is fast."""
    if (found := tuple(found)) != expected:
        raise BenchError(f"{tool} found {found} in the log, there are {expected}")
