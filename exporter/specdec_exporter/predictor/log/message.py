"""The text of one vLLM log message, without header or prefix -> its event. Pure; :func:`read_message` never raises.

The statistics lines are lists of ``Name: value`` fields. A later release may add, drop or reorder fields. Any other
text in such a line makes it malformed, because another process may have written into it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.predictor import versions
from specdec_exporter.predictor.log.configline import (
    SERVER_ARGUMENTS,
    parse_engine_config,
    parse_request_params,
    parse_server_arguments,
)
from specdec_exporter.predictor.log.events import (
    EngineConfig,
    EngineStats,
    Event,
    Malformed,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    SpecDecoding,
)
from specdec_exporter.predictor.log.startline import parse_start_line
from specdec_exporter.predictor.log.writers import module, writes


class Origin(NamedTuple):
    """The parts of the line around the message. ``tag``: source file or logger name; ``level``: in capitals."""

    timestamp: str | None = None
    process: str | None = None
    pid: int | None = None
    level: str | None = None
    tag: str | None = None


NOWHERE: Final = Origin()


class How(NamedTuple):
    """How to read a message.

    ``joined``: the text consists of several lines. Then every field must be known by name, because text at a wrong seam
    may look like a new field. ``any_writer``: as in :func:`writers.writes`.
    """

    joined: bool = False
    any_writer: bool = False


SERVERS_OWN: Final = How()

SPEC_DECODING: Final = "SpecDecoding metrics: "  # V1 engine, since 0.8.3, and the Rust frontend
SPECULATIVE_V0: Final = "Speculative metrics: "  # V0 engine, up to 0.9.2
_ENGINE_STATS: Final = re.compile(
    r"(?:Engine (?P<engine>\d{1,6}): |(?P<aggregated>\d{1,6} Engines Aggregated: ))?"
    r"(?P<body>Avg prompt t(?:hroughput|put): )",
    re.ASCII,
)
_REQUEST: Final = "Received request "
_UNTRUSTED: Final = Malformed(reason="its header names none of vLLM's files that print statistics", untrusted=True)


class _Unreadable(Exception):  # noqa: N818  private: caught in this file
    """One of vLLM's lines cannot be read; becomes :class:`Malformed`."""

    def __init__(self, reason: str, *, incomplete: bool = False) -> None:
        super().__init__(reason)
        self.incomplete = incomplete


def read_message(message: str, origin: Origin = NOWHERE, how: How = SERVERS_OWN) -> Event | Malformed | None:
    """Return the event of a message; ``None`` where it is of no known kind, or not of the server's own statistics."""
    try:
        said = _read(message.rstrip(), origin, how)
    except _Unreadable as error:
        return Malformed(reason=str(error), incomplete=error.incomplete)
    if said is None or isinstance(said, Malformed):
        return said
    return msgspec.structs.replace(said, timestamp=origin.timestamp, process=origin.process, pid=origin.pid)


def _read(message: str, origin: Origin, how: How) -> Event | Malformed | None:
    stats = None
    kind: type
    if message.startswith(_REQUEST):
        kind = RequestParams
    elif message.startswith((SPEC_DECODING, SPECULATIVE_V0)):
        kind = SpecDecoding
    elif (stats := _ENGINE_STATS.match(message)) is not None:
        kind = EngineStats
    elif message.startswith("Initializing a"):
        kind = EngineConfig
    elif message.startswith(SERVER_ARGUMENTS):
        kind = ServerArguments
    elif origin.timestamp and len(message) >= len("SpecDec") and SPEC_DECODING.startswith(message):
        if not writes(origin.tag, SpecDecoding, any_writer=how.any_writer):
            return None
        raise _Unreadable("the line breaks off in its first words", incomplete=True)
    elif (progress := parse_start_line(message)) is not None:
        return progress if writes(origin.tag, type(progress), any_writer=how.any_writer) else None
    else:
        return _warning(message, origin, how)

    if not writes(origin.tag, kind, any_writer=how.any_writer):
        would_count = kind in (SpecDecoding, EngineStats) and writes(origin.tag, kind, any_writer=True)
        return _UNTRUSTED if would_count else None
    if kind is RequestParams:
        return parse_request_params(message)
    if kind is EngineConfig:
        return parse_engine_config(message)
    if kind is ServerArguments:
        return parse_server_arguments(message)
    if stats is not None:
        engine = "aggregated" if stats["aggregated"] else stats["engine"]
        return _engine_stats(message[stats.start("body") :], engine, joined=how.joined)
    if message.startswith(SPEC_DECODING):
        return _spec_decoding(message[len(SPEC_DECODING) :], origin.tag or "", joined=how.joined)
    return _speculative_v0(message[len(SPECULATIVE_V0) :], joined=how.joined)


