"""The text of one vLLM log message, without header or prefix -> what it said. Pure; nothing here raises on any text.

The statistics lines are lists of ``Name: value`` fields. Fields that a later release adds, leaves out or reorders do no
harm; anything else than fields does: a line that another process wrote into must not pass for a measurement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.predictor import versions
from specdec_exporter.predictor.log.configline import parse_engine_config, parse_request_params
from specdec_exporter.predictor.log.events import EngineStats, Event, Malformed, PredictorWarning, SpecDecoding


class Origin(NamedTuple):
    """What stood around the message. ``tag`` is the source file (or logger name), ``level`` in capitals."""

    timestamp: str | None = None
    process: str | None = None
    pid: int | None = None
    level: str | None = None
    tag: str | None = None


NOWHERE: Final = Origin()

SPEC_DECODING: Final = "SpecDecoding metrics: "  # V1 engine, since 0.8.3, and the Rust frontend
SPECULATIVE_V0: Final = "Speculative metrics: "  # V0 engine, up to 0.9.2
_ENGINE_STATS: Final = re.compile(
    r"(?:Engine (?P<engine>\d{1,6}): |(?P<aggregated>\d{1,6} Engines Aggregated: ))?"
    r"(?P<body>Avg prompt t(?:hroughput|put): )",
    re.ASCII,
)
_REQUEST: Final = "Received request "

# Loggers of requests and responses: their messages carry users' text.
_USER_TEXT_TAGS: Final = frozenset({"logger", "request_logger"})


def read_message(message: str, origin: Origin = NOWHERE, *, joined: bool = False) -> Event | Malformed | None:
    """What a message says; ``None`` where it is none of the known ones.

    ``joined`` says that the text was put together from several lines: then only fields known by name are taken, so that
    a wrong seam cannot pass for a new field.
    """
    said = _read(message.rstrip(), origin, joined=joined)
    if said is None or isinstance(said, Malformed):
        return said
    return msgspec.structs.replace(said, timestamp=origin.timestamp, process=origin.process, pid=origin.pid)


def _read(message: str, origin: Origin, *, joined: bool) -> Event | Malformed | None:
    if message.startswith(_REQUEST):
        return parse_request_params(message)
    if origin.tag is not None and _module(origin.tag) in _USER_TEXT_TAGS:
        return None
    if message.startswith(SPEC_DECODING):
        return _spec_decoding(message[len(SPEC_DECODING) :], origin.tag or "", joined=joined)
    if message.startswith(SPECULATIVE_V0):
        return _speculative_v0(message[len(SPECULATIVE_V0) :], joined=joined)
    if (stats := _ENGINE_STATS.match(message)) is not None:
        engine = "aggregated" if stats["aggregated"] else stats["engine"]
        return _engine_stats(message[stats.start("body") :], engine, joined=joined)
    if message.startswith("Initializing a"):
        return parse_engine_config(message)
    if origin.timestamp and len(message) >= len("SpecDec") and SPEC_DECODING.startswith(message):
        return Malformed(reason="the line breaks off in its first words", incomplete=True)
    return _warning(message, origin)


def _module(tag: str) -> str:
    """``"entrypoints/openai/request_logger.py"`` or ``"vllm.entrypoints.logger"`` -> ``"logger"``."""
    return re.split(r"[/.]", tag.removesuffix(".py"))[-1]


# --- fields ---------------------------------------------------------------------------------------------------------

_COUNT: Final = r"(\d{1,15})"
_NUMBER: Final = r"(\d{1,15}(?:\.\d{1,9})?|[nN]a[nN])"
_PERCENT: Final = _NUMBER + "%"
# Fields of later releases. All names begin with a capital letter: others are what is left of one that was torn. Neither
# names nor values hold a colon or a process, so that no other writer's line passes for either.
_EXTRA_NAME: Final = re.compile(r"[A-Z][\w /().-]{0,60}", re.ASCII)
_ITEM: Final = r"[\w.+%=@/() -]{1,80}"
_VALUE: Final = rf"(?!.*\w pid=\d){_ITEM}(?:,{_ITEM}){{0,200}},?"  # "1,234", "3 waiting, 2 running", a curve
_EXTRA_VALUE: Final = re.compile(_VALUE, re.ASCII)
# A list's items follow the separator with a digit, a small letter or "NaN", a field's name with a capital letter.
_SEPARATOR: Final = re.compile(r", (?=[A-Z])(?!NaN\b)", re.ASCII)
# A field that breaks off: part of a name, or a name and part of a value.
_BROKEN_OFF: Final = re.compile(
    r"(?:[A-Z][\w /().-]{0,60}(?::(?: [\d., ]*(?:[a-zA-Z/ ]{0,12}|%))?)?)?[, ]{0,2}", re.ASCII
)

# Another process wrote into the line.
_ANOTHER_WRITER: Final = re.compile(r"\w pid=\d|\d\d:\d\d:\d\d|INFO:", re.ASCII)

Fields = dict[str, str]
Known = Mapping[str, re.Pattern[str]]


def _known(fields: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    return {name: re.compile(value, re.ASCII) for name, value in fields.items()}


def _read_fields(body: str, known: Known, rename: Callable[[str], str], *, joined: bool) -> Fields | Malformed:
    """``"A: 1 x, B: 2"`` -> ``{"A": "1", "B": "2"}``: of known fields the number, without its unit."""
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
                return Malformed(reason=f"{name!r} stands twice")
            fields[name] = match[1]
            continue
        last = piece is pieces[-1]
        return Malformed(
            reason=f"cannot read the field {piece[:60]!r}",
            incomplete=last and _BROKEN_OFF.fullmatch(piece) is not None,
        )
    return fields


def _same_name(name: str) -> str:
    return name


def _missing(fields: Fields, *names: str) -> Malformed | None:
    for name in names:
        if name not in fields:
            return Malformed(reason=f"the field {name!r} is missing", incomplete=True)
    return None


def _float(fields: Fields, name: str) -> float | None:
    number = float(fields.get(name, "nan"))
    return None if math.isnan(number) else number


def _int(fields: Fields, name: str) -> int | None:
    return int(fields[name]) if name in fields else None


def _ratio(fields: Fields, name: str) -> float | None:
    """A printed percentage as 0..1, without the noise of a binary division by 100."""
    return None if (percent := _float(fields, name)) is None else round(percent / 100, 9)


def _half_unit(printed: str) -> float:
    """Half of a printed number's last digit: ``"81.3"`` -> 0.05. Plus a little for binary fractions."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) + 1e-9


