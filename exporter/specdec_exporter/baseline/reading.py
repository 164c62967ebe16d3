"""A baseline's file -> :class:`Baseline`, strictly: an error names the key, the expected and the found value.

The structs are the file's schema. They hold what one field says about another; msgspec checks the rest.
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

from specdec_exporter.baseline.file import (
    CONTEXT,
    FACTS,
    LENGTHS,
    MAX_TEXT,
    SLIS,
    Baseline,
    Block,
    Context,
    as_utc,
)
from specdec_exporter.baseline.intervals import MOST_ROWS
from specdec_exporter.errors import BaselineError
from specdec_exporter.histogram import Histogram, le
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.load import CONCURRENCY_BOUNDS, LOAD_COUNTS, Load
from specdec_exporter.yamlfile import convert, number_of, parse_yaml, read_bytes

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)
_UNSET_CLOCK_YEAR = 1970
_SUM_TOLERANCE = 1e-6  # relative; rounding of a sum over millions of floats

Amount = Annotated[float, msgspec.Meta(ge=0)]
Amounts = tuple[Amount, ...]
Number = Annotated[int, msgspec.Meta(gt=0, lt=2**31)]


def read_baseline(path: str) -> Baseline:
    """Read a baseline's file.

    Raises :class:`BaselineError` with file, key, the expected and the found value, for an unreadable file, unknown
    keys, wrong types, falling counts, buckets without ``+Inf`` at the end, or a sum that contradicts the buckets.
    """
    return parse_baseline(read_bytes(path, BaselineError), path)


def parse_baseline(content: bytes, path: str = "baseline") -> Baseline:
    """Read the bytes of a baseline's file as :func:`read_baseline`; errors call it ``path``."""
    document = parse_yaml(content, path, BaselineError)
    if document is None:
        raise BaselineError(f"{path}: expected a baseline, found nothing")
    return convert(document, _File, path, BaselineError).baseline()


