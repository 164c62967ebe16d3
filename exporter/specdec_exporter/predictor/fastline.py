"""The two lines that make up most of a predictor's statistics, read in one go: the fast lane of :mod:`logline`.

Only the exact wording is taken (the spec-decoding line of 0.10.2 and later, the ``Engine NNN`` line), without prefixes
or faults; everything else, and every line whose figures disagree, is left to :func:`logline.parse_line`, which gives
the same event for what is taken here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import MutableMapping
from typing import Final

from specdec_exporter.predictor.events import EngineStats, SpecDecoding

Writer = tuple[str | None, int | None]  # process name and id

_HEADER: Final = (
    # The process is coloured in 0.10.1-0.15.1, also in files.
    rb"(?:(?:\x1b\[[\d;]{1,8}m)?\(([A-Z]\w{0,63} pid=\d{1,10})\)(?:\x1b\[[\d;]{1,8}m)? )?"
    rb"(?:INFO|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d) "
    rb"\[[\w/]{1,100}(?<!logger)\.py:\d{1,6}\] "  # loggers of requests carry users' text
)
_SPEC_DECODING: Final = re.compile(
    _HEADER + rb"SpecDecoding metrics: Mean acceptance length: (\d{1,9}\.\d\d), "
    rb"Accepted throughput: (\d{1,15}\.\d\d) tokens/s, Drafted throughput: (\d{1,15}\.\d\d) tokens/s, "
    rb"Accepted: (\d{1,15}) tokens, Drafted: (\d{1,15}) tokens, "
    rb"Per-position acceptance rate: ([01]\.\d{3}(?:, [01]\.\d{3})*), "
    rb"Avg Draft acceptance rate: (\d{1,3}\.\d)%\r?\Z"
)
_ENGINE: Final = _HEADER + rb"Engine (\d{1,6}): "
_STATS: Final = (
    rb"Avg prompt throughput: (\d{1,15}\.\d) tokens/s, Avg generation throughput: (\d{1,15}\.\d) tokens/s, "
    rb"Running: (\d{1,15}) reqs, Waiting: (\d{1,15}) reqs, "
    rb"[CG]PU KV cache usage: (\d{1,3}\.\d)%(?:, Prefix cache hit rate: (\d{1,3}\.\d)%)?\r?\Z"
)
_ENGINE_STATS: Final = re.compile(_ENGINE + _STATS)
_ENGINE_ONLY: Final = re.compile(_ENGINE + _STATS.replace(rb"(\d", rb"(?:\d"))  # the same lines
_LONGEST: Final = 4096
_NOBODY: Final[Writer] = (None, None)


def read_spec_decoding(
    buffer: bytes | bytearray, start: int, end: int, engines: MutableMapping[Writer, str]
) -> tuple[SpecDecoding, int] | None:
    """The event of the line at ``start`` and where the next line begins.

    ``engines`` says whose statistics each writer printed last; the line uses up its writer's.
    """
    line, after = _line_at(buffer, start, end)
    if (fields := _SPEC_DECODING.match(line)) is None:
        return None
    writer_text, timestamp, length_text, accepted_rate, drafted_rate, accepted_text, drafted_text, curve_text, rate = (
        fields.groups()
    )
    accepted, drafted = int(accepted_text), int(drafted_text)
    if not 0 < drafted >= accepted:
        return None
    ratio = accepted / drafted
    length = _share(length_text)
    curve = tuple(map(_share, curve_text.split(b", ")))
    previous = 1.0
    for share in curve:
        if share > previous:
            return None
        previous = share
    if abs(_share(rate) - 100 * ratio) > 0.05 or abs(length - 1 - sum(curve)) > 0.005 + 0.0005 * len(curve):
        return None
    process, pid = writer = _NOBODY if writer_text is None else _writer(writer_text)
    return SpecDecoding(
        timestamp=timestamp.decode(),
        engine=engines.pop(writer, None),
        process=process,
        pid=pid,
        accepted_tokens=accepted,
        draft_tokens=drafted,
        acceptance_ratio=ratio,
        mean_acceptance_length=length,
        bonus_included=True,
        accepted_throughput=float(accepted_rate),
        drafted_throughput=float(drafted_rate),
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
    if (fields := _ENGINE_ONLY.match(line)) is None:
        return None
    writer_text, _, engine = fields.groups()
    return _NOBODY if writer_text is None else _writer(writer_text), _engine(engine), after


def _line_at(buffer: bytes | bytearray, start: int, end: int) -> tuple[bytes, int]:
    """The line at ``start`` (no more of it than can be of interest) and where the next one begins.

    A copy, since groups of a match in a bytearray take twice as long to get.
    """
    stop = buffer.find(b"\n", start, end)
    if stop < 0:
        return bytes(buffer[start : min(end, start + _LONGEST)]), end
    return bytes(buffer[start : min(stop, start + _LONGEST)]), stop + 1


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
