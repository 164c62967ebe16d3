"""Reading a predictor's /metrics against prometheus_client's parser for the whole body. CPU time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.rows import BenchError, Row, figure
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from support.counting import ONE_ENGINE, TWO_ENGINES, count_up

RATIO = 1.0
CALLS_PER_ROUND = 10


def measure(rounds: int) -> list[Row]:
    """Rows for one engine and for two."""
    return [*_rows("one engine", ONE_ENGINE, rounds), *_rows("two engines", TWO_ENGINES, rounds)]


def _rows(name: str, path: Path, rounds: int) -> list[Row]:
    capture, factors = path.read_bytes(), itertools.count(2)

    def milliseconds(read: Callable[[bytes], object]) -> float:
        """Of a call, each with a body that no other has."""
        return _milliseconds(read, [count_up(capture, next(factors)) for _ in range(CALLS_PER_ROUND)])

    if _draft_tokens(parse_exposition(capture)) != _stock_draft_tokens(capture) or not _stock_draft_tokens(capture):
        raise BenchError("the two parsers disagree")
    whole, ours = zip(
        *((milliseconds(_stock_draft_tokens), milliseconds(parse_exposition)) for _ in range(rounds)), strict=True
    )
    lines = capture.count(b"\n")
    return [
        figure(f"{name}, {lines} lines: prometheus_client, the whole body", whole, "ms"),
        figure(f"{name}: ours, by that parser behind a filter", ours, "ms"),
        figure(f"{name}: ours / the whole body", [a / b for a, b in zip(ours, whole, strict=True)], "x", at_most=RATIO),
    ]


def _draft_tokens(snapshot: Snapshot) -> float:
    return sum(engine.draft_tokens or 0.0 for engine in snapshot.engines)


def _stock_draft_tokens(body: bytes) -> float:
    """Read everything with the stock parser, as anyone who scrapes would."""
    families = list(text_string_to_metric_families(body.decode()))
    name = "spec_decode_num_draft_tokens_total"
    return sum(sample.value for family in families for sample in family.samples if sample.name.endswith(name))


def _milliseconds(read: Callable[[bytes], object], bodies: Sequence[bytes]) -> float:
    started = time.process_time()
    for body in bodies:
        read(body)
    return 1e3 * (time.process_time() - started) / len(bodies)
