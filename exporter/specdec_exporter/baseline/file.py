"""A baseline: what one predictor did over a span of time, under which conditions, and the YAML file for it.

Counts are increases over the span, times seconds. ``None`` means not known, not given, or not exposed by the predictor.
Reading is strict: every error names line and key.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from specdec_exporter.errors import BaselineError
from specdec_exporter.histogram import Histogram, le
from specdec_exporter.speculation.acceptance import SCALARS, Counts
from specdec_exporter.speculation.cost import step_times
from specdec_exporter.speculation.load import BLOCK_COUNTS, CONCURRENCY_BOUNDS, Load, LoadBin
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.yamlfile import Node, number_of, parse_yaml, read_yaml

# The service level indicators of a baseline: field of a baseline -> field of a snapshot.
HISTOGRAMS = {
    "time_to_first_token_seconds": "time_to_first_token",
    "time_per_output_token_seconds": "time_per_output_token",
    "request_latency_seconds": "request_latency",
}
SLIS = tuple(HISTOGRAMS)

MAX_TEXT = 4096
MAX_BLOCKS = 1000  # of a bin; a recording has 24 at most
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)
_UNSET_CLOCK_YEAR = 1970
_SUM_TOLERANCE = 1e-6  # relative; rounding of a sum over millions of floats

_T = TypeVar("_T")


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The five facts that a comparison of numbers needs. ``None``: not given, never guessed."""

    hardware: str | None = None
    model: str | None = None
    runtime: str | None = None
    request_parameters: str | None = None
    command: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the missing facts."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) is None)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One of the consecutive parts of a recording, of about equal length: increases over ``seconds`` of wall clock.

    The scatter of the blocks tells how far a figure of the whole recording is from chance, whatever requests have in
    common: a batch, a burst, an hour. A histogram without requests in the block has zero counts.
    """

    seconds: float
    counts: Counts = Counts()
    time_to_first_token_seconds: Histogram | None = None
    time_per_output_token_seconds: Histogram | None = None
    request_latency_seconds: Histogram | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """One recording. The histograms hold the requests of the span: cumulative counts, sum in seconds.

    ``recorded_at`` is the end of the span, RFC 3339 in UTC. ``model_name`` is the served name in the predictor's
    metrics. Without speculation ``counts`` has no drafts. ``by_load`` has the polling intervals of the span by
    concurrency; it is empty in recordings of releases before 0.2. ``blocks`` has the same intervals in the order of
    time, and ``prompt_length`` and ``generation_length`` are the tokens per request; empty and ``None`` in recordings
    that have none. ``interrupted``: recording stopped early.
    """

    name: str
    recorded_at: str
    duration_seconds: float
    context: Context = Context()

    vllm_version: str | None = None
    method: str | None = None
    num_speculative_tokens: int | None = None
    model_name: str | None = None

    time_to_first_token_seconds: Histogram | None = None
    time_per_output_token_seconds: Histogram | None = None
    request_latency_seconds: Histogram | None = None
    counts: Counts = Counts()
    requests_finished: float | None = None
    by_load: tuple[LoadBin, ...] = ()
    blocks: tuple[Block, ...] = ()
    prompt_length: Histogram | None = None
    generation_length: Histogram | None = None
    interrupted: bool = False

    @property
    def recorded_timestamp(self) -> float:
        """``recorded_at`` as Unix time."""
        return datetime.fromisoformat(self.recorded_at).timestamp()

    def histograms(self) -> Iterator[tuple[str, Histogram]]:
        """Yield each recorded SLI and its histogram."""
        for sli in SLIS:
            if (histogram := getattr(self, sli)) is not None:
                yield sli, histogram


def as_utc(moment: datetime) -> str:
    """Return ``moment`` as RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def remarks(baseline: Baseline) -> tuple[str, ...]:
    """Return in words what a reader of the baseline's numbers must know."""
    found = [f"{name.replace('_', ' ')} not given (--{name.replace('_', '-')})" for name in baseline.context.missing]
    if baseline.interrupted:
        found.append(f"interrupted after {baseline.duration_seconds:g} s")
    few = load_policy().latency.min_requests
    if (baseline.requests_finished or 0.0) < few:
        found.append(f"{baseline.requests_finished or 0:,.0f} requests: fewer than {few} decide nothing")
    if baseline.counts.draft_tokens and baseline.method is None:
        found.append("speculation's method is not known: only the predictor's log tells it (--predictor.log-path)")
    missing = [sli for sli in SLIS if getattr(baseline, sli) is None]
    found += [f"no {sli.removesuffix('_seconds').replace('_', ' ')} was recorded" for sli in missing]
    return (*found, *_remarks_on_load(baseline))