# --- speculative decoding -------------------------------------------------------------------------------------------

_SPEC_FIELDS: Final = _known(
    {
        "Mean acceptance length": _NUMBER,
        "Accepted throughput": _NUMBER + " tokens/s",
        "Drafted throughput": _NUMBER + " tokens/s",
        "Accepted": _COUNT + " tokens",
        "Drafted": _COUNT + " tokens",
        # Exactly three decimals in all releases: one digit less is a line that breaks off. Shares of no drafts are nan.
        "Per-position acceptance rate": r"([01]\.\d{3}(?:, [01]\.\d{3})*|[nN]a[nN](?:, [nN]a[nN])*)",
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


def _spec_decoding(body: str, tag: str, *, joined: bool) -> SpecDecoding | Malformed | None:
    fields = _read_fields(body, _SPEC_FIELDS, _without_average, joined=joined)
    if isinstance(fields, Malformed):
        first_name = body.partition(":")[0]
        ours = any(f"{name}: " in body or name.startswith(first_name) for name in _SPEC_FIELDS)
        return fields if ours or _ANOTHER_WRITER.search(body) else None
    if not fields:
        return None  # another server's wording
    # Every wording carries these; the rate also says that a line of 0.10.2 and later is whole: it stands last.
    if (missing := _missing(fields, "Accepted", "Drafted", "Draft acceptance rate")) is not None:
        return missing
    curve_text = fields.get("Per-position acceptance rate")
    with_throughput = "Accepted throughput" in fields or "Drafted throughput" in fields  # 0.10.2 and later
    if curve_text is None and not with_throughput and "Mean acceptance length" in fields:
        return _missing(fields, "Per-position acceptance rate")  # stands last in 0.8.5-0.10.1
    if joined and with_throughput and (missing := _missing(fields, *_THROUGHPUT_WORDING)) is not None:
        return missing

    accepted, drafted = int(fields["Accepted"]), int(fields["Drafted"])
    if (broken := check_counts(accepted, drafted, fields["Draft acceptance rate"], percent=True)) is not None:
        return broken
    curve = None if curve_text is None else tuple(map(float, curve_text.split(", ")))
    if curve is not None and math.isnan(curve[0]):
        if drafted:
            return Malformed(reason=f"per-position rates of nothing for {drafted} draft tokens")
        curve = None  # nor is its length told: where it stands last, any part of it looks whole
    length = _float(fields, "Mean acceptance length")
    if curve is not None and (broken := check_curve(curve)) is not None:
        return broken
    # The Rust frontend takes its curve and its counts from two reads of live counters, which need not agree.
    agreeing = not tag.endswith(".rs")
    bonus_included = _bonus_included(length, curve, with_throughput=with_throughput)
    if agreeing and curve is not None and length is not None:
        tolerance = _half_unit(fields["Mean acceptance length"])
        if (broken := check_length(length, curve, tolerance, bonus_included=bonus_included)) is not None:
            # Where the list stands last (0.8.5-0.10.1), its end may be what is missing.
            return msgspec.structs.replace(broken, incomplete=body.endswith(curve_text or "") and length > sum(curve))
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
    """Whether the printed length counts the bonus token: not in 0.8.5, which prints the same words as 0.9.0-0.10.1."""
    if length is None:
        return None
    if with_throughput:
        return True
    if length < 1:
        return False
    if curve is None:
        return None
    return abs(length - 1 - sum(curve)) < abs(length - sum(curve))


def check_counts(accepted: int, drafted: int, rate: str, *, percent: bool) -> Malformed | None:
    """Accepted tokens are drafted ones, and the printed rate is their ratio to the printed digits."""
    if accepted > drafted:
        return Malformed(reason=f"{accepted} tokens accepted of {drafted} drafted")
    printed = float(rate)
    if math.isnan(printed) != (drafted == 0):
        return Malformed(reason=f"a rate of {rate} for {drafted} draft tokens")
    scale = 100 if percent else 1
    if drafted and abs(printed - scale * accepted / drafted) > _half_unit(rate):
        return Malformed(reason=f"a rate of {rate} for {accepted} of {drafted} tokens")
    return None


def check_curve(curve: tuple[float, ...]) -> Malformed | None:
    """A position is accepted only where the one before it was: shares of all drafts, within 0..1 and never rising."""
    previous = 1.0
    for share in curve:
        if share > previous:
            return Malformed(reason="the per-position rates rise")
        previous = share
    return None


def check_length(
    length: float, curve: tuple[float, ...], tolerance: float, *, bonus_included: bool | None
) -> Malformed | None:
    """The accepted tokens per draft are the sum over positions (three decimals each), plus one for the bonus token."""
    expected = sum(curve) + (1 if bonus_included else 0)
    if abs(length - expected) > tolerance + 0.0005 * len(curve):
        return Malformed(reason=f"a mean length of {length} for per-position rates that sum to {sum(curve):.3f}")
    return None


def _speculative_v0(body: str, *, joined: bool) -> SpecDecoding | Malformed | None:
    fields = _read_fields(body.removesuffix("."), _V0_FIELDS, _same_name, joined=joined)
    if isinstance(fields, Malformed):
        return fields
    if not fields:
        return None
    if (missing := _missing(fields, *_V0_FIELDS)) is not None:
        return missing
    if not body.endswith("."):
        return Malformed(reason="the full stop at the end is missing", incomplete=True)
    accepted, drafted = int(fields["Number of accepted tokens"]), int(fields["Number of draft tokens"])
    if (broken := check_counts(accepted, drafted, fields["Draft acceptance rate"], percent=False)) is not None:
        return broken
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
    # the Rust frontend's words
    "Avg prompt tput": "Avg prompt throughput",
    "Avg generation tput": "Avg generation throughput",
    "Reqs Running": "Running",
}
_KV_CACHE: Final = re.compile(r"(\w{1,20}) KV cache (?:usage|used)", re.ASCII)


def _stats_name(name: str) -> str:
    """One name per figure. The device's name stands before "KV cache" since 0.30, before that it is "GPU"."""
    if (match := _KV_CACHE.fullmatch(name)) is not None:
        # V0 prints a second figure for its swap space on the CPU; with V1 the CPU may be the device itself.
        return "CPU KV cache usage" if match[1] == "CPU" else "KV cache usage"
    return _STATS_NAMES.get(name, name)


def _engine_stats(body: str, engine: str | None, *, joined: bool) -> EngineStats | Malformed:
    fields = _read_fields(body.removesuffix("."), _STATS_FIELDS, _stats_name, joined=joined)
    if isinstance(fields, Malformed):
        return fields
    if (missing := _missing(fields, "Avg prompt throughput", "Avg generation throughput", "Running")) is not None:
        return missing
    usage = "KV cache usage" if "KV cache usage" in fields else "CPU KV cache usage"
    if (missing := _missing(fields, usage)) is not None:
        return missing
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


def _warning(message: str, origin: Origin) -> PredictorWarning | None:
    for code, warned in versions.WARNINGS.items():
        # The compilation monitor also says, at INFO, that it runs.
        if code == versions.JIT_COMPILATION:
            monitored = origin.tag is not None and _module(origin.tag) == "jit_monitor"
            if origin.level != "WARNING" or not (monitored or warned.pattern.match(message)):
                continue
        elif warned.pattern.match(message) is None:
            continue
        return PredictorWarning(
            warning=code,
            message=message[:_MAX_WARNING_LENGTH],
        )
    return None
