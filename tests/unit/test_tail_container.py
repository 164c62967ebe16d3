"""Following the log of a container runtime, which cuts lines and rotates its file between the pieces."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, SpecDecoding
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.sources.tail import LogFollower
from support.logfiles import Log
from support.loglines import HEADER, SPEC


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["line", "piece", "error", "rotate", "look"]), max_size=25), st.integers(1, 200))
def test_pieces_of_a_line_come_together_whatever_happens_between_them(steps: list[str], cut: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory, "0.log"))
        log.path.touch()
        counters = ReaderCounters()
        follower = LogFollower([str(log.path)], lambda: LogScanner(counters), counters=counters)
        follower.poll()
        events: list[Event] = []
        written, rest, time = 0, "", ""
        for number, step in enumerate([*steps, "line"]):
            time = f"2026-11-20T21:44:52.{number:09}Z"  # of one time, a file could be a copy of another's beginning
            if step in ("line", "piece") and rest:
                log.write(f"{time} stdout F {rest}")
                rest = ""
            elif step in ("line", "piece"):
                written += 1
                text = HEADER.replace("pid=7", f"pid={written}") + SPEC
                rest = text[cut:] if step == "piece" else ""
                log.write(f"{time} stdout {'P' if rest else 'F'} {text[:cut] if rest else text}")
            elif step == "error":
                log.write(f"{time} stderr F another stream, line {number}")
            elif step == "rotate" and log.path.stat().st_size:  # runtimes rotate by size
                log.rotate()
            else:
                events += follower.poll()
        if rest:
            log.write(f"{time} stdout F {rest}")
        events += follower.close()
        got = [event.pid for event in events if isinstance(event, SpecDecoding)]
        assert got == list(range(1, written + 1))
        assert counters.parse_errors == 0