def _remarks_on_load(baseline: Baseline) -> Iterator[str]:
    policy = load_policy().cost
    if step_times(baseline.by_load, policy).points:
        return
    found, advice = "no step times by load", "record again"
    if baseline.by_load:
        found = f"no load has {policy.min_steps} request-steps in {policy.min_intervals} intervals"
        advice = "record for longer"
    elif baseline.counts.steps is None:
        advice = "the predictor does not expose its step latency"
    elif baseline.counts.step_seconds is None:
        advice = "recordings of releases before 0.2 and of V0 engines have none"
    yield f"{found}: what a draft costs cannot be computed; {advice}"


def sum_bounds(histogram: Histogram) -> tuple[float, float]:
    """Return the smallest and the largest possible sum of the samples in these buckets; times are never < 0."""
    low = high = before = 0.0
    edges = itertools.pairwise((0.0, *histogram.bounds))
    for (lower, upper), count in zip(edges, histogram.counts, strict=True):
        if samples := count - before:
            low += samples * lower
            high += samples * upper
        before = count
    return low, high


# --- Writing ----------------------------------------------------------------------------------------------------------

_CONTEXT = tuple(Context.__struct_fields__)
_FACTS = ("model_name", "vllm_version", "method", "num_speculative_tokens")
_ACCEPTANCE = ("drafts", "draft_tokens", "accepted_tokens", "accepted_per_position")
_THROUGHPUT = (
    "requests_finished",
    "prompt_tokens",
    "generation_tokens",
    "first_tokens",
    "steps",
    "step_seconds",
    "preemptions",
)


def to_document(baseline: Baseline) -> dict[str, Any]:
    """Return the file's content as dictionaries, numbers and text, the same for YAML and JSON."""
    counts = baseline.counts

    def value(name: str) -> Any:
        if name == "accepted_per_position":
            return [_plain(count) for count in counts.accepted_per_position]
        return _plain(getattr(counts if name in SCALARS else baseline, name))

    return {
        "name": baseline.name,
        "recorded_at": baseline.recorded_at,
        "duration_seconds": _plain(baseline.duration_seconds),
        "interrupted": baseline.interrupted,
        **{name: getattr(baseline.context, name) for name in _CONTEXT},
        **{name: getattr(baseline, name) for name in _FACTS},
        "acceptance": {name: value(name) for name in _ACCEPTANCE} if counts.draft_tokens is not None else None,
        "throughput": {name: value(name) for name in _THROUGHPUT},
        "latency": {
            sli: {
                "count": _plain(histogram.count),
                "sum": _plain(histogram.sum),
                "buckets": {
                    le(bound): _plain(count) for bound, count in zip(histogram.bounds, histogram.counts, strict=True)
                },
            }
            for sli, histogram in baseline.histograms()
        },
        "by_load": {str(each.bound): _load_document(each) for each in baseline.by_load},
    }


def _load_document(found: LoadBin) -> dict[str, Any]:
    """Return a bin with one list per count, which holds a value for each block."""
    columns = {name: [getattr(block.counts, name) for block in found.blocks] for name in BLOCK_COUNTS}
    return {
        "intervals": found.intervals,
        "seconds": [_plain(block.seconds) for block in found.blocks],
        **{name: None if None in values else [_plain(value) for value in values] for name, values in columns.items()},
        "accepted_per_position": [_plain(value) for value in found.accepted_per_position],
    }


_COMMENTS = {
    "interrupted": "true: recording stopped early",
    "model_name": "the served name; the exporter serves this baseline for this model only",
    "acceptance": "increases over the span; null: recorded without speculation",
    "throughput": "increases over the span",
    "latency": "requests of the span at or below each bound in seconds (le), cumulative",
    "by_load": "the span by requests in decode at a time, per engine; each list has a value per block of intervals",
}


def to_yaml(baseline: Baseline) -> str:
    """Return the file's text: a commented header, keys in a fixed order, ``null`` for unknown values."""
    lines = [
        "# A baseline of specdec-exporter: what this predictor did while it was recorded.",
        "# Serve it with `specdec-exporter serve --baseline.file=FILE`; check it after an edit with",
        "# `specdec-exporter baseline check FILE`.",
    ]
    for key, value in to_document(baseline).items():
        comment = _COMMENTS.get(key)
        if key in _CONTEXT and value is None:
            comment = "not given: a comparison of numbers needs it"
        if key in ("hardware", "model_name", "acceptance", "throughput", "latency", "by_load"):
            lines.append("")
        lines += _yaml_lines(key, value, 0, comment)
    return "\n".join(lines) + "\n"


