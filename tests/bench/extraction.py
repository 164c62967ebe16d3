"""Reading a predictor's /metrics against prometheus_client's parser for the whole body. CPU time."""

from __future__ import annotations

import json
from pathlib import Path

from bench.counting import ONE_ENGINE, TWO_ENGINES
from bench.processes import python
from bench.rows import Row, figure

RATIO = 1.0


def measure(rounds: int) -> list[Row]:
    """Rows for one engine and for two."""
    return [*_rows("one engine", ONE_ENGINE, rounds), *_rows("two engines", TWO_ENGINES, rounds)]


def _rows(name: str, capture: Path, rounds: int) -> list[Row]:
    taken: dict[str, list[float]] = json.loads(python("bench.parse_loop", capture, str(rounds)).output)
    lines = capture.read_bytes().count(b"\n")
    ratios = [ours / whole for ours, whole in zip(taken["ours"], taken["whole body"], strict=True)]
    return [
        figure(f"{name}, {lines} lines: prometheus_client, the whole body", _milliseconds(taken["whole body"]), "ms"),
        figure(f"{name}: ours, by that parser behind a filter", _milliseconds(taken["ours"]), "ms"),
        figure(f"{name}: ours / the whole body", ratios, "x", at_most=RATIO),
    ]


def _milliseconds(seconds: list[float]) -> list[float]:
    return [1e3 * value for value in seconds]