def _wrong(key: str, expected: str, found: object) -> ValueError:
    return ValueError(f"{key}: expected {expected}, found {str(found)[:80]}")


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file."""


class _Histogram(_Part, frozen=True, kw_only=True):
    """The requests of the whole recording: at least one."""

    count: Amount
    sum: Amount
    buckets: dict[str, Amount]

    def __post_init__(self) -> None:
        _check_rising(self.buckets)
        found = self.histogram
        if self.count != found.count or not self.count:
            raise _wrong("count", f"the count of +Inf, {found.count:g}, and at least one request", f"{self.count:g}")
        _check_sum(found, "sum")

    @property
    def histogram(self) -> Histogram:
        return Histogram(_bounds(self.buckets), tuple(self.buckets.values()), self.sum)


class _Histograms(_Part, frozen=True, kw_only=True):
    """A histogram for each block of time: lists with a value per block.

    A bucket is left out if no block has a value in it: it then counts as many as the one below.
    """

    sum: Amounts
    buckets: dict[str, Amounts]

    def of_blocks(self, bounds: Sequence[float], blocks: int) -> list[Histogram]:
        """Return a histogram with ``bounds`` for each block; it may be empty. Raises :class:`ValueError`."""
        columns = dict(zip(_bounds(self.buckets), self.buckets.values(), strict=True))
        _check_lengths({"sum": self.sum, **{f"buckets.{name}": each for name, each in self.buckets.items()}}, blocks)
        for bound in columns:
            if bound not in bounds:
                raise _wrong(f"buckets.{le(bound)}", "a bound of the whole recording", le(bound))
        found = []
        for i in range(blocks):
            _check_rising({name: counts[i] for name, counts in self.buckets.items()})
            counts = itertools.accumulate((columns[bound][i] if bound in columns else 0.0 for bound in bounds), max)
            found.append(Histogram(tuple(bounds), tuple(counts), self.sum[i]))
            _check_sum(found[-1], f"sum[{i}]")
        return found


class _Acceptance(_Part, frozen=True, kw_only=True):
    drafts: Amount | None = None
    draft_tokens: Amount | None = None
    accepted_tokens: Amount | None = None
    accepted_per_position: Amounts | None = None

    def __post_init__(self) -> None:
        if self.draft_tokens is None or self.accepted_tokens is None:
            raise ValueError("expected draft_tokens and accepted_tokens, or null, found only a part of them")
        if self.accepted_tokens > self.draft_tokens:
            raise _wrong("accepted_tokens", f"at most the {self.draft_tokens:g} draft_tokens", self.accepted_tokens)
        limit = self.drafts
        for i, count in enumerate(self.accepted_per_position or ()):
            if limit is None:
                raise _wrong("accepted_per_position", "drafts beside the positions", "none")
            if count > limit:
                expected = f"at most {limit:g}, the drafts or what the position before accepted"
                raise _wrong(f"accepted_per_position[{i}]", expected, f"{count:g}")
            limit = count


class _Throughput(_Part, frozen=True, kw_only=True):
    requests_finished: Amount | None = None
    prompt_tokens: Amount | None = None
    cached_prompt_tokens: Amount | None = None
    generation_tokens: Amount | None = None
    first_tokens: Amount | None = None
    steps: Amount | None = None
    step_seconds: Amount | None = None
    preemptions: Amount | None = None


class _Latency(_Part, frozen=True, kw_only=True):
    time_to_first_token_seconds: _Histogram | None = None
    time_per_output_token_seconds: _Histogram | None = None
    request_latency_seconds: _Histogram | None = None

    def __post_init__(self) -> None:
        if not any(getattr(self, sli) for sli in SLIS):
            raise ValueError(f"expected at least one of {', '.join(SLIS)}, found none")


class _Lengths(_Part, frozen=True, kw_only=True):
    prompt_length: _Histogram | None = None
    generation_length: _Histogram | None = None


class _Columns(_Part, frozen=True, kw_only=True):
    """One list per figure, with a value for each part of the recording. A figure that not all parts know is null."""

    seconds: Amounts = ()
    drafts: Amounts | None = None
    draft_tokens: Amounts | None = None
    accepted_tokens: Amounts | None = None
    prompt_tokens: Amounts | None = None
    cached_prompt_tokens: Amounts | None = None
    generation_tokens: Amounts | None = None
    first_tokens: Amounts | None = None
    steps: Amounts | None = None
    step_seconds: Amounts | None = None
    preemptions: Amounts | None = None

    def __post_init__(self) -> None:
        self.loads()

    def loads(self) -> tuple[Load, ...]:
        """Return seconds and counts of each part. Raises :class:`ValueError`."""
        parts = len(self.seconds)
        columns: dict[str, Any] = {name: each for name in LOAD_COUNTS if (each := getattr(self, name)) is not None}
        if parts > MOST_ROWS:
            raise _wrong("seconds", f"at most {MOST_ROWS} values", parts)
        if 0.0 in self.seconds:
            raise _wrong(f"seconds[{self.seconds.index(0.0)}]", "a time above 0 seconds", 0)
        _check_lengths(columns, parts)
        counts = (Counts(**{name: values[i] for name, values in columns.items()}) for i in range(parts))
        return tuple(map(Load, self.seconds, counts))


class _Intervals(_Columns, frozen=True, kw_only=True):
    """``ends``: seconds from the beginning of the recording to the end of each interval."""

    ends: Amounts | None = None

    def loads(self) -> tuple[Load, ...]:
        loads, ends = super().loads(), self.ends
        if ends is None:
            return loads
        _check_lengths({"ends": ends}, len(loads))
        for i, (before, end) in enumerate(itertools.pairwise(ends), start=1):
            if end < before:
                raise _wrong(f"ends[{i}]", f"at least {before:g}, in the order of time", f"{end:g}")
        return tuple(msgspec.structs.replace(load, ends=end) for load, end in zip(loads, ends, strict=True))


class _Bin(_Columns, frozen=True, kw_only=True):
    """Intervals of version 0.1, which sorted them by load and summed them."""

    intervals: Number
    accepted_per_position: Amounts | None = None


class _Blocks(_Columns, frozen=True, kw_only=True):
    time_to_first_token_seconds: _Histograms | None = None
    time_per_output_token_seconds: _Histograms | None = None
    request_latency_seconds: _Histograms | None = None
    # Of version 0.1; the counts tell the first one too.
    mean_prompt_tokens: tuple[Amount | None, ...] | None = None
    mean_context_tokens: tuple[Amount | None, ...] | None = None

    def blocks(self, latency: _Latency) -> tuple[Block, ...]:
        """Return the blocks of a recording with this ``latency``. Raises :class:`ValueError`."""
        loads = self.loads()
        columns: dict[str, Sequence[Any]] = {}
        for sli in SLIS:
            whole: _Histogram | None = getattr(latency, sli)
            parts: _Histograms | None = getattr(self, sli)
            if parts is not None and whole is None:
                raise _wrong(sli, f"none, as in latency.{sli}", "some")
            if parts is not None and whole is not None:
                with _below(sli):
                    columns[sli] = parts.of_blocks(whole.histogram.bounds, len(loads))
        return tuple(
            Block(seconds=load.seconds, counts=load.counts, **{name: each[i] for name, each in columns.items()})
            for i, load in enumerate(loads)
        )


class _File(_Part, frozen=True, kw_only=True):
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
    vllm_version: str | None = None
    method: str | None = None
    num_speculative_tokens: Number | None = None
    acceptance: _Acceptance | None = None
    throughput: _Throughput | None = None
    latency: _Latency
    lengths: _Lengths | None = None
    intervals: _Intervals | None = None
    by_load: dict[str, _Bin] | None = None  # of version 0.1, instead of intervals
    blocks: _Blocks | None = None

    def __post_init__(self) -> None:
        for key in ("name", *CONTEXT, *FACTS):
            value = getattr(self, key)
            if isinstance(value, str) and not (value.strip() and len(value) <= MAX_TEXT and value.isprintable()):
                raise _wrong(key, f"1 to {MAX_TEXT} printable characters on one line", repr(value))
        if not self.duration_seconds:
            raise _wrong("duration_seconds", "a duration above 0 seconds", 0)
        for name in self.by_load or ():
            if name not in map(str, CONCURRENCY_BOUNDS):
                raise _wrong(f"by_load.{name}", f"a bin of {', '.join(map(str, CONCURRENCY_BOUNDS))}", repr(name))
        _moment(self.recorded_at)
        with _below("blocks"):
            self.blocks_of_time()

    def blocks_of_time(self) -> tuple[Block, ...]:
        return self.blocks.blocks(self.latency) if self.blocks is not None else ()

    def all_intervals(self) -> tuple[Load, ...]:
        """Return the intervals; those of version 0.1 by ascending load."""
        if self.intervals is not None:
            return self.intervals.loads()
        bins = sorted((self.by_load or {}).items(), key=lambda item: int(item[0]))
        return tuple(load for _, each in bins for load in each.loads())

    def baseline(self) -> Baseline:
        """Return what the file says."""
        counts, requests_finished = self._counts()
        found = {sli: getattr(self.latency, sli) for sli in SLIS}
        found |= {name: getattr(self.lengths, name, None) for name in LENGTHS}
        return Baseline(
            name=self.name,
            recorded_at=as_utc(_moment(self.recorded_at)),
            duration_seconds=self.duration_seconds,
            interrupted=self.interrupted or False,
            context=Context(**{name: getattr(self, name) for name in CONTEXT}),
            **{name: getattr(self, name) for name in FACTS},
            counts=counts,
            requests_finished=requests_finished,
            intervals=self.all_intervals(),
            old=self.intervals is None,
            blocks=self.blocks_of_time(),
            **{name: part and part.histogram for name, part in found.items()},
        )

    def _counts(self) -> tuple[Counts, float | None]:
        """Return the counts of the whole recording, and its finished requests."""
        parts = [part for part in (self.acceptance, self.throughput) if part is not None]
        counts: dict[str, Any] = {name: value for part in parts for name, value in msgspec.structs.asdict(part).items()}
        requests_finished = counts.pop("requests_finished", None)
        counts["accepted_per_position"] = counts.get("accepted_per_position") or ()
        return Counts(**counts), requests_finished


def _moment(text: str) -> datetime:
    moment = None
    with contextlib.suppress(ValueError, OverflowError):
        if _TIMESTAMP.fullmatch(text):
            moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
    if moment is None or moment.year <= _UNSET_CLOCK_YEAR:
        raise _wrong("recorded_at", "a time such as 2026-01-31T12:00:00Z", repr(text))
    return moment


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


def _check_sum(found: Histogram, key: str) -> None:
    low, high = found.sum_bounds()
    if not low - _SUM_TOLERANCE * low <= found.sum <= high + _SUM_TOLERANCE * high:
        raise _wrong(key, f"{low:g} to {high:g}, as the buckets allow", f"{found.sum:g}")


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
