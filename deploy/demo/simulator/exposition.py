"""A simulated predictor's ``/metrics``, as the Python client of its release writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from demo.simulator.engine import Engine
from demo.simulator.shapes import Family
from demo.simulator.totals import Histogram

Labels = dict[str, str]
_GAUGES_OF_A_RANK = ("running", "waiting", "kv_cache_usage")


def render_metrics(engine: Engine) -> bytes:
    """Return the body of ``/metrics`` as the simulated predictor would answer now.

    The V0 engine has no ``_created``, no start time of the process, and its families from their first value on.
    """
    lines: list[str] = []
    if engine.release.generation == "v1":
        name = "process_start_time_seconds"
        lines += [*_head(name, "gauge"), f"{name} {engine.process_start_unix!r}"]
    for family in engine.release.families:
        if not family.speculative or engine.settings.speculates:
            lines += _family_lines(engine, family)
    return ("\n".join(lines) + "\n").encode()


def _family_lines(engine: Engine, family: Family) -> Iterator[str]:
    """Write like prometheus_client: sorted labels, floats, counters with ``_total``."""
    name, v0 = family.name, engine.release.generation == "v0"
    series = [(dict(sorted(labels.items())), value) for labels, value in _series(engine, family)]
    if not series and v0:
        return
    yield from _head(name, family.kind)
    for labels, value in series:
        if not isinstance(value, Histogram):
            yield f"{name}{_braces(labels)} {'NaN' if math.isnan(value) else repr(float(value))}"
            continue
        before, after = _braces(dict(sorted({**labels, "le": "\0"}.items()))).split("\0")
        for bound, count in value.buckets():
            yield f"{name}_bucket{before}{'+Inf' if bound == math.inf else bound}{after} {float(count)}"
        yield f"{name}_count{_braces(labels)} {float(value.count)}"
        yield f"{name}_sum{_braces(labels)} {value.sum!r}"
    if family.kind != "gauge" and not v0:
        created = f"{name.removesuffix('_total')}_created"
        yield from _head(created, "gauge")
        for labels, _ in series:
            yield f"{created}{_braces(labels)} {engine.process_start_unix!r}"


def _head(name: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} Simulated.", f"# TYPE {name} {kind}"


def _series(engine: Engine, family: Family) -> Iterator[tuple[Labels, float | Histogram]]:
    """Yield labels and values of one family for all engines."""
    release = engine.release
    if family.source == "cache_config":
        yield from _cache_config(engine)
        return
    for rank in engine.ranks:
        if release.generation == "v0" and not rank.seen_request:
            continue
        labels = {"model_name": engine.settings.model_name}
        if release.generation == "v1":
            labels["engine"] = str(rank.index)
        match getattr(rank if family.source in _GAUGES_OF_A_RANK else rank.totals, family.source):
            case Histogram() as histogram:
                if histogram.count or release.generation == "v1":
                    yield labels, histogram
            case dict() as by_reason:
                yield from (({**labels, "finished_reason": reason}, count) for reason, count in by_reason.items())
            case list() as by_position:
                yield from (({**labels, "position": str(place)}, count) for place, count in enumerate(by_position))
            case int() | float() as value:
                yield labels, value


def _cache_config(engine: Engine) -> Iterator[tuple[Labels, float]]:
    blocks = engine.settings.kv_cache_tokens // 16 * len(engine.ranks)  # as vLLM: of all engines, beside each
    labels = {"block_size": "16", "num_gpu_blocks": str(blocks)}
    return (({**labels, "engine": str(rank.index)}, 1.0) for rank in engine.ranks)


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
