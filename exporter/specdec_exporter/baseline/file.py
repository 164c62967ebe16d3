"""A baseline: what one predictor did over a span of time, under which conditions, and the YAML file for it.

Counts are increases over the span, times seconds. ``None`` means not known, not given, or not exposed by the predictor.
:mod:`.reading` reads the file.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from specdec_exporter.errors import BaselineError
from specdec_exporter.histogram import Histogram, le
from specdec_exporter.predictor.speculativeconfig import Server, deployment_of
from specdec_exporter.speculation.acceptance import SCALARS, Counts, ratio
from specdec_exporter.speculation.load import LOAD_COUNTS, Load

# The service level indicators of a baseline: field of a baseline -> field of a snapshot.
HISTOGRAMS = {
    "time_to_first_token_seconds": "time_to_first_token",
    "time_per_output_token_seconds": "time_per_output_token",
    "request_latency_seconds": "request_latency",
}
SLIS = tuple(HISTOGRAMS)
# Tokens per finished request: fields of a baseline and of a snapshot.
LENGTHS = ("prompt_length", "generation_length")
# All histograms: field of a baseline -> field of a snapshot.
RECORDED = {**HISTOGRAMS, **{name: name for name in LENGTHS}}

MAX_TEXT = 4096
MAX_BLOCKS = 24  # of a recording; a long one has 13 or more


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

    def __add__(self, other: Block) -> Block:
        """Sum of two neighbours; keep a figure that only one of them knows."""
        pairs = {sli: (getattr(self, sli), getattr(other, sli)) for sli in SLIS}
        return Block(
            seconds=self.seconds + other.seconds,
            counts=self.counts + other.counts,
            **{sli: one or two if one is None or two is None else one + two for sli, (one, two) in pairs.items()},
        )


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """One recording. The histograms hold the requests of the span: cumulative counts, sum in seconds.

    ``recorded_at`` is the end of the span, RFC 3339 in UTC. ``model_name`` is the served name in the predictor's
    metrics. Without speculation ``counts`` has no drafts. ``intervals`` are short parts of the span, each of one
    engine, in the order of their ends; those of one moment lie next to each other. They tell step time and load, and
    are empty for V0 engines. ``blocks`` are few long parts that add up to the span; they tell how far chance moved
    latencies. ``prompt_length`` and ``generation_length`` are the tokens per request. ``interrupted``: recording
    stopped early. ``old``: of a file of version 0.1, which had sums by load, not in the order of time, for intervals.
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
    intervals: tuple[Load, ...] = ()
    blocks: tuple[Block, ...] = ()
    prompt_length: Histogram | None = None
    generation_length: Histogram | None = None
    interrupted: bool = False
    old: bool = False

    @property
    def recorded_timestamp(self) -> float:
        """``recorded_at`` as Unix time."""
        return datetime.fromisoformat(self.recorded_at).timestamp()

    @property
    def speculates(self) -> bool:
        """Whether anything was drafted."""
        return bool(self.counts.draft_tokens or self.counts.drafts)

    @property
    def k(self) -> int | None:
        """The number of speculative tokens; if not recorded, the number of positions."""
        return self.num_speculative_tokens or len(self.counts.accepted_per_position) or None

    @property
    def server(self) -> Server:
        """What is known of the server's ``--speculative-config``."""
        return Server(self.context.command, self.method, self.k)

    @property
    def adaptive_verification(self) -> bool:
        """Whether its command made vLLM verify only part of each draft: it counts all of it as drafted."""
        return bool(deployment_of(self.context.command).adaptive_verification)

    @property
    def mean_prompt_tokens(self) -> float | None:
        """Mean prompt tokens of a request: as a running predictor's counters tell it, else of the finished requests."""
        found = ratio(self.counts.prompt_tokens, self.counts.first_tokens)
        return found or (ratio(self.prompt_length.sum, self.prompt_length.count) if self.prompt_length else None)

    def histograms(self) -> Iterator[tuple[str, Histogram]]:
        """Yield each recorded SLI and its histogram."""
        for sli in SLIS:
            if (histogram := getattr(self, sli)) is not None:
                yield sli, histogram


