"""The schema of a baseline's file, for writing and for reading.

The structs are the file's mappings; their keys have the file's order. Each is made ``of`` a part of a baseline, and
gives that part back, or a ValueError that begins with the key: what was expected and what was found. msgspec has
checked types and signs before.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from specdec_exporter.baseline.file import LENGTHS, MAX_TEXT, SLIS, Baseline, Block, Context, as_utc
from specdec_exporter.baseline.intervals import MOST_ROWS
from specdec_exporter.histogram import Histogram, le
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.load import LOAD_COUNTS, Load
from specdec_exporter.yamlfile import number_of

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)
_UNSET_CLOCK_YEAR = 1970
_SUM_TOLERANCE = 1e-6  # relative; rounding of a sum over millions of floats

CONTEXT = tuple(Context.__struct_fields__)
FACTS = ("model_name", "inference_engine", "vllm_version", "method", "draft_model", "num_speculative_tokens")

Amount = Annotated[float, msgspec.Meta(ge=0)]
Amounts = tuple[Amount, ...]
Number = Annotated[int, msgspec.Meta(gt=0, lt=2**31)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file."""


# --- Histograms -------------------------------------------------------------------------------------------------------


class _Histogram(_Part, frozen=True, kw_only=True):
    """The requests of the whole recording: at least one."""

    count: Amount
    sum: Amount
    buckets: dict[str, Amount]

    @classmethod
    def of(cls, histogram: Histogram) -> _Histogram:
        return cls(count=histogram.count, sum=histogram.sum, buckets=dict(histogram.buckets()))

    def histogram(self) -> Histogram:
        _check_rising(self.buckets)
        histogram = Histogram(_bounds(self.buckets), tuple(self.buckets.values()), self.sum)
        if self.count != histogram.count or not self.count:
            expected = f"the count of +Inf, {histogram.count:g}, and at least one request"
            raise _wrong("count", expected, f"{self.count:g}")
        _check_sum(histogram, "sum")
        return histogram


class _Histograms(_Part, frozen=True, kw_only=True):
    """A histogram for each block of time: lists with a value per block.

    A bucket is left out if no block has a value in it: it then counts as many as the one below.
    """

    sum: Amounts
    buckets: dict[str, Amounts]

    @classmethod
    def of(cls, histograms: Sequence[Histogram]) -> _Histograms:
        return cls(sum=tuple(histogram.sum for histogram in histograms), buckets=dict(_bucket_columns(histograms)))

    def histograms(self, bounds: Sequence[float], blocks: int) -> list[Histogram]:
        """Return a histogram with ``bounds`` for each block; it may be empty."""
        columns = dict(zip(_bounds(self.buckets), self.buckets.values(), strict=True))
        _check_lengths({"sum": self.sum}, blocks)
        _check_lengths({f"buckets.{name}": counts for name, counts in self.buckets.items()}, blocks)
        for bound in columns:
            if bound not in bounds:
                raise _wrong(f"buckets.{le(bound)}", "a bound of the whole recording", le(bound))
        histograms = []
        for i in range(blocks):
            _check_rising({name: counts[i] for name, counts in self.buckets.items()})
            counts = itertools.accumulate((columns[bound][i] if bound in columns else 0.0 for bound in bounds), max)
            histograms.append(Histogram(tuple(bounds), tuple(counts), self.sum[i]))
            _check_sum(histograms[-1], f"sum[{i}]")
        return histograms


def _bucket_columns(histograms: Sequence[Histogram]) -> Iterator[tuple[str, Amounts]]:
    """Yield the buckets with a value in any block, and the last one."""
    below = (0.0,) * len(histograms)
    for i, bound in enumerate(histograms[0].bounds):
        counts = tuple(histogram.counts[i] for histogram in histograms)
        if counts != below or i == len(histograms[0].bounds) - 1:
            yield le(bound), counts
        below = counts


