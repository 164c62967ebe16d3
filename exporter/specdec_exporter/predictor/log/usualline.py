"""The two lines that vLLM prints every ten seconds, each read by one pattern instead of the general parser.

These are the spec-decode line and the ``Engine NNN`` line before it. A pattern matches only a line that vLLM 0.10.2 or
later prints without a prefix. :func:`logline.parse_line` gives the same event for such a line, and reads all others.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from specdec_exporter.predictor.log.events import EngineStats, Event, SpecDecoding

Writer = tuple[str | None, int | None]  # process name and id

_HEADER: Final = (
    # 0.10.1-0.15.1 colour the process, in files too. The pattern excludes processes named like a level ("INFO").
    r"(?:(?:\x1b\[[\d;]{1,8}m)?\(([A-Z]{1,8}[a-z]\w{0,50}) pid=(\d{1,10})\)(?:\x1b\[[\d;]{1,8}m)? )?"
    r"(?:INFO|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[(?:[a-z][\w/]{0,99}/)?(?:metrics|loggers)\.py:\d{1,6}\] "  # as in writers.py
)
# JSON numbers, which have no leading zeros.
_WHOLE: Final = r"(?:0|[1-9]\d{0,14})"
_COUNT: Final = rf"({_WHOLE})"
_TENTHS: Final = rf"({_WHOLE}\.\d)"
_HUNDREDTHS: Final = rf"({_WHOLE}\.\d\d)"
_SHARES: Final = r"([01]\.\d{3}(?:, [01]\.\d{3}){0,500})"
_LINE_END: Final = r"\r?(?:\n|\Z)"
_SPEC_DECODING: Final = re.compile(
    f"{_HEADER}SpecDecoding metrics: Mean acceptance length: {_HUNDREDTHS}, "
    f"Accepted throughput: {_HUNDREDTHS} tokens/s, Drafted throughput: {_HUNDREDTHS} tokens/s, "
    f"Accepted: {_COUNT} tokens, Drafted: {_COUNT} tokens, "
    f"Per-position acceptance rate: {_SHARES}, Avg Draft acceptance rate: {_TENTHS}%{_LINE_END}".encode()
)
_ENGINE_STATS: Final = re.compile(
    rf"{_HEADER}Engine (\d{{1,6}}): "
    f"Avg prompt throughput: {_TENTHS} tokens/s, Avg generation throughput: {_TENTHS} tokens/s, "
    f"Running: {_COUNT} reqs, Waiting: {_COUNT} reqs, "
    f"[CG]PU KV cache usage: {_TENTHS}%(?:, Prefix cache hit rate: {_TENTHS}%)?{_LINE_END}".encode()
)
# Tolerances between figures of one line: half a unit of the last printed digit, as in message.py.
_HALF_A_HUNDREDTH: Final = 0.005 + 1e-9
_HALF_A_TENTH: Final = 0.05 + 1e-9
_HALF_A_THOUSANDTH: Final = 0.0005
_decode_numbers = msgspec.json.Decoder(list[float]).decode


def take_usual_lines(
    buffer: bytes | bytearray,
    position: int,
    end: int,
    engines: dict[Writer, str],
    events: list[Event],
    *,
    wants_stats: bool,
) -> int:
    """Read an engine-stats line at ``position``, then a spec-decode line, or one of both; return where they end.

    Appends to ``events``. ``engines`` maps each writer to the engine of its last statistics; a spec-decode line removes
    the entry. Returns ``position`` if it finds neither line there.
    """
    if (stats := _ENGINE_STATS.match(buffer, position, end)) is not None:
        position = stats.end()
        process, pid, engine = stats.group(1, 2, 4)
        writer = _writer(process, pid)
        engines[writer] = engine.decode()
        if wants_stats:
            events.append(_engine_stats(stats, writer))
    if (drafts := _SPEC_DECODING.match(buffer, position, end)) is not None and (
        event := _spec_decoding(drafts, engines)
    ) is not None:
        position = drafts.end()
        events.append(event)
    return position


def _engine_stats(line: re.Match[bytes], writer: Writer) -> EngineStats:
    _, _, timestamp, engine, prompt, generation, running, waiting, usage, hits = line.groups()
    return EngineStats(
        timestamp=timestamp.decode(),
        engine=engine.decode(),
        process=writer[0],
        pid=writer[1],
        prompt_throughput=float(prompt),
        generation_throughput=float(generation),
        running=int(running),
        waiting=int(waiting),
        kv_cache_usage_ratio=_ratio(usage),
        prefix_cache_hit_ratio=None if hits is None else _ratio(hits),
    )


def _spec_decoding(line: re.Match[bytes], engines: dict[Writer, str]) -> SpecDecoding | None:
    """Return the event if the line's figures agree. If not, the general parser reports the line."""
    process, pid, timestamp, *figures = line.groups()
    numbers = _decode_numbers(b"[%b]" % b",".join(figures))
    length, accepted_throughput, drafted_throughput, accepted, drafted, *curve, percent = numbers
    accepted_tokens, draft_tokens = int(accepted), int(drafted)
    if not 0 < draft_tokens >= accepted_tokens:
        return None
    if abs(percent - 100 * accepted_tokens / draft_tokens) > _HALF_A_TENTH:
        return None
    previous = 1.0
    for share in curve:
        if share > previous:
            return None
        previous = share
    if abs(length - (sum(curve) + 1)) > _HALF_A_HUNDREDTH + _HALF_A_THOUSANDTH * len(curve):
        return None
    writer = _writer(process, pid)
    return SpecDecoding(
        timestamp=timestamp.decode(),
        engine=engines.pop(writer, None),
        process=writer[0],
        pid=writer[1],
        accepted_tokens=accepted_tokens,
        draft_tokens=draft_tokens,
        acceptance_ratio=accepted_tokens / draft_tokens,
        mean_acceptance_length=length,
        bonus_included=True,
        accepted_throughput=accepted_throughput,
        drafted_throughput=drafted_throughput,
        per_position=tuple(curve),
        cumulative=False,
        num_speculative_tokens=len(curve),
    )


def _writer(process: bytes | None, pid: bytes) -> Writer:
    return (None, None) if process is None else (process.decode(), int(pid))


def _ratio(percent: bytes) -> float:
    """Return a printed percentage as 0..1, rounded as in message.py."""
    return round(float(percent) / 100, 9)
