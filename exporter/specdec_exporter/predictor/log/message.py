"""The text of one vLLM log message, without header or prefix -> its event. Pure; :func:`read_message` never raises."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.formatting import plain
from specdec_exporter.predictor import versions
from specdec_exporter.predictor.log.configline import (
    SERVER_ARGUMENTS,
    parse_engine_config,
    parse_request_params,
    parse_server_arguments,
)
from specdec_exporter.predictor.log.events import (
    AGGREGATED,
    EngineConfig,
    EngineStats,
    Event,
    Malformed,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    SpecDecoding,
)
from specdec_exporter.predictor.log.fields import UnreadableError
from specdec_exporter.predictor.log.startline import parse_start_line
from specdec_exporter.predictor.log.statistics import read_engine_stats, read_spec_decoding, read_speculative_v0
from specdec_exporter.predictor.log.writers import module_path, writes


class Origin(NamedTuple):
    """The parts of the line around the message.

    ``tag``: source file or logger name; ``level``: in capitals; ``server``: the pod or service that a collector names.
    """

    timestamp: str | None = None
    process: str | None = None
    pid: int | None = None
    level: str | None = None
    tag: str | None = None
    server: str | None = None


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
REQUEST: Final = "Received request "
_UNTRUSTED: Final = Malformed(reason="its header names none of vLLM's files that print statistics", untrusted=True)


def read_message(message: str, origin: Origin = NOWHERE, how: How = SERVERS_OWN) -> Event | Malformed | None:
    """Return the event of a message; ``None`` where it is of no known kind, or not of the server's own statistics."""
    try:
        said = _read(message.rstrip(), origin, how)
    except UnreadableError as error:
        return Malformed(reason=str(error), incomplete=error.incomplete)
    if said is None or isinstance(said, Malformed):
        return said
    return msgspec.structs.replace(
        said, timestamp=origin.timestamp, process=origin.process, pid=origin.pid, server=origin.server
    )


_BEGINNINGS: Final[tuple[tuple[str, type], ...]] = (
    (SPEC_DECODING, SpecDecoding),
    (SPECULATIVE_V0, SpecDecoding),
    (REQUEST, RequestParams),
    ("Initializing a", EngineConfig),
    (SERVER_ARGUMENTS, ServerArguments),
)


def _read(message: str, origin: Origin, how: How) -> Event | Malformed | None:
    stats = _ENGINE_STATS.match(message)
    beginnings = (kind for beginning, kind in _BEGINNINGS if message.startswith(beginning))
    kind = EngineStats if stats is not None else next(beginnings, None)
    if kind is None:
        return _read_other(message, origin, how)
    if not writes(origin.tag, kind, any_writer=how.any_writer):
        would_count = kind in (SpecDecoding, EngineStats) and writes(origin.tag, kind, any_writer=True)
        return _UNTRUSTED if would_count else None
    if stats is not None:
        engine = AGGREGATED if stats["aggregated"] else stats["engine"]
        return read_engine_stats(message[stats.start("body") :], engine, joined=how.joined)
    if kind is RequestParams:
        return parse_request_params(message)
    if kind is EngineConfig:
        return parse_engine_config(message)
    if kind is ServerArguments:
        return parse_server_arguments(message)
    if message.startswith(SPEC_DECODING):
        return read_spec_decoding(message[len(SPEC_DECODING) :], origin.tag or "", joined=how.joined)
    return read_speculative_v0(message[len(SPECULATIVE_V0) :], joined=how.joined)


def _read_other(message: str, origin: Origin, how: How) -> Event | None:
    if origin.timestamp and len(message) >= len("SpecDec") and SPEC_DECODING.startswith(message):
        if not writes(origin.tag, SpecDecoding, any_writer=how.any_writer):
            return None
        raise UnreadableError("the line breaks off in its first words", incomplete=True)
    if (progress := parse_start_line(message)) is not None:
        return progress if writes(origin.tag, type(progress), any_writer=how.any_writer) else None
    return _warning(message, origin, how)


_MAX_WARNING_LENGTH: Final = 500


def _warning(message: str, origin: Origin, how: How) -> PredictorWarning | None:
    if not writes(origin.tag, PredictorWarning, any_writer=how.any_writer):
        return None
    for code, warned in versions.WARNINGS.items():
        found = origin.level in (None, "WARN", "WARNING") and warned.pattern.match(message) is not None
        if code == versions.JIT_COMPILATION:
            # The compilation monitor also logs at INFO that it runs.
            found = origin.level == "WARNING" and (found or module_path(origin.tag or "")[-1] == "jit_monitor")
        if found:
            return PredictorWarning(warning=code, message=plain(message[:_MAX_WARNING_LENGTH]))
    return None
