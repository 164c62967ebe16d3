"""A baseline: what one predictor did over a span of time, under which conditions, and the YAML file for it.

Counts are increases over the span, times seconds. ``None`` means not known, not given, or not exposed by the predictor.
Reading is strict: every error names line and key.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from specdec_exporter.baseline.values import column, histogram, histograms, number, positive
from specdec_exporter.errors import BaselineError
from specdec_exporter.histogram import Histogram, le
from specdec_exporter.speculation.acceptance import SCALARS, Counts
from specdec_exporter.speculation.load import BLOCK_COUNTS, CONCURRENCY_BOUNDS, Load, LoadBin
from specdec_exporter.yamlfile import Node, parse_yaml, read_yaml

# The service level indicators of a baseline: field of a baseline -> field of a snapshot.
HISTOGRAMS = {
    "time_to_first_token_seconds": "time_to_first_token",
    "time_per_output_token_seconds": "time_per_output_token",
    "request_latency_seconds": "request_latency",
}
SLIS = tuple(HISTOGRAMS)
# Tokens per finished request: fields of a baseline and of a snapshot.
LENGTHS = ("prompt_length", "generation_length")

MAX_TEXT = 4096
_MOST_BLOCKS = 1000  # in a file; a recording has 24 at most
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)
_UNSET_CLOCK_YEAR = 1970

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
    metrics. Without speculation ``counts`` has no drafts. ``by_load`` has the polling intervals of the span by
    concurrency; it is empty for V0 engines. ``blocks`` has the same intervals in the order of time, and
    ``prompt_length`` and ``generation_length`` are the tokens per request; empty and ``None`` in recordings that have
    none. ``interrupted``: recording stopped early.
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
# The counts of the blocks of time.
_COUNTS_OF_TIME = tuple(name for name in (*_ACCEPTANCE, *_THROUGHPUT) if name in SCALARS)


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
        "latency": {sli: _histogram_document(histogram) for sli, histogram in baseline.histograms()},
        "lengths": {
            name: _histogram_document(found) for name in LENGTHS if (found := getattr(baseline, name)) is not None
        },
        "by_load": {str(each.bound): _load_document(each) for each in baseline.by_load},
        "blocks": _blocks_document(baseline.blocks),
    }


def _histogram_document(found: Histogram) -> dict[str, Any]:
    buckets = {le(bound): _plain(count) for bound, count in zip(found.bounds, found.counts, strict=True)}
    return {"count": _plain(found.count), "sum": _plain(found.sum), "buckets": buckets}


def _blocks_document(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return one list per figure, which holds a value for each block."""
    if not blocks:
        return {}
    document: dict[str, Any] = _columns(blocks, _COUNTS_OF_TIME)
    for sli in SLIS:
        found = [each for block in blocks if (each := getattr(block, sli)) is not None]
        if len(found) == len(blocks):
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


def _load_document(found: LoadBin) -> dict[str, Any]:
    return {
        "intervals": found.intervals,
        **_columns(found.blocks, BLOCK_COUNTS),
        "accepted_per_position": [_plain(value) for value in found.accepted_per_position],
    }


def _columns(blocks: Sequence[Block | Load], names: Sequence[str]) -> dict[str, Any]:
    """Return the seconds and one list per count; ``None`` where a block does not know the count."""
    columns = {name: [getattr(block.counts, name) for block in blocks] for name in names}
    return {
        "seconds": [_plain(block.seconds) for block in blocks],
        **{name: None if None in values else [_plain(value) for value in values] for name, values in columns.items()},
    }


