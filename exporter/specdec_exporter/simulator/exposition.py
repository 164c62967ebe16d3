"""A simulated predictor's ``/metrics``, in the dialect of its release: the Python client's text, or OpenMetrics."""

from __future__ import annotations

import platform
import random
from collections.abc import Iterable, Iterator, Sequence

from specdec_exporter.simulator.engine import Engine
from specdec_exporter.simulator.rank import Rank
from specdec_exporter.simulator.shapes import Family
from specdec_exporter.simulator.totals import Histogram

Labels = tuple[tuple[str, str], ...]
_HELP_PREFIX = "Simulated. "
_CACHE_BLOCK_TOKENS = 16


def render_metrics(engine: Engine) -> bytes:
    """The body of ``/metrics`` as the simulated predictor would answer now.

    Python front end: text format 0.0.4, ``_created`` gauges, families of the process. Several API servers, and the V0
    engine: no ``_created``, nothing of the process, gauges and V0 families from their first value on. Rust front end:
    OpenMetrics with ``# EOF``. With ``--disable-log-stats`` only the families of the process remain.
    """
    rust = engine.release.frontend == "rust"
    lines: list[str] = []
    if not rust and not engine.release.multiprocess:
        lines += _process_lines(engine)
    if not engine.settings.disable_log_stats:
        dialect = _OpenMetrics() if rust else _PythonText(created=not engine.release.multiprocess)
        for family in engine.release.families:
            if not family.speculative or engine.settings.speculates:
                lines += dialect.family(engine, family)
    if rust:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode() if lines else b""


class _PythonText:
    """What prometheus_client writes: sorted labels, floats, counters under their ``_total`` name."""

    def __init__(self, *, created: bool) -> None:
        self._created = created

    def family(self, engine: Engine, family: Family) -> Iterator[str]:
        series = list(_series(engine, family))
        if not series and engine.release.multiprocess:
            return  # each process writes a family with its first value
        yield f"# HELP {family.name} {_HELP_PREFIX}{family.help}"
        yield f"# TYPE {family.name} {family.kind}"
        for labels, value in series:
            if isinstance(value, Histogram):
                for bound, count in _cumulative(value):
                    yield f"{family.name}_bucket{_text_labels((*labels, ('le', bound)))} {float(count)}"
                count_line = f"{family.name}_count{_text_labels(labels)} {float(value.count)}"
                sum_line = f"{family.name}_sum{_text_labels(labels)} {value.sum!r}"
                yield from (sum_line, count_line) if engine.release.multiprocess else (count_line, sum_line)
            else:
                yield f"{family.name}{_text_labels(labels)} {_float(value)}"
        if self._created and family.kind != "gauge":
            name = f"{family.name.removesuffix('_total') if family.kind == 'counter' else family.name}_created"
            yield f"# HELP {name} {_HELP_PREFIX}{family.help}"
            yield f"# TYPE {name} gauge"
            for labels, _ in series:
                yield f"{name}{_text_labels(labels)} {engine.process_start_unix!r}"


class _OpenMetrics:
    """What the Rust front end of 0.22.1 and later writes: no ``_total`` in HELP and TYPE, integers, model first."""

    def family(self, engine: Engine, family: Family) -> Iterator[str]:
        counter = family.kind == "counter"
        name = family.name.removesuffix("_total") if counter else family.name
        yield f"# HELP {name} {_HELP_PREFIX}{family.help}"
        yield f"# TYPE {name} {family.kind}"
        series = list(_series(engine, family))
        if family.label == "position":  # the order of a hash map
            random.Random(engine.settings.seed).shuffle(series)
        for labels, value in series:
            ordered = tuple(sorted(labels, key=lambda label: (label[0] != "model_name", label[0] != "engine")))
            if isinstance(value, Histogram):
                yield f"{name}_sum{_text_labels(ordered, order=False)} {value.sum!r}"
                yield f"{name}_count{_text_labels(ordered, order=False)} {value.count}"
                for bound, count in _cumulative(value):
                    yield f"{name}_bucket{_text_labels((('le', bound), *ordered), order=False)} {count}"
            else:
                suffix = "_total" if counter else ""
                yield f"{name}{suffix}{_text_labels(ordered, order=False)} {value}"