def _bounds(buckets: Iterable[str]) -> tuple[float, ...]:
    """Return the bounds of buckets by their names; they ascend to ``+Inf``."""
    bounds = []
    last = 0.0
    for name in buckets:
        bound = math.inf if name == "+Inf" else number_of(name)
        if bound is None or bound <= last:
            raise _wrong(f"buckets.{name}", f"a bound above {le(last) if last else 0}, or +Inf", repr(name))
        bounds.append(bound)
        last = bound
    if last != math.inf:
        raise _wrong("buckets", "+Inf as the last bucket", le(last) if last else "no bucket")
    return tuple(bounds)


def _check_rising(buckets: Mapping[str, float]) -> None:
    for (_, before), (name, count) in itertools.pairwise(buckets.items()):
        if count < before:
            raise _wrong(f"buckets.{name}", f"a cumulative count of at least {before:g}", f"{count:g}")


def _check_sum(histogram: Histogram, key: str) -> None:
    low, high = histogram.sum_bounds()
    if not low - _SUM_TOLERANCE * low <= histogram.sum <= high + _SUM_TOLERANCE * high:
        raise _wrong(key, f"{low:g} to {high:g}, as the buckets allow", f"{histogram.sum:g}")


class _Latency(_Part, frozen=True, kw_only=True, omit_defaults=True):
    time_to_first_token_seconds: _Histogram | None = None
    time_per_output_token_seconds: _Histogram | None = None
    request_latency_seconds: _Histogram | None = None


class _Lengths(_Part, frozen=True, kw_only=True, omit_defaults=True):
    prompt_length: _Histogram | None = None
    generation_length: _Histogram | None = None


def _histograms(key: str, parts: _Latency | _Lengths | None) -> dict[str, Histogram]:
    """Return the histograms below a key by their names."""
    histograms = {}
    for name in parts.__struct_fields__ if parts is not None else ():
        if (part := getattr(parts, name)) is not None:
            with _below(key), _below(name):
                histograms[name] = part.histogram()
    return histograms


class _Acceptance(_Part, frozen=True, kw_only=True):
    drafts: Amount | None = None
    draft_tokens: Amount | None = None
    accepted_tokens: Amount | None = None
    accepted_per_position: Amounts | None = None

    def check(self) -> None:
        if self.draft_tokens is None or self.accepted_tokens is None:
            raise ValueError(
                "acceptance: expected draft_tokens and accepted_tokens, or null, found only a part of them"
            )
        with _below("acceptance"):
            if self.accepted_tokens > self.draft_tokens:
                raise _wrong("accepted_tokens", f"at most the {self.draft_tokens:g} draft_tokens", self.accepted_tokens)
            if self.accepted_per_position and self.drafts is None:
                raise _wrong("accepted_per_position", "drafts beside the positions", "none")
            limits = (self.drafts or 0.0, *(self.accepted_per_position or ()))
            for i, (limit, count) in enumerate(itertools.pairwise(limits)):
                if count > limit:
                    expected = f"at most {limit:g}, the drafts or what the position before accepted"
                    raise _wrong(f"accepted_per_position[{i}]", expected, f"{count:g}")


class _Throughput(_Part, frozen=True, kw_only=True):
    requests_finished: Amount | None = None
    prompt_tokens: Amount | None = None
    cached_prompt_tokens: Amount | None = None
    generation_tokens: Amount | None = None
    first_tokens: Amount | None = None
    steps: Amount | None = None
    step_seconds: Amount | None = None
    preemptions: Amount | None = None


class _Columns(_Part, frozen=True, kw_only=True):
    """One list per figure, with a value for each part of the recording. A figure that not all parts know is null."""

    seconds: Amounts = ()
    steps: Amounts | None = None
    step_seconds: Amounts | None = None
    generation_tokens: Amounts | None = None
    first_tokens: Amounts | None = None
    prompt_tokens: Amounts | None = None
    cached_prompt_tokens: Amounts | None = None
    drafts: Amounts | None = None
    draft_tokens: Amounts | None = None
    accepted_tokens: Amounts | None = None
    preemptions: Amounts | None = None

    def counts(self) -> list[Counts]:
        parts = len(self.seconds)
        columns = {name: values for name in LOAD_COUNTS if (values := getattr(self, name)) is not None}
        if parts > MOST_ROWS:
            raise _wrong("seconds", f"at most {MOST_ROWS} values", parts)
        if 0.0 in self.seconds:
            raise _wrong(f"seconds[{self.seconds.index(0.0)}]", "a time above 0 seconds", 0)
        _check_lengths(columns, parts)
        return [Counts(**{name: values[i] for name, values in columns.items()}) for i in range(parts)]


