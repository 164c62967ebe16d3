"""A simulated predictor's ``/metrics``, in the dialect of its release: the Python client's text, or OpenMetrics."""

from __future__ import annotations

import math
import platform
import random
from collections.abc import Iterator

from specdec_exporter.histogram import Histogram, HistogramCounter
from specdec_exporter.simulator.engine import Engine
from specdec_exporter.simulator.shapes import Family

Labels = dict[str, str]
_CACHE_BLOCK_TOKENS = 16
_GAUGES_OF_A_RANK = ("running", "waiting", "kv_cache_usage")


def render_metrics(engine: Engine) -> bytes:
    """Return the body of ``/metrics`` as the simulated predictor would answer now.

    Python front end: text format 0.0.4, ``_created`` gauges, families of the process. Several API servers, and the V0
    engine: no ``_created``, nothing of the process, gauges and V0 families from their first value on. Rust front end:
    OpenMetrics with ``# EOF``. With ``--disable-log-stats`` only the families of the process remain.
    """
    rust = engine.release.frontend == "rust"
    lines = [] if rust or engine.release.multiprocess else _process_lines(engine)
    if not engine.settings.disable_log_stats:
        write = _openmetrics if rust else _python_text
        for family in engine.release.families:
            if not family.speculative or engine.settings.speculates:
                lines += write(engine, family)
    if rust:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _python_text(engine: Engine, family: Family) -> Iterator[str]:
    """Write like prometheus_client: sorted labels, floats, counters with ``_total``."""
    name, shared = family.name, engine.release.multiprocess
    series = [(dict(sorted(labels.items())), value) for labels, value in _series(engine, family)]
    if not series and shared:
        return  # a process writes a family when it has the first value
    yield from _head(name, family.kind, family.help)
    for labels, value in series:
        if not isinstance(value, Histogram):
            yield f"{name}{_braces(labels)} {'NaN' if math.isnan(value) else repr(float(value))}"
            continue
        before, after = _braces(dict(sorted({**labels, "le": "\0"}.items()))).split("\0")
        for bound, count in value.buckets():
            yield f"{name}_bucket{before}{bound}{after} {float(count)}"
        parts = (f"{name}_count{_braces(labels)} {float(value.count)}", f"{name}_sum{_braces(labels)} {value.sum!r}")
        yield from reversed(parts) if shared else parts
    if family.kind != "gauge" and not shared:
        created = f"{name.removesuffix('_total')}_created"
        yield from _head(created, "gauge", family.help)
        for labels, _ in series:
            yield f"{created}{_braces(labels)} {engine.process_start_unix!r}"


def _openmetrics(engine: Engine, family: Family) -> Iterator[str]:
    """Write like the Rust front end (0.22.1 and later): no ``_total`` in HELP and TYPE, integers, model first."""
    name = family.name.removesuffix("_total")
    yield from _head(name, family.kind, family.help)
    series = list(_series(engine, family))
    if family.source == "accepted_per_position":  # the order of a hash map
        random.Random(engine.settings.seed).shuffle(series)
    for labels, value in series:
        if isinstance(value, Histogram):
            yield f"{name}_sum{_braces(labels)} {value.sum!r}"
            yield f"{name}_count{_braces(labels)} {value.count}"
            before, after = _braces({"le": "\0", **labels}).split("\0")
            for bound, count in value.buckets():
                yield f"{name}_bucket{before}{bound}{after} {count}"
        else:
            yield f"{family.name}{_braces(labels)} {value}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} Simulated. {text}", f"# TYPE {name} {kind}"


def _series(engine: Engine, family: Family) -> Iterator[tuple[Labels, float | Histogram]]:
    """Yield labels and values of one family for all engines."""
    release = engine.release
    if family.source == "cache_config":
        yield from _cache_config(engine)
        return
    for rank in engine.ranks:
        # Processes that share a scrape write request gauges, and V0 everything, once they have served a request.
        if release.multiprocess and not rank.seen_request and (release.generation == "v0" or family.kind == "gauge"):
            continue
        labels = {"model_name": engine.settings.model_name}
        if release.engine_label:
            labels["engine"] = str(rank.index)
        match getattr(rank if family.source in _GAUGES_OF_A_RANK else rank.totals, family.source):
            case HistogramCounter() as counter:
                if counter.count or release.generation == "v1":
                    yield labels, counter.histogram
            case dict() as by_reason:
                yield from (({**labels, "finished_reason": reason}, count) for reason, count in by_reason.items())
            case list() as by_position:
                yield from (({**labels, "position": str(place)}, count) for place, count in enumerate(by_position))
            case int() | float() as value:
                yield labels, value


def _cache_config(engine: Engine) -> Iterator[tuple[Labels, int]]:
    blocks = engine.settings.kv_cache_tokens // _CACHE_BLOCK_TOKENS
    all_blocks = blocks * len(engine.ranks)  # as vLLM: the sum of all engines, beside each
    labels = {"block_size": str(_CACHE_BLOCK_TOKENS), "num_gpu_blocks": str(all_blocks)}
    if engine.release.version >= (0, 24, 0):
        labels["kv_cache_size_tokens"] = str(blocks * _CACHE_BLOCK_TOKENS)
    # since 0.9.0 the family has the label engine
    if engine.release.generation == "v1" and engine.release.version >= (0, 9, 0):
        yield from (({**labels, "engine": str(rank.index)}, 1) for rank in engine.ranks)
    else:
        yield labels, 1


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _process_lines(engine: Engine) -> list[str]:
    """Return the process metrics of the Python client. The start time shows restarts."""
    major, minor, patchlevel = platform.python_version_tuple()
    info = {"implementation": "CPython", "major": major, "minor": minor, "patchlevel": patchlevel}
    return [
        *_head("python_info", "gauge", "Python platform information"),
        f"python_info{_braces({**info, 'version': platform.python_version()})} 1.0",
        *_head("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds."),
        f"process_start_time_seconds {engine.process_start_unix!r}",
        *_head("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
        "process_resident_memory_bytes 6.7e+08",
    ]
