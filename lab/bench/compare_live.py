"""A running exporter beside a simulated predictor, scrape by scrape."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.compare_machine import Server, side_by_side
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.baseline.writing import write_baseline
from specdec_exporter.state.observing import observe_snapshot, pin
from specdec_exporter.state.record import PredictorState
from support.builders import Clock

_SETTLED_SECONDS = 900.0  # of the window that is judged


def watched(
    plain: Baseline, engines: Sequence[Server], seed: str, *, every: float, seconds: float
) -> Iterator[PredictorState]:
    """Scrape engines with drafts every so many seconds, with ``plain`` as the baseline; yield the state each time.

    It begins when the window is full, and goes on for ``seconds``.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "plain.yaml"))
        write_baseline(path, plain)
        pinned = PinnedBaseline(path)
    clock = Clock()
    state = PredictorState("bench", clock=clock.monotonic, wall_clock=clock.wall)
    pin(state, pinned)
    began = clock.now
    for at, snapshot in side_by_side(engines, f"{seed} live", _SETTLED_SECONDS + seconds):
        if at % every:
            continue
        clock.now = began + at
        observe_snapshot(state, snapshot)
        if at >= _SETTLED_SECONDS:
            yield state
