"""Reading a big log to its end: ``analyze`` and its scanner, against grep, mtail and a loop over lines. CPU time."""

from __future__ import annotations

import os
import re
import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.predictor_log import PredictorLog
from bench.processes import TESTS, python, run
from bench.rows import BenchError, Row, figure

GREP_RATIO = 0.20
MTAIL_RATIO = 20.0
# mtail takes a quarter of a minute for what grep reads in a fifth of a second: a part and a few rounds have to do.
MTAIL_ROUNDS = 3

_TOOLS = TESTS.parent / ".tools" / "bin"
_PROGRAM = Path(__file__).with_name("windows.mtail")
_WORDS = "SpecDecoding metrics"


def grep_cpu_seconds(log: PredictorLog) -> float:
    """CPU time of counting the spec-decode lines with grep; raises if it counts something else."""
    done = run("grep", "-cF", _WORDS, log.path)
    _agree("grep", (int(done.output),), log.totals[:1])
    return done.cpu_seconds


def measure(log: PredictorLog, beginning: PredictorLog, empty: Path, rounds: int) -> list[Row]:
    """Rows of all readers on ``log``, in ``rounds`` rounds of one run each. ``beginning`` of it is what mtail gets."""
    mtail = _find_mtail()
    taken: defaultdict[str, list[float]] = defaultdict(list)
    _round(log, empty)  # warms the page cache, and Python's bytecode
    for number in range(rounds):
        seconds = _round(log, empty)
        if mtail and number < MTAIL_ROUNDS:
            seconds["mtail"] = _mtail_cpu_seconds(mtail, beginning) * log.size_bytes / beginning.size_bytes
        for name, value in seconds.items():
            taken[name].append(value)
    start = statistics.median(taken["start"])
    taken["reading"] = [value - start for value in taken["analyze"]]

    def ratio(name: str, to: str) -> list[float]:
        return [theirs / ours for theirs, ours in zip(taken[to], taken[name], strict=False)]

    rows = [
        _rate("grep -cF", taken["grep"], log),
        _rate("analyze", taken["analyze"], log),
        figure("analyze: its start (an empty log)", taken["start"], "s"),
        figure("analyze, start included", ratio("analyze", "grep"), "of grep"),
        figure("analyze, start apart", ratio("reading", "grep"), "of grep", at_least=GREP_RATIO),
        figure("analyze: its scanner alone", ratio("scanner", "grep"), "of grep"),
        _rate("a loop over the lines in Python", taken["line loop"], log),
        figure("analyze against that loop", ratio("analyze", "line loop"), "x"),
    ]
    if not mtail:
        return [
            *rows,
            Row("analyze against mtail, start apart", "no mtail found", f"at least {MTAIL_RATIO:g} x", holds=False),
        ]
    return [
        *rows,
        _rate(f"mtail, the first {beginning.size_bytes / 1e6:.0f} MB", taken["mtail"], log),
        figure("analyze against mtail, start apart", ratio("reading", "mtail"), "x", at_least=MTAIL_RATIO),
    ]


def _round(log: PredictorLog, empty: Path) -> dict[str, float]:
    """CPU seconds of every reader once, each checked for its totals."""
    analyze = python("specdec_exporter", "analyze", log.path)
    report = re.sub(r"(?<=\d),(?=\d)", "", analyze.output)
    names = ("Windows:", "Accepted tokens", "Draft tokens")
    found = [re.search(rf"{name}\s+(\d+)", report) for name in names]
    _agree("analyze", [int(match[1]) for match in found if match], log.totals)
    loop = python("bench.line_loop", log.path)
    _agree("line_loop", map(int, loop.output.split()), log.totals)
    scanner = python("bench.scan_loop", log.path).output.split()
    _agree("scan_loop", map(int, scanner[:-1]), log.totals)
    return {
        "grep": grep_cpu_seconds(log),
        "analyze": analyze.cpu_seconds,
        "start": python("specdec_exporter", "analyze", empty).cpu_seconds,
        "line loop": loop.cpu_seconds,
        "scanner": float(scanner[-1]),
    }


def _mtail_cpu_seconds(mtail: str, beginning: PredictorLog) -> float:
    done = run(
        mtail,
        "-one_shot",
        "-one_shot_format=prometheus",
        "-logtostderr",
        "-address=127.0.0.1",
        "-port=0",
        f"-progs={_PROGRAM}",
        f"-logs={beginning.path}",
    )
    counted = re.findall(r"^spec_decoding_lines\{.*\} (\d+)", done.output, re.MULTILINE)
    _agree("mtail", map(int, counted), beginning.totals[:1])
    return done.cpu_seconds


def _find_mtail() -> str | None:
    return shutil.which("mtail", path=f"{_TOOLS}{os.pathsep}{os.environ.get('PATH', '')}")


def _rate(what: str, seconds: Sequence[float], log: PredictorLog) -> Row:
    return figure(what, [log.size_bytes / 1e6 / value for value in seconds], "MB/s of CPU")


def _agree(tool: str, found: Iterable[int], expected: tuple[int, ...]) -> None:
    """Raise unless the tool found what is in the log: a reader that skips is fast."""
    if (found := tuple(found)) != expected:
        raise BenchError(f"{tool} found {found} in the log, there are {expected}")