def as_utc(moment: datetime) -> str:
    """Return ``moment`` as RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- Writing ----------------------------------------------------------------------------------------------------------

CONTEXT = tuple(Context.__struct_fields__)
FACTS = ("model_name", "vllm_version", "method", "num_speculative_tokens")
_ACCEPTANCE = ("drafts", "draft_tokens", "accepted_tokens", "accepted_per_position")
_THROUGHPUT = (
    "requests_finished",
    "prompt_tokens",
    "cached_prompt_tokens",
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
        **{name: getattr(baseline.context, name) for name in CONTEXT},
        **{name: getattr(baseline, name) for name in FACTS},
        "acceptance": {name: value(name) for name in _ACCEPTANCE} if counts.draft_tokens is not None else None,
        "throughput": {name: value(name) for name in _THROUGHPUT},
        "latency": {sli: _histogram_document(histogram) for sli, histogram in baseline.histograms()},
        "lengths": {
            name: _histogram_document(found) for name in LENGTHS if (found := getattr(baseline, name)) is not None
        },
        "intervals": _intervals_document(baseline.intervals),
        "blocks": _blocks_document(baseline.blocks),
    }


def _histogram_document(found: Histogram) -> dict[str, Any]:
    buckets = {le(bound): _plain(count) for bound, count in zip(found.bounds, found.counts, strict=True)}
    return {"count": _plain(found.count), "sum": _plain(found.sum), "buckets": buckets}


def _blocks_document(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return one list per figure, which holds a value for each block."""
    document = _columns(blocks)
    for sli in SLIS:
        found = [each for block in blocks if (each := getattr(block, sli)) is not None]
        if found and len(found) == len(blocks):
            document[sli] = {"sum": [_plain(each.sum) for each in found], "buckets": dict(_bucket_columns(found))}
    return document


def _bucket_columns(found: Sequence[Histogram]) -> Iterator[tuple[str, list[float | None]]]:
    """Yield the buckets with a value in any block, and the last one."""
    below: list[float] = [0.0] * len(found)
    for i, bound in enumerate(found[0].bounds):
        counts = [each.counts[i] for each in found]
        if counts != below or i == len(found[0].bounds) - 1:
            yield le(bound), list(map(_plain, counts))
        below = counts


def _intervals_document(intervals: Sequence[Load]) -> dict[str, Any]:
    """Return one list per figure, which holds a value for each interval of an engine."""
    if not intervals:
        return {}
    ends = [load.ends for load in intervals]
    return {"ends": None if None in ends else [_plain(each) for each in ends], **_columns(intervals)}


def _columns(parts: Sequence[Block | Load]) -> dict[str, Any]:
    """Return the seconds and one list per count; ``None`` where a part does not know the count."""
    if not parts:
        return {}
    columns = {name: [getattr(part.counts, name) for part in parts] for name in LOAD_COUNTS}
    return {
        "seconds": [_plain(part.seconds) for part in parts],
        **{name: None if None in values else [_plain(value) for value in values] for name, values in columns.items()},
    }


_COMMENTS = {
    "interrupted": "true: recording stopped early",
    "model_name": "the served name; the exporter serves this baseline for this model only",
    "acceptance": "increases over the span; null: recorded without speculation",
    "throughput": "increases over the span",
    "latency": "requests of the span at or below each bound in seconds (le), cumulative",
    "lengths": "tokens per finished request, cumulative by upper bound",
    "intervals": "step time and load of short parts, each of one engine, in the order of time; a value per part",
    "blocks": "the whole span in a few parts, in the order of time, for chance; a value per block",
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
        if key in CONTEXT and value is None:
            comment = "not given: a comparison of numbers needs it"
        if key in ("hardware", "model_name", "acceptance", "throughput", "latency", "lengths", "intervals", "blocks"):
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


def refuse_to_overwrite(path: str) -> None:
    """Raise :class:`BaselineError` if ``path`` exists, or if its directory does not."""
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise BaselineError(f"{path}: expected a file in a directory that exists")
    if target.exists():
        raise BaselineError(f"{path} exists already: choose another name, or remove it first")


def write_baseline(path: str, baseline: Baseline) -> None:
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
        refuse_to_overwrite(path)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except (OSError, BaselineError) as error:
        raise BaselineError(f"{error}; the recording is in {temporary}") from error