def _columns(parts: Sequence[Block | Load]) -> dict[str, Any]:
    """Return seconds and counts as lists; ``None`` for a count that a part does not know."""
    columns = {name: tuple(getattr(part.counts, name) for part in parts) for name in LOAD_COUNTS}
    known = {name: None if None in values else values for name, values in columns.items()}
    return {"seconds": tuple(part.seconds for part in parts), **known}


class _Intervals(_Columns, frozen=True, kw_only=True):
    """``ends``: seconds from the beginning of the recording to the end of each interval."""

    ends: Amounts | None = None

    @classmethod
    def of(cls, loads: Sequence[Load]) -> _Intervals:
        ends = tuple(load.ends for load in loads if load.ends is not None)
        return cls(ends=ends if len(ends) == len(loads) else None, **_columns(loads))

    def loads(self) -> tuple[Load, ...]:
        counts, ends = self.counts(), self.ends
        if ends is None:
            return tuple(map(Load, self.seconds, counts))
        _check_lengths({"ends": ends}, len(counts))
        for i, (before, end) in enumerate(itertools.pairwise(ends), start=1):
            if end < before:
                raise _wrong(f"ends[{i}]", f"at least {before:g}, in the order of time", f"{end:g}")
        return tuple(map(Load, self.seconds, counts, ends))


class _Blocks(_Columns, frozen=True, kw_only=True):
    """The recorded latencies come with the counts."""

    time_to_first_token_seconds: _Histograms | msgspec.UnsetType | None = msgspec.UNSET
    time_per_output_token_seconds: _Histograms | msgspec.UnsetType | None = msgspec.UNSET
    request_latency_seconds: _Histograms | msgspec.UnsetType | None = msgspec.UNSET

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> _Blocks:
        """Return blocks as the file has them; a latency is there if all of them have it."""
        columns: dict[str, Any] = _columns(blocks)
        for sli in SLIS:
            histograms = [histogram for block in blocks if (histogram := getattr(block, sli)) is not None]
            if len(histograms) == len(blocks):
                columns[sli] = _Histograms.of(histograms)
        return cls(**columns)

    def blocks(self, whole: Mapping[str, Histogram]) -> tuple[Block, ...]:
        """Return the blocks of a recording with these latencies."""
        counts = self.counts()
        columns: dict[str, Sequence[Histogram]] = {}
        for sli in SLIS:
            if not (parts := getattr(self, sli)):  # null or unset
                continue
            if sli not in whole:
                raise _wrong(sli, f"none, as in latency.{sli}", "some")
            with _below(sli):
                columns[sli] = parts.histograms(whole[sli].bounds, len(counts))
        return tuple(
            Block(seconds=seconds, counts=counts[i], **{sli: histograms[i] for sli, histograms in columns.items()})
            for i, seconds in enumerate(self.seconds)
        )


# --- The whole file ---------------------------------------------------------------------------------------------------


