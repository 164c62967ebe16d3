"""The two lines that make up most of a predictor's statistics, read in one go: the fast lane of :mod:`logline`.

Only the exact wording is taken (the spec-decoding line of 0.10.2 and later, the ``Engine NNN`` line), without prefixes
or faults; everything else, and every line whose figures disagree, is left to :func:`logline.parse_line`, which gives
the same event for what is taken here.

A regular expression says once what a line is and where its fields stand. From then on a line that is the same but for
its digits is known by its outline, and its fields are cut out at the same places.
"""

from __future__ import annotations

import functools
import re
from collections.abc import MutableMapping
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.predictor.events import EngineStats, SpecDecoding

Writer = tuple[str | None, int | None]  # process name and id

_HEADER: Final = (
    # The process is coloured in 0.10.1-0.15.1, also in files.
    rb"(?:(?:\x1b\[[\d;]{1,8}m)?\((?P<writer>[A-Z]\w{0,63} pid=\d{1,10})\)(?:\x1b\[[\d;]{1,8}m)? )?"
    rb"(?:INFO|DEBUG) (?P<timestamp>\d\d-\d\d \d\d:\d\d:\d\d) "
    rb"\[[\w/]{1,100}(?<!logger)\.py:\d{1,6}\] "  # loggers of requests carry users' text
)
_SPEC_DECODING: Final = re.compile(
    _HEADER + rb"SpecDecoding metrics: Mean acceptance length: (?P<length>\d{1,9}\.\d\d), "
    rb"Accepted throughput: (\d{1,15}\.\d\d) tokens/s, Drafted throughput: (\d{1,15}\.\d\d) tokens/s, "
    rb"Accepted: (\d{1,15}) tokens, Drafted: (\d{1,15}) tokens, "
    rb"Per-position acceptance rate: ([01]\.\d{3}(?:, [01]\.\d{3})*), "
    rb"Avg Draft acceptance rate: (\d{1,3}\.\d)%\r?\Z"
)
_ENGINE: Final = _HEADER + rb"Engine (?P<engine>\d{1,6}): "
_STATS: Final = (
    rb"Avg prompt throughput: (\d{1,15}\.\d) tokens/s, Avg generation throughput: (\d{1,15}\.\d) tokens/s, "
    rb"Running: (\d{1,15}) reqs, Waiting: (\d{1,15}) reqs, "
    rb"[CG]PU KV cache usage: (\d{1,3}\.\d)%(?:, Prefix cache hit rate: (\d{1,3}\.\d)%)?\r?\Z"
)
_ENGINE_STATS: Final = re.compile(_ENGINE + _STATS)
_LONGEST: Final = 4096
_MOST_OUTLINES: Final = 512
_NOBODY: Final[Writer] = (None, None)
_OUTLINE: Final = bytes.maketrans(b"123456789", b"000000000")
_ALL_BUT_NUMBERS: Final = bytes(set(range(256)) - set(b"0123456789.,"))
_decode_numbers = msgspec.json.Decoder(list[float]).decode


class _Places(NamedTuple):
    """Where the fields of a line stand. ``body`` is where its figures begin."""

    writer: slice | None
    timestamp: slice
    body: int
    engine: slice | None


class _Outlines:
    """The outlines of one kind of line that were seen so far: lines with every digit turned into 0."""

    def __init__(self, pattern: re.Pattern[bytes], body: str | None, engine: str | None) -> None:
        """``body`` and ``engine`` name the groups of ``pattern`` that begin the figures and hold the engine."""
        self._pattern = pattern
        self._body = body
        self._engine = engine
        self._places: dict[bytes, _Places] = {}

    def find(self, line: bytes) -> _Places | None:
        """Where the fields of ``line`` stand, if it is one of this kind."""
        outline = line.translate(_OUTLINE)
        return self._places.get(outline) or self._learn(line, outline)

    def _learn(self, line: bytes, outline: bytes) -> _Places | None:
        if (fields := self._pattern.match(line)) is None:
            return None
        if len(self._places) >= _MOST_OUTLINES:
            self._places.clear()
        places = self._places[outline] = _Places(
            slice(*fields.span("writer")) if fields["writer"] else None,
            slice(*fields.span("timestamp")),
            fields.start(self._body) if self._body else 0,
            slice(*fields.span(self._engine)) if self._engine else None,
        )
        return places