def _yaml_lines(key: str, value: Any, indent: int, comment: str | None = None) -> Iterator[str]:
    tail = f"  # {comment}" if comment else ""
    if isinstance(value, dict) and value:
        yield f"{' ' * indent}{key}:{tail}"
        for name, inner in value.items():
            yield from _yaml_lines(name, inner, indent + 2)
        return
    # Scalars and flat lists in JSON are YAML too.
    yield f"{' ' * indent}{key}: {json.dumps(value, ensure_ascii=False)}{tail}"


def _plain(value: float | None) -> float | None:
    """Return a whole number as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def refuse_to_overwrite(path: str, *, force: bool) -> None:
    """Raise :class:`BaselineError` if ``path`` exists, or if its directory does not."""
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise BaselineError(f"{path}: expected a file in a directory that exists")
    if target.exists() and not force:
        raise BaselineError(f"{path} exists already: choose another name, or overwrite it with --force")


def write_baseline(path: str, baseline: Baseline, *, force: bool = False) -> None:
    """Write the file, all or nothing. Raises :class:`BaselineError`; the recording may then lie beside ``path``."""
    target = Path(path)
    try:
        fd, temporary = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".tmp", dir=target.parent, text=True)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(to_yaml(baseline))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise BaselineError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        refuse_to_overwrite(path, force=force)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except (OSError, BaselineError) as error:
        raise BaselineError(f"{error}; the recording is in {temporary}") from error


# --- Reading ----------------------------------------------------------------------------------------------------------


def read_baseline(path: str) -> Baseline:
    """Read a baseline's file.

    Raises :class:`BaselineError` with file, line, key, the expected and the found value, for an unreadable file,
    unknown keys, wrong types, falling counts, buckets without ``+Inf`` at the end, or a sum that contradicts the
    buckets.
    """
    return _baseline(read_yaml(path, BaselineError))


def parse_baseline(content: bytes, path: str = "baseline") -> Baseline:
    """Read the bytes of a baseline's file as :func:`read_baseline`; errors call it ``path``."""
    return _baseline(parse_yaml(content, path, BaselineError))


def _baseline(document: Node) -> Baseline:
    if not document.given:
        document.fail("a baseline", "nothing")
    top = document.mapping(
        required=("name", "recorded_at", "duration_seconds", "latency"),
        optional=("interrupted", *_CONTEXT, *_FACTS, "acceptance", "throughput", "by_load"),
    )
    histograms = top["latency"].mapping(optional=SLIS)
    if not any(node.given for node in histograms.values()):
        top["latency"].fail(f"at least one of {', '.join(SLIS)}", "none")
    throughput = top["throughput"].mapping(optional=_THROUGHPUT)
    seconds = _number(top["duration_seconds"])
    if not seconds:
        top["duration_seconds"].fail("a duration above 0 seconds", "0")
    return Baseline(
        name=_text(top["name"]),
        recorded_at=_timestamp(top["recorded_at"]),
        duration_seconds=seconds,
        interrupted=top["interrupted"].read(bool | None) or False,
        context=Context(**{name: _if_given(_text, top[name]) for name in _CONTEXT}),
        vllm_version=_if_given(_text, top["vllm_version"]),
        method=_if_given(_text, top["method"]),
        model_name=_if_given(_text, top["model_name"]),
        num_speculative_tokens=_if_given(_positive, top["num_speculative_tokens"]),
        counts=_counts(top["acceptance"], throughput),
        requests_finished=_if_given(_number, throughput["requests_finished"]),
        by_load=_by_load(top["by_load"]),
        **{sli: _if_given(_histogram, node) for sli, node in histograms.items()},
    )


def _if_given(read: Callable[[Node], _T], node: Node) -> _T | None:
    return read(node) if node.given else None


def _text(node: Node) -> str:
    value = node.text()
    if not 0 < len(value) <= MAX_TEXT or not value.isprintable() or not value.strip():
        node.fail(f"1 to {MAX_TEXT} printable characters on one line", repr(value))
    return value


def _timestamp(node: Node) -> str:
    value = node.written()
    moment = None
    with contextlib.suppress(ValueError, OverflowError):
        if _TIMESTAMP.fullmatch(value):
            moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
    if moment is None or moment.year <= _UNSET_CLOCK_YEAR:
        node.fail("a time such as 2026-01-31T12:00:00Z", repr(value))
    return as_utc(moment)


def _number(node: Node) -> float:
    value = node.number()
    if value < 0:
        node.fail("a number of at least 0", f"{value:g}")
    return value