class File(_Part, frozen=True, kw_only=True):
    """The whole file."""

    name: str
    recorded_at: str
    duration_seconds: Amount
    interrupted: bool | None = None
    hardware: str | None = None
    model: str | None = None
    runtime: str | None = None
    request_parameters: str | None = None
    command: str | None = None
    model_name: str | None = None
    inference_engine: str | None = None
    vllm_version: str | None = None
    method: str | None = None
    draft_model: str | None = None
    num_speculative_tokens: Number | None = None
    acceptance: _Acceptance | None = None
    throughput: _Throughput | None = None
    latency: _Latency
    lengths: _Lengths | None = None
    intervals: _Intervals | None = None
    blocks: _Blocks | None = None

    @classmethod
    def of(cls, baseline: Baseline) -> File:
        """Return what the file says of a baseline."""
        counts = baseline.counts
        counted = {"requests_finished": baseline.requests_finished}
        counted |= {name: getattr(counts, name) for name in _Throughput.__struct_fields__ if name not in counted}
        drafted: dict[str, Any] = {name: getattr(counts, name) for name in _Acceptance.__struct_fields__}
        lengths = {name: getattr(baseline, name) for name in LENGTHS if getattr(baseline, name) is not None}
        return cls(
            name=baseline.name,
            recorded_at=baseline.recorded_at,
            duration_seconds=baseline.duration_seconds,
            interrupted=baseline.interrupted,
            **msgspec.structs.asdict(baseline.context),
            **{name: getattr(baseline, name) for name in FACTS},
            acceptance=_Acceptance(**drafted) if counts.draft_tokens is not None else None,
            throughput=_Throughput(**counted),
            latency=_Latency(**{sli: _Histogram.of(histogram) for sli, histogram in baseline.histograms()}),
            lengths=_Lengths(**{name: _Histogram.of(histogram) for name, histogram in lengths.items()}),
            intervals=_Intervals.of(baseline.intervals) if baseline.intervals else None,
            blocks=_Blocks.of(baseline.blocks) if baseline.blocks else None,
        )

    def baseline(self) -> Baseline:
        """Return the baseline."""
        self._check_texts()
        if not self.duration_seconds:
            raise _wrong("duration_seconds", "a duration above 0 seconds", 0)
        counts = self._counts()
        latency: dict[str, Any] = _histograms("latency", self.latency)
        if not latency:
            raise ValueError(f"latency: expected at least one of {', '.join(SLIS)}, found none")
        lengths: dict[str, Any] = _histograms("lengths", self.lengths)
        with _below("intervals"):
            intervals = self.intervals.loads() if self.intervals is not None else ()
        with _below("blocks"):
            blocks = self.blocks.blocks(latency) if self.blocks is not None else ()
        return Baseline(
            name=self.name,
            recorded_at=as_utc(_moment(self.recorded_at)),
            duration_seconds=self.duration_seconds,
            interrupted=self.interrupted or False,
            context=Context(**{name: getattr(self, name) for name in CONTEXT}),
            **{name: getattr(self, name) for name in FACTS},
            counts=counts,
            requests_finished=self.throughput.requests_finished if self.throughput is not None else None,
            intervals=intervals,
            blocks=blocks,
            **latency,
            **lengths,
        )

    def _check_texts(self) -> None:
        for key in ("name", *CONTEXT, *FACTS):
            value = getattr(self, key)
            if isinstance(value, str) and not (value.strip() and len(value) <= MAX_TEXT and value.isprintable()):
                raise _wrong(key, f"1 to {MAX_TEXT} printable characters on one line", repr(value))

    def _counts(self) -> Counts:
        counts: dict[str, Any] = msgspec.structs.asdict(self.throughput) if self.throughput is not None else {}
        counts.pop("requests_finished", None)
        if self.acceptance is not None:
            self.acceptance.check()
            counts |= msgspec.structs.asdict(self.acceptance)
        return Counts(**counts | {"accepted_per_position": counts.get("accepted_per_position") or ()})


def _moment(text: str) -> datetime:
    moment = None
    with contextlib.suppress(ValueError, OverflowError):
        if _TIMESTAMP.fullmatch(text):
            moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
    if moment is None or moment.year <= _UNSET_CLOCK_YEAR:
        raise _wrong("recorded_at", "a time such as 2026-01-31T12:00:00Z", repr(text))
    return moment


def _wrong(key: str, expected: str, told: object) -> ValueError:
    return ValueError(f"{key}: expected {expected}, found {str(told)[:80]}")


def _check_lengths(columns: Mapping[str, Sequence[float]], parts: int) -> None:
    for key, values in columns.items():
        if len(values) != parts:
            raise _wrong(key, f"{parts} values, as many as seconds", len(values))


@contextlib.contextmanager
def _below(key: str) -> Iterator[None]:
    """Put ``key`` before the key that an error begins with."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from error