_spec_decoding_lines = _Outlines(_SPEC_DECODING, "length", None)
_engine_lines = _Outlines(_ENGINE_STATS, None, "engine")


def read_spec_decoding(
    buffer: bytes | bytearray, start: int, end: int, engines: MutableMapping[Writer, str]
) -> tuple[SpecDecoding, int] | None:
    """The event of the line at ``start`` and where the next line begins.

    ``engines`` says whose statistics each writer printed last; the line uses up its writer's.
    """
    line, after = _line_at(buffer, start, end)
    if (places := _spec_decoding_lines.find(line)) is None:
        return None
    try:
        length, accepted_rate, drafted_rate, accepted_number, drafted_number, *shares, rate = _decode_numbers(
            b"[" + line[places.body :].translate(None, _ALL_BUT_NUMBERS) + b"]"
        )
    except msgspec.DecodeError:  # a number that begins with a 0 that it does not need
        return None
    accepted, drafted = int(accepted_number), int(drafted_number)
    if not 0 < drafted >= accepted:
        return None
    ratio = accepted / drafted
    curve = tuple(shares)
    previous = 1.0
    for share in curve:
        if share > previous:
            return None
        previous = share
    if abs(rate - 100 * ratio) > 0.05 or abs(length - 1 - sum(curve)) > 0.005 + 0.0005 * len(curve):
        return None
    process, pid = writer = _writer(line[places.writer]) if places.writer else _NOBODY
    return SpecDecoding(
        timestamp=line[places.timestamp].decode(),
        engine=engines.pop(writer, None),
        process=process,
        pid=pid,
        accepted_tokens=accepted,
        draft_tokens=drafted,
        acceptance_ratio=ratio,
        mean_acceptance_length=length,
        bonus_included=True,
        accepted_throughput=accepted_rate,
        drafted_throughput=drafted_rate,
        per_position=curve,
        cumulative=False,
        num_speculative_tokens=len(curve),
    ), after


def read_engine_stats(buffer: bytes | bytearray, start: int, end: int) -> tuple[EngineStats, int] | None:
    """The event of the line at ``start`` and where the next line begins."""
    line, after = _line_at(buffer, start, end)
    if (fields := _ENGINE_STATS.match(line)) is None:
        return None
    writer_text, timestamp, engine, prompt, generation, running, waiting, usage, hits = fields.groups()
    process, pid = _NOBODY if writer_text is None else _writer(writer_text)
    return EngineStats(
        timestamp=timestamp.decode(),
        engine=engine.decode(),
        process=process,
        pid=pid,
        prompt_throughput=float(prompt),
        generation_throughput=float(generation),
        running=int(running),
        waiting=int(waiting),
        kv_cache_usage_ratio=_ratio(usage),
        prefix_cache_hit_ratio=None if hits is None else _ratio(hits),
    ), after


def read_engine(buffer: bytes | bytearray, start: int, end: int) -> tuple[Writer, str, int] | None:
    """Who wrote the engine's statistics at ``start``, of which engine, and where the next line begins."""
    line, after = _line_at(buffer, start, end)
    places = _engine_lines.find(line)
    if places is None or places.engine is None:
        return None
    return _writer(line[places.writer]) if places.writer else _NOBODY, _engine(line[places.engine]), after


def _line_at(buffer: bytes | bytearray, start: int, end: int) -> tuple[bytes, int]:
    """The line at ``start`` (no more of it than can be of interest) and where the next one begins.

    A copy, since whatever is cut out of a bytearray takes twice as long to get.
    """
    stop = buffer.find(b"\n", start, end)
    after = stop + 1
    if stop < 0:
        stop = after = end
    if stop - start > _LONGEST:
        stop = start + _LONGEST
    return bytes(buffer[start:stop]), after


# Shares, percentages and lengths have a thousand values or so: remembering them is faster than reading them.
_share: Final = functools.lru_cache(maxsize=4096)(float)


@functools.lru_cache(maxsize=4096)
def _ratio(percent: bytes) -> float:
    return round(float(percent) / 100, 9)


@functools.lru_cache(maxsize=256)
def _engine(text: bytes) -> str:
    return text.decode()


@functools.lru_cache(maxsize=256)
def _writer(text: bytes) -> Writer:
    process, _, pid = text.decode().partition(" pid=")
    return process, int(pid)