# --- fields ---------------------------------------------------------------------------------------------------------

_COUNT: Final = r"(\d{1,15})"
_NUMBER: Final = r"(\d{1,15}(?:\.\d{1,9})?|[nN]a[nN])"
_PERCENT: Final = _NUMBER + "%"
# Fields of later releases. Their names begin with a capital letter; other words are the rest of a torn name. Names and
# values hold neither a colon nor a process, so that no line of another writer passes for a field.
_EXTRA_NAME: Final = re.compile(r"[A-Z][\w /().-]{0,60}", re.ASCII)
_ITEM: Final = r"[\w.+%=@/() -]{1,80}"
_VALUE: Final = rf"(?!.*\w pid=\d){_ITEM}(?:,{_ITEM}){{0,200}},?"  # "1,234", "3 waiting, 2 running", a curve
_EXTRA_VALUE: Final = re.compile(_VALUE, re.ASCII)
# After this separator, a field's name begins with a capital letter, an item of a list with a digit, a small letter or
# "NaN".
_SEPARATOR: Final = re.compile(r", (?=[A-Z])(?!NaN\b)", re.ASCII)
# A field that breaks off in its name or its value.
_BROKEN_OFF: Final = re.compile(
    r"(?:[A-Z][\w /().-]{0,60}(?::(?: [\d., ]*(?:[a-zA-Z/ ]{0,12}|%))?)?)?[, ]{0,2}", re.ASCII
)

# Another process wrote into the line.
_ANOTHER_WRITER: Final = re.compile(r"\w pid=\d|\d\d:\d\d:\d\d|INFO:", re.ASCII)

Fields = dict[str, str]
Known = Mapping[str, re.Pattern[str]]