def _series(engine: Engine, family: Family) -> Iterator[tuple[Labels, float | Histogram]]:
    """Labels and values of one family over all engines. Labels are in no particular order."""
    if family.source == "cache_config":
        yield from _cache_config(engine)
        return
    ranks: Sequence[Rank] = engine.ranks if family.engine_label else engine.ranks[:1]
    if engine.release.multiprocess and engine.release.generation == "v0":
        ranks = [rank for rank in ranks if rank.seen_request]
    for rank in ranks:
        base: Labels = (("model_name", engine.settings.model_name),) if family.model_label else ()
        if family.engine_label and engine.release.engine_label:
            base = (*base, ("engine", str(rank.index)))
        for label_value, value in _values(engine, rank, family):
            yield ((*base, (family.label, label_value)) if family.label else base), value


def _values(engine: Engine, rank: Rank, family: Family) -> Iterable[tuple[str, float | Histogram]]:
    totals, source = rank.totals, family.source
    created = engine.release.label_values(family) if family.values else ()
    v0 = engine.release.generation == "v0"
    # API servers that share a scrape write request gauges only once they have served one
    untouched = engine.release.multiprocess and not rank.seen_request
    match source:
        case "running" | "waiting" | "kv_cache_usage" | "waiting_by_reason" if untouched:
            return ()
        case "running" | "waiting" | "kv_cache_usage":
            return (("", getattr(rank, source)),)
        case "waiting_by_reason":
            return tuple((reason, rank.waiting if reason == "capacity" else 0) for reason in created)
        case "sleep_state":
            return tuple((state, int(state == "awake")) for state in created)
        case "prompt_tokens_by_source":
            cached = totals.prefix_hits
            by_source = {"local_compute": totals.prompt_tokens - cached, "local_cache_hit": cached, "device": cached}
            return tuple((name, by_source.get(name, 0)) for name in created)
        case "accepted_per_position":
            return tuple((str(position), count) for position, count in enumerate(totals.accepted_per_position))
        case "finished":
            reasons = tuple(totals.finished) if v0 else created
            return tuple((reason, totals.finished.get(reason, 0)) for reason in reasons)
        case _ if created:
            return tuple((value, getattr(totals, source)) for value in created)
        case _:
            value = getattr(totals, source)
            reported = not source.startswith("v0_summed") or totals.v0_acceptance_ratio is not None
            started = not v0 or not isinstance(value, Histogram) or value.count
            return (("", value),) if value is not None and reported and started else ()


def _cache_config(engine: Engine) -> Iterator[tuple[Labels, int]]:
    labels: Labels = (
        ("block_size", str(_CACHE_BLOCK_TOKENS)),
        ("num_gpu_blocks", str(engine.settings.kv_cache_tokens // _CACHE_BLOCK_TOKENS)),
    )
    # since 0.9.0 the family says which engine, too
    if engine.release.generation == "v1" and engine.release.version >= (0, 9, 0):
        for rank in engine.ranks:
            yield (*labels, ("engine", str(rank.index))), 1
    else:
        yield labels, 1


def _cumulative(histogram: Histogram) -> Iterator[tuple[str, int]]:
    total = 0
    for bound, count in zip((*map(repr, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        yield bound, total


def _float(value: float) -> str:
    return "NaN" if value != value else repr(float(value))  # noqa: PLR0124  # NaN is the one value unlike itself


def _text_labels(labels: Labels, *, order: bool = True) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in (sorted(labels) if order else labels)) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _process_lines(engine: Engine) -> list[str]:
    """What the Python client says about its process; a start time that moves with a restart is the point of it."""
    version = platform.python_version_tuple()
    info = f'implementation="CPython",major="{version[0]}",minor="{version[1]}",patchlevel="{version[2]}"'
    return [
        "# HELP python_info Python platform information",
        "# TYPE python_info gauge",
        f'python_info{{{info},version="{".".join(version)}"}} 1.0',
        "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.",
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {engine.process_start_unix!r}",
        "# HELP process_resident_memory_bytes Resident memory size in bytes.",
        "# TYPE process_resident_memory_bytes gauge",
        "process_resident_memory_bytes 6.7e+08",
    ]