_COMMENTS = {
    "interrupted": "true: recording stopped early",
    "model_name": "the served name; the exporter serves this baseline for this model only",
    "acceptance": "increases over the span; null: recorded without speculation",
    "throughput": "increases over the span",
    "latency": "requests of the span at or below each bound in seconds (le), cumulative",
    "lengths": "tokens per finished request, cumulative by upper bound",
    "by_load": "the span by requests in decode at a time, per engine; each list has a value per block of intervals",
    "blocks": "the span in the order of time; each list has a value per block",
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
        if key in ("hardware", "model_name", "acceptance", "throughput", "latency", "lengths", "by_load", "blocks"):
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
        optional=("interrupted", *_CONTEXT, *_FACTS, "acceptance", "throughput", "lengths", "by_load", "blocks"),
    )
    latency = {sli: _if_given(histogram, node) for sli, node in top["latency"].mapping(optional=SLIS).items()}
    if not any(latency.values()):
        top["latency"].fail(f"at least one of {', '.join(SLIS)}", "none")
    lengths = top["lengths"].mapping(optional=LENGTHS)
    throughput = top["throughput"].mapping(optional=_THROUGHPUT)
    seconds = number(top["duration_seconds"])
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
        num_speculative_tokens=_if_given(positive, top["num_speculative_tokens"]),
        counts=_counts(top["acceptance"], throughput),
        requests_finished=_if_given(number, throughput["requests_finished"]),
        blocks=_blocks(top["blocks"], latency),
        by_load=_by_load(top["by_load"]),
        **latency,
        **{name: _if_given(histogram, node) for name, node in lengths.items()},
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


def _counts(acceptance: Node, throughput: dict[str, Node]) -> Counts:
    nodes = acceptance.mapping(optional=_ACCEPTANCE)
    scalars: dict[str, Any] = {
        **{name: _if_given(number, nodes[name]) for name in _ACCEPTANCE if name != "accepted_per_position"},
        **{name: _if_given(number, throughput[name]) for name in _THROUGHPUT if name in SCALARS},
    }
    counts = Counts(accepted_per_position=tuple(map(number, nodes["accepted_per_position"].items())), **scalars)
    drafted, accepted = counts.draft_tokens, counts.accepted_tokens
    if acceptance.given and (drafted is None or accepted is None):
        acceptance.fail("draft_tokens and accepted_tokens, or null", "only a part of them")
    if drafted is not None and accepted is not None and accepted > drafted:
        nodes["accepted_tokens"].fail(f"at most the {drafted:g} draft_tokens", f"{accepted:g}")
    limit = counts.drafts
    for node in nodes["accepted_per_position"].items():
        if limit is None:
            nodes["accepted_per_position"].fail("drafts beside the positions", "none")
        if (count := number(node)) > limit:
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
    times, counts = _counts_of_blocks(parts, BLOCK_COUNTS)
    blocks = [Load(number(item), found) for item, found in zip(times, counts, strict=True)]
    for block, item in zip(blocks, times, strict=True):
        if not block.tells_the_cost:
            item.fail("blocks with seconds, steps and step_seconds above 0", "none")
    positions = tuple(number(item) for item in parts["accepted_per_position"].items())
    return LoadBin(bound, positive(parts["intervals"]), tuple(blocks), positions)


def _blocks(node: Node, latency: Mapping[str, Histogram | None]) -> tuple[Block, ...]:
    if not node.given or not node.entries():
        return ()
    parts = node.mapping(required=("seconds",), optional=(*_COUNTS_OF_TIME, *SLIS))
    times, counts = _counts_of_blocks(parts, _COUNTS_OF_TIME)
    columns = {}
    for sli, whole in latency.items():
        if parts[sli].given:
            if whole is None:
                parts[sli].fail(f"none, as in latency.{sli}", "some")
            columns[sli] = histograms(parts[sli], whole.bounds, len(times))
    blocks = []
    for i, (item, found) in enumerate(zip(times, counts, strict=True)):
        if not (seconds := number(item)):
            item.fail("a time above 0 seconds", "0")
        blocks.append(Block(seconds=seconds, counts=found, **{sli: each[i] for sli, each in columns.items()}))
    return tuple(blocks)


def _counts_of_blocks(parts: Mapping[str, Node], names: Sequence[str]) -> tuple[list[Node], list[Counts]]:
    """Return the node of each block's seconds, and its counts."""
    times = parts["seconds"].items()
    if not 0 < len(times) <= _MOST_BLOCKS:
        parts["seconds"].fail(f"1 to {_MOST_BLOCKS} blocks", str(len(times)))
    columns: dict[str, Any] = {name: column(parts[name], len(times)) for name in names if parts[name].given}
    return times, [Counts(**{name: values[i] for name, values in columns.items()}) for i in range(len(times))]