def _positive(node: Node) -> int:
    value = node.whole_number()
    if not 0 < value < 2**31:
        node.fail("a whole number above 0", str(value))
    return value


def _counts(acceptance: Node, throughput: dict[str, Node]) -> Counts:
    nodes = acceptance.mapping(optional=_ACCEPTANCE)
    counts = Counts(
        accepted_per_position=tuple(map(_number, nodes["accepted_per_position"].items())),
        **{name: _if_given(_number, nodes[name]) for name in _ACCEPTANCE if name != "accepted_per_position"},
        **{name: _if_given(_number, throughput[name]) for name in _THROUGHPUT if name in SCALARS},
    )
    drafted, accepted = counts.draft_tokens, counts.accepted_tokens
    if acceptance.given and (drafted is None or accepted is None):
        acceptance.fail("draft_tokens and accepted_tokens, or null", "only a part of them")
    if drafted is not None and accepted is not None and accepted > drafted:
        nodes["accepted_tokens"].fail(f"at most the {drafted:g} draft_tokens", f"{accepted:g}")
    limit = counts.drafts
    for node in nodes["accepted_per_position"].items():
        if limit is None:
            nodes["accepted_per_position"].fail("drafts beside the positions", "none")
        if (count := _number(node)) > limit:
            node.fail(f"at most {limit:g}, the drafts or what the position before accepted", f"{count:g}")
        limit = count
    return counts


def _by_load(node: Node) -> tuple[LoadBin, ...]:
    if not node.given:
        return ()
    found = []
    for name, each in node.entries().items():
        if not name.isdecimal() or name not in map(str, CONCURRENCY_BOUNDS):
            each.fail(f"a bin of {', '.join(map(str, CONCURRENCY_BOUNDS))}", repr(name))
        found.append(_load_bin(int(name), each))
    return tuple(sorted(found, key=lambda each: each.bound))


def _load_bin(bound: int, node: Node) -> LoadBin:
    parts = node.mapping(
        required=("intervals", "seconds", "steps", "step_seconds"), optional=(*BLOCK_COUNTS, "accepted_per_position")
    )
    seconds = parts["seconds"].items()
    if not 0 < len(seconds) <= MAX_BLOCKS:
        parts["seconds"].fail(f"1 to {MAX_BLOCKS} blocks", str(len(seconds)))
    columns: dict[str, Any] = {}
    for name in BLOCK_COUNTS:
        if parts[name].given:
            columns[name] = [_number(item) for item in parts[name].items()]
            if len(columns[name]) != len(seconds):
                parts[name].fail(f"{len(seconds)} values, one per block", str(len(columns[name])))
    blocks = [
        Load(_number(item), Counts(**{name: values[i] for name, values in columns.items()}))
        for i, item in enumerate(seconds)
    ]
    for block, item in zip(blocks, seconds, strict=True):
        if not block.tells_the_cost:
            item.fail("blocks with seconds, steps and step_seconds above 0", "none")
    positions = tuple(_number(item) for item in parts["accepted_per_position"].items())
    return LoadBin(bound, _positive(parts["intervals"]), tuple(blocks), positions)


def _histogram(node: Node) -> Histogram:
    parts = node.mapping(required=("count", "sum", "buckets"))
    bounds: list[float] = []
    counts: list[float] = []
    for name, bucket in parts["buckets"].entries().items():
        bound = math.inf if name == "+Inf" else number_of(name)
        if bound is None or bound <= (bounds[-1] if bounds else 0.0):
            after = f"above {le(bounds[-1])}" if bounds else "above 0"
            bucket.fail(f"a bound in seconds {after}, or +Inf", repr(name))
        count = _number(bucket)
        if counts and count < counts[-1]:
            bucket.fail(f"a cumulative count of at least {counts[-1]:g}", f"{count:g}")
        bounds.append(bound)
        counts.append(count)
    if not bounds or bounds[-1] != math.inf:
        parts["buckets"].fail("+Inf as the last bucket", le(bounds[-1]) if bounds else "no bucket")
    count = _number(parts["count"])
    if count != counts[-1] or not count:
        parts["count"].fail(f"the count of +Inf, {counts[-1]:g}, and at least one request", f"{count:g}")
    histogram = Histogram(bounds=tuple(bounds), counts=tuple(counts), sum=_number(parts["sum"]))
    low, high = sum_bounds(histogram)
    if not low - _SUM_TOLERANCE * low <= histogram.sum <= high + _SUM_TOLERANCE * high:
        parts["sum"].fail(f"{low:g} to {high:g} s, as the buckets allow", f"{histogram.sum:g}")
    return histogram
