"""Reading a predictor's /metrics against the stock parser. CPU time."""

from __future__ import annotations

import json
from pathlib import Path

from bench.counting import ONE_ENGINE, TWO_ENGINES
from bench.processes import python
from bench.rows import Row, figure

STOCK_RATIO = 100.0


def measure(rounds: int) -> list[Row]:
    """Rows for one engine and for two."""
    return [*_rows("one engine", ONE_ENGINE, rounds), *_rows("two engines", TWO_ENGINES, rounds)]


def _rows(name: str, capture: Path, rounds: int) -> list[Row]:
    taken: dict[str, list[float]] = json.loads(python("bench.parse_loop", capture, str(rounds)).output)
    lines = capture.read_bytes().count(b"\n")
    ratios = [stock / ours for stock, ours in zip(taken["stock"], taken["warm"], strict=True)]
    return [
        figure(f"{name}, {lines} lines: prometheus_client", _microseconds(taken["stock"]), "µs"),
        figure(f"{name}: ours, first call of the process", _microseconds(taken["first"]), "µs"),
        figure(f"{name}: ours, a structure not seen before", _microseconds(taken["new"]), "µs"),
        figure(f"{name}: ours, other numbers", _microseconds(taken["warm"]), "µs"),
        figure(f"{name}: prometheus_client / ours", ratios, "x", at_least=STOCK_RATIO),
    ]


def _microseconds(seconds: list[float]) -> list[float]:
    return [1e6 * value for value in seconds]