def _known(fields: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    return {name: re.compile(value, re.ASCII) for name, value in fields.items()}


def _read_fields(body: str, known: Known, rename: Callable[[str], str] = str, *, joined: bool) -> Fields:
    """``"A: 1 x, B: 2"`` -> ``{"A": "1", "B": "2"}``: the number of each known field, without its unit."""
    fields: Fields = {}
    pieces = _SEPARATOR.split(body)
    for piece in pieces:
        printed_name, _, value = piece.partition(": ")
        name = rename(printed_name)
        if (pattern := known.get(name)) is None:
            if not joined and _EXTRA_NAME.fullmatch(name) and _EXTRA_VALUE.fullmatch(value):
                continue
        elif (match := pattern.fullmatch(value)) is not None:
            if name in fields:
                raise _Unreadable(f"the field {name!r} occurs twice")
            fields[name] = match[1]
            continue
        breaks_off = piece is pieces[-1] and _BROKEN_OFF.fullmatch(piece) is not None
        raise _Unreadable(f"cannot read the field {piece[:60]!r}", incomplete=breaks_off)
    return fields


def _require(fields: Fields, *names: str) -> None:
    for name in names:
        if name not in fields:
            raise _Unreadable(f"the field {name!r} is missing", incomplete=True)


def _float(fields: Fields, name: str) -> float | None:
    number = float(fields.get(name, "nan"))
    return None if math.isnan(number) else number


def _int(fields: Fields, name: str) -> int | None:
    return int(fields[name]) if name in fields else None


def _ratio(fields: Fields, name: str) -> float | None:
    """Return a printed percentage as 0..1, rounded so that the division by 100 adds no digits."""
    return None if (percent := _float(fields, name)) is None else round(percent / 100, 9)


def _half_unit(printed: str) -> float:
    """Return half a unit of a number's last printed digit, ``"81.3"`` -> 0.05, and a little for binary fractions."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) + 1e-9


# --- speculative decoding -------------------------------------------------------------------------------------------

_SPEC_FIELDS: Final = _known(
    {
        "Mean acceptance length": _NUMBER,
        "Accepted throughput": _NUMBER + " tokens/s",
        "Drafted throughput": _NUMBER + " tokens/s",
        "Accepted": _COUNT + " tokens",
        "Drafted": _COUNT + " tokens",
        # All releases print three decimals; with fewer, the line breaks off. Without drafts the rates are nan.
        "Per-position acceptance rate": r"([01]\.\d{3}(?:, [01]\.\d{3}){0,500}|[nN]a[nN](?:, [nN]a[nN]){0,500})",
        "Draft acceptance rate": _PERCENT,
    }
)
_THROUGHPUT_WORDING: Final = ("Mean acceptance length", "Accepted throughput", "Drafted throughput")
_V0_FIELDS: Final = _known(
    {
        "Draft acceptance rate": _NUMBER,
        "System efficiency": _NUMBER,
        "Number of speculative tokens": r"(\d{1,6})",
        "Number of accepted tokens": _COUNT,
        "Number of draft tokens": _COUNT,
        "Number of emitted tokens": _COUNT,
    }
)


def _without_average(name: str) -> str:
    return "Draft acceptance rate" if name == "Avg Draft acceptance rate" else name  # so since 0.10.2


def _spec_decoding(body: str, tag: str, *, joined: bool) -> SpecDecoding | None:
    try:
        fields = _read_fields(body, _SPEC_FIELDS, _without_average, joined=joined)
    except _Unreadable:
        first_name = body.partition(":")[0]
        ours = any(f"{name}: " in body or name.startswith(first_name) for name in _SPEC_FIELDS)
        if ours or _ANOTHER_WRITER.search(body):
            raise
        return None
    if not fields:
        return None  # another server's wording
    # Every wording has these. Since 0.10.2 the rate comes last, so it shows that the line is whole.
    _require(fields, "Accepted", "Drafted", "Draft acceptance rate")
    curve_text = fields.get("Per-position acceptance rate")
    with_throughput = "Accepted throughput" in fields or "Drafted throughput" in fields  # 0.10.2 and later
    if curve_text is None and not with_throughput and "Mean acceptance length" in fields:
        _require(fields, "Per-position acceptance rate")  # comes last in 0.8.5-0.10.1
    if joined and with_throughput:
        _require(fields, *_THROUGHPUT_WORDING)

    accepted, drafted = int(fields["Accepted"]), int(fields["Drafted"])
    _check_counts(accepted, drafted, fields["Draft acceptance rate"], scale=100)
    curve = None if curve_text is None else tuple(map(float, curve_text.split(", ")))
    if curve is not None and math.isnan(curve[0]):
        if drafted:
            raise _Unreadable(f"the per-position rates are nan for {drafted} draft tokens")
        curve = None  # its length is unknown as well: if it comes last, part of it would look whole
    # A position is accepted only if the one before it was, so these shares of all drafts never rise.
    if curve is not None and any(later > earlier for earlier, later in itertools.pairwise((1.0, *curve))):
        raise _Unreadable("the per-position rates rise")
    length = _float(fields, "Mean acceptance length")
    bonus_included = _bonus_included(length, curve, with_throughput=with_throughput)
    # The Rust frontend reads live counters twice, for the curve and for the counts, so these may differ.
    if curve is not None and length is not None and not tag.endswith(".rs"):
        # The accepted tokens per draft are the sum over positions (three decimals each), plus 1 for the bonus token.
        tolerance = _half_unit(fields["Mean acceptance length"]) + 0.0005 * len(curve)
        if abs(length - sum(curve) - (1 if bonus_included else 0)) > tolerance:
            raise _Unreadable(
                f"a mean length of {length} contradicts per-position rates that sum to {sum(curve):.3f}",
                # Where the list comes last (0.8.5-0.10.1), its end may be missing.
                incomplete=body.endswith(curve_text or "") and length > sum(curve),
            )
    return SpecDecoding(
        accepted_tokens=accepted,
        draft_tokens=drafted,
        acceptance_ratio=accepted / drafted if drafted else None,
        mean_acceptance_length=length,
        bonus_included=bonus_included,
        accepted_throughput=_float(fields, "Accepted throughput"),
        drafted_throughput=_float(fields, "Drafted throughput"),
        per_position=curve,
        cumulative=False,
        num_speculative_tokens=None if curve is None else len(curve),
    )


def _bonus_included(length: float | None, curve: tuple[float, ...] | None, *, with_throughput: bool) -> bool | None:
    """Whether the printed length counts the bonus token. 0.8.5 does not, 0.9.0-0.10.1 do so in the same words."""
    if length is None:
        return None
    if with_throughput:
        return True
    if length < 1:
        return False
    if curve is None:
        return None
    return abs(length - 1 - sum(curve)) < abs(length - sum(curve))


def _check_counts(accepted: int, drafted: int, rate: str, *, scale: int) -> None:
    """Check that the printed ``rate`` is the ratio of the counts, times ``scale``, to its printed digits."""
    printed = float(rate)
    if accepted > drafted:
        raise _Unreadable(f"{accepted} tokens were accepted, but only {drafted} drafted")
    if math.isnan(printed) != (drafted == 0):
        raise _Unreadable(f"a rate of {rate} contradicts {drafted} draft tokens")
    if drafted and abs(printed - scale * accepted / drafted) > _half_unit(rate):
        raise _Unreadable(f"a rate of {rate} contradicts {accepted} accepted of {drafted} draft tokens")


def _speculative_v0(body: str, *, joined: bool) -> SpecDecoding | None:
    fields = _read_fields(body.removesuffix("."), _V0_FIELDS, joined=joined)
    if not fields:
        return None
    _require(fields, *_V0_FIELDS)
    if not body.endswith("."):
        raise _Unreadable("the full stop at the end is missing", incomplete=True)
    accepted, drafted = int(fields["Number of accepted tokens"]), int(fields["Number of draft tokens"])
    _check_counts(accepted, drafted, fields["Draft acceptance rate"], scale=1)
    return SpecDecoding(
        accepted_tokens=accepted,
        draft_tokens=drafted,
        acceptance_ratio=accepted / drafted if drafted else None,
        cumulative=True,
        num_speculative_tokens=_int(fields, "Number of speculative tokens"),
        emitted_tokens=_int(fields, "Number of emitted tokens"),
        system_efficiency=_float(fields, "System efficiency"),
    )


# --- engine statistics ----------------------------------------------------------------------------------------------

_STATS_FIELDS: Final = _known(
    {
        "Avg prompt throughput": _NUMBER + " tok(?:en)?s/s",
        "Avg generation throughput": _NUMBER + " tok(?:en)?s/s",
        "Running": _COUNT + "(?: reqs)?",
        "Waiting": _COUNT + "(?: reqs)?",
        "Swapped": _COUNT + " reqs",  # V0 engine
        "Pending": _COUNT + " reqs",  # V0 engine: what V1 calls waiting
        "Deferred": _COUNT + " reqs",  # since 0.20
        "KV fetch": f"({_VALUE})",  # since 0.32: "3 waiting to start, 1 in progress, 0 completed waiting"
        "Preemptions": _COUNT,
        "Corrupted": _COUNT + " reqs",
        "KV cache usage": _PERCENT,
        "CPU KV cache usage": _PERCENT,
        "Prefix cache hit rate": _PERCENT,  # optional since 0.11.1
        "External prefix cache hit rate": _PERCENT,
        "MM cache hit rate": _PERCENT,
    }
)
_STATS_NAMES: Final = {
    # the Rust frontend's wording
    "Avg prompt tput": "Avg prompt throughput",
    "Avg generation tput": "Avg generation throughput",
    "Reqs Running": "Running",
}
_KV_CACHE: Final = re.compile(r"(\w{1,20}) KV cache (?:usage|used)", re.ASCII)


def _stats_name(name: str) -> str:
    """Return one name per figure. Since 0.30 the device's name precedes "KV cache"; earlier releases print "GPU"."""
    if (match := _KV_CACHE.fullmatch(name)) is not None:
        # For V0, "CPU" is the swap space, printed after the GPU's figure. For V1, the CPU may be the device itself.
        return "CPU KV cache usage" if match[1] == "CPU" else "KV cache usage"
    return _STATS_NAMES.get(name, name)


def _engine_stats(body: str, engine: str | None, *, joined: bool) -> EngineStats:
    fields = _read_fields(body.removesuffix("."), _STATS_FIELDS, _stats_name, joined=joined)
    usage = "KV cache usage" if "KV cache usage" in fields else "CPU KV cache usage"
    _require(fields, "Avg prompt throughput", "Avg generation throughput", "Running", usage)
    waiting = _int(fields, "Waiting")
    return EngineStats(
        engine=engine,
        prompt_throughput=_float(fields, "Avg prompt throughput"),
        generation_throughput=_float(fields, "Avg generation throughput"),
        running=_int(fields, "Running"),
        waiting=_int(fields, "Pending") if waiting is None else waiting,
        kv_cache_usage_ratio=_ratio(fields, usage),
        prefix_cache_hit_ratio=_ratio(fields, "Prefix cache hit rate"),
    )


# --- warnings -------------------------------------------------------------------------------------------------------

_MAX_WARNING_LENGTH: Final = 500


def _warning(message: str, origin: Origin, how: How) -> PredictorWarning | None:
    if not writes(origin.tag, PredictorWarning, any_writer=how.any_writer):
        return None
    for code, warned in versions.WARNINGS.items():
        found = origin.level in (None, "WARN", "WARNING") and warned.pattern.match(message) is not None
        if code == versions.JIT_COMPILATION:
            # The compilation monitor also logs at INFO that it runs.
            found = origin.level == "WARNING" and (found or module(origin.tag or "") == "jit_monitor")
        if found:
            return PredictorWarning(warning=code, message=message[:_MAX_WARNING_LENGTH])
    return None
