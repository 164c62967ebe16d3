"""Reading one answer of a predictor's /metrics, ours against prometheus_client's parser: prints CPU seconds as JSON."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.counting import count_up
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import Snapshot

CALLS_PER_ROUND = 10


def draft_tokens(snapshot: Snapshot) -> float:
    return sum(engine.draft_tokens or 0.0 for engine in snapshot.engines)


def stock_draft_tokens(body: bytes) -> float:
    """Read everything with the stock parser, as anyone who scrapes would."""
    families = list(text_string_to_metric_families(body.decode()))
    name = "spec_decode_num_draft_tokens_total"
    return sum(sample.value for family in families for sample in family.samples if sample.name.endswith(name))


def seconds_per_call(read: Callable[[bytes], object], bodies: Sequence[bytes]) -> float:
    started = time.process_time()
    for body in bodies:
        read(body)
    return (time.process_time() - started) / len(bodies)


def main(path: str, rounds: int) -> None:
    capture = Path(path).read_bytes()
    factors = itertools.count(2)

    def bodies(count: int) -> list[bytes]:
        return [count_up(capture, factor) for factor in itertools.islice(factors, count)]

    if draft_tokens(parse_exposition(capture)) != stock_draft_tokens(capture) or not stock_draft_tokens(capture):
        sys.exit("the two parsers disagree")
    taken: dict[str, list[float]] = {"whole body": [], "ours": []}
    for _ in range(rounds):
        taken["whole body"].append(seconds_per_call(stock_draft_tokens, bodies(CALLS_PER_ROUND)))
        taken["ours"].append(seconds_per_call(parse_exposition, bodies(CALLS_PER_ROUND)))
    json.dump(taken, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
