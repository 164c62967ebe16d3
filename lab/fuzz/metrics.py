"""The predictor's /metrics, behind our filter, against prometheus_client's parser for the whole body."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from fuzz.target import Target, captured, chosen_by, require_numbers, require_one_line
from specdec_exporter import bounds
from specdec_exporter.errors import ExpositionError
from specdec_exporter.formatting import plain
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import ENGINES
from specdec_exporter.predictor.metrics import exposition, reading
from specdec_exporter.predictor.metrics.families import length_meanings, meanings
from specdec_exporter.predictor.metrics.snapshot import OF_DRAFTS, EngineSnapshot, Snapshot

ENGINE_CAPTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "engines"
TYPES = (None, "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0", ";")
REASONS = ("not_metrics", "truncated", "encoding", "too_large")

_FOREIGN_SPACE = re.compile(r"^\s*[^\S \t\n\r\f\v]", re.MULTILINE)

Place = tuple[str, str, str, object]  # model, engine, field and key
Outcome = Snapshot | tuple[str, str]


def seeds() -> list[bytes]:
    """Each capture whole, and reduced to a few lines of each sample and of what is not read."""
    dumps = captured("metrics-*.txt") + [
        path.read_bytes() for path in sorted(ENGINE_CAPTURES.glob("*/*/metrics-*.txt"))
    ]
    return [*dumps, *map(reduced, dumps), *map(reduced, dumps)]


def reduced(dump: bytes) -> bytes:
    seen: dict[bytes, int] = defaultdict(int)
    kept = []
    for line in dump.split(b"\n"):
        name = line.partition(b"{")[0].partition(b" ")[0] if not line.startswith(b"#") else line.split(b" ")[2]
        wanted = any(name.removesuffix(part).decode() in KNOWN for part in (b"", b"_bucket", b"_created"))
        seen[name] += 1
        if (wanted and seen[name] <= 5) or b"+Inf" in line or (not wanted and len(seen) % 9 == 0) or not line:
            kept.append(line)
    return b"\n".join(kept)


def check(body: bytes) -> None:
    content_type = chosen_by(body).choice(TYPES)
    found = outcome(body, content_type)
    if not isinstance(found, Snapshot):
        assert found[0] in REASONS
        require_one_line(found[1])
        return
    require_numbers([found.process_start_time_seconds])
    with_lengths = outcome(body, content_type, lengths=True)
    if not isinstance(with_lengths, Snapshot):  # for a line of these families
        assert with_lengths[0] in REASONS
        return
    for engine in (*found.engines, *with_lengths.engines):
        require_sound(engine)
    names = [(engine.model_name, engine.engine) for engine in found.engines]
    assert names == sorted(set(names))
    assert found.engine_generation is None or found.stats_present
    answered = with_lengths.inference_engine
    # Of engines that tell figures in parts, or from which others follow, figures are sums of what is told.
    if answered is None or (answered.derived is None and answered.gauges_by is None):
        require_agreement(body, with_lengths)


def outcome(body: bytes, content_type: str | None, *, lengths: bool = False) -> Outcome:
    try:
        return exposition.parse_exposition(body, content_type, lengths=lengths)
    except ExpositionError as error:
        return error.reason, str(error)


def figures(engine: EngineSnapshot) -> Iterator[tuple[str, object, float]]:
    """Field, key (as in admission.Key) and value of every number."""
    for field in engine.__struct_fields__:
        match getattr(engine, field):
            case float() as value:
                yield field, "", value
            case dict() as values:
                for key, value in values.items():
                    yield field, key, value
            case Histogram() as histogram:
                for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
                    yield field, bound, count
                yield field, "sum", histogram.sum
                yield field, "count", histogram.count


def require_sound(engine: EngineSnapshot) -> None:
    for field, _, value in figures(engine):
        assert 0 <= value < math.inf, (field, value)
    for field in engine.__struct_fields__:
        if isinstance(histogram := getattr(engine, field), Histogram):
            assert all(low < high for low, high in pairwise(histogram.bounds)), histogram
            assert histogram.bounds[-1] == math.inf
            assert all(low <= high for low, high in pairwise(histogram.counts)), histogram


def require_agreement(body: bytes, snapshot: Snapshot) -> None:
    """Every number is the one that prometheus_client reads, and no number that it reads is missing."""
    try:
        text = body.decode()
        families = list(text_string_to_metric_families(text))
    except Exception:  # noqa: BLE001  it raises whatever it meets
        return
    if _FOREIGN_SPACE.search(text) is not None:
        return  # it skips that at the beginning of a line; Prometheus does not
    engine = snapshot.inference_engine
    known = {} if engine is None else meanings(engine.code) | length_meanings(engine.code)
    labels = {} if engine is None else engine.labels
    model_label, engine_label = labels.get("model_name", "model_name"), labels.get("engine", "engine")
    theirs: dict[Place, list[tuple[int, float]]] = defaultdict(list)
    for sample in (sample for family in families for sample in family.samples):
        own = known.get(sample.name)
        for meaning in (own, own and own.also):
            if meaning is None or meaning.shape == "info":
                continue
            key = reading._key(meaning, sample.labels)
            model, rank = plain(sample.labels.get(model_label, "")), plain(sample.labels.get(engine_label, "0"))
            there: Place = (model, rank, meaning.field, plain(key) if isinstance(key, str) else key)
            theirs[there].append((meaning.rank, as_float(sample.value)))
    ours: dict[Place, float] = {
        (each.model_name, each.engine, field, key): value
        for each in snapshot.engines
        for field, key, value in figures(each)
        if field not in ("kv_cache_tokens", "kv_cache_block_tokens")  # from labels
    }
    for place, number in ours.items():
        assert number in [each for _, each in theirs[place]], (place, number, theirs[place])
    if snapshot.dropped.keys() - {"values"}:
        return  # engines, series or labels beyond their bounds are missing
    for place, values in theirs.items():
        if engine is not None and engine.counts_without_speculation and place[2] in OF_DRAFTS:
            continue  # left out while they are 0
        ranks = [rank for rank, _ in values]
        if len(set(ranks)) == len(ranks) and place[2] in SINGLE:
            most = 1 if place[2].endswith("_ratio") else bounds.COUNT
            usable = [value for _, value in sorted(values) if 0 <= value <= most]
            assert not usable or ours.get(place) == usable[0], (place, values)


def as_float(value: float) -> float:
    """It reads whole numbers as integers of any length."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


KNOWN = {
    name: meaning for code, engine in ENGINES.items() if engine.is_read for name, meaning in meanings(code).items()
}
SINGLE = {meaning.field for meaning in KNOWN.values() if meaning.shape == "scalar"}

TARGETS = (
    Target(
        "exposition",
        check,
        seeds,
        (
            *(b'{engine="0"', b'engine="1",', b'model_name="', b'le="+Inf"', b'le="', b'position="', b'",', b"} 1\n"),
            *(
                b"# TYPE ",
                b"# HELP ",
                b"# UNIT ",
                b" counter\n",
                b" histogram\n",
                b" # {",
                b" 1700000000000",
                b"_total",
            ),
            *(
                b"_bucket",
                b"_sum",
                b"_count",
                b"_created",
                b"vllm:",
                b"vllm_",
                b"ray_vllm:",
                b"kserve_vllm_",
                b"sglang:",
                b"llamacpp:",
            ),
            *(b"vllm:num_requests_running 3\n", b"vllm:num_requests_swapped 1\n", b"vllm:kv_cache_usage_perc NaN\n"),
        ),
        share=4,
    ),
)
