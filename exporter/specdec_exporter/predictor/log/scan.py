"""Bytes of one log stream -> events. Finds the lines of interest without splitting the log into lines."""

from __future__ import annotations

import re
import time
from typing import Final, Literal

import msgspec

from specdec_exporter import bounds
from specdec_exporter.bounds import LINE_BYTES
from specdec_exporter.predictor import versions
from specdec_exporter.predictor.log.container import Piece, detect_format, unwrap
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import (
    START_KINDS,
    EngineConfig,
    EngineStats,
    Event,
    KVCache,
    LogEvent,
    Malformed,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    ServerReady,
    SpecDecoding,
    StartFailure,
    StartPhase,
)
from specdec_exporter.predictor.log.failedstart import StartWatch
from specdec_exporter.predictor.log.logline import continues, has_header, parse_text
from specdec_exporter.predictor.log.message import How
from specdec_exporter.predictor.log.search import Words, find_words
from specdec_exporter.predictor.log.usualline import Writer, take_usual_lines

LogFormat = Literal["auto", "plain", "cri", "docker"]
# Whose statistics count: "server" those of lines that name the file or logger that prints them; "any" also those
# without a header; "auto" these only until the log shows a header of vLLM's.
LogTrust = Literal["server", "any", "auto"]

_ALL_KINDS: Final = frozenset(
    {
        SpecDecoding,
        EngineStats,
        EngineConfig,
        ServerArguments,
        StartPhase,
        KVCache,
        PredictorWarning,
        RequestParams,
        StartFailure,
        ServerReady,
    }
)
_MOST_CONTINUATIONS: Final = 4
_MOST_PREVIOUS_BYTES: Final = 4096
# Words that find the lines of interest. The rest of a line wrapped inside "SpecDecoding" has "Drafted: ". The V0
# engine's line has "Draft acceptance rate: ".
_DRAFTS: Final = Words((b"Decoding", b"Drafted: ", b"Draft acceptance rate: "))
_STATISTICS: Final = b"Running: "
_REQUEST: Final = b"Received request "
_REQUEST_TEXT: Final = _REQUEST.decode()
_WARNING: Final = Words((b"WARNING",))
_ENGINE_INIT: Final = Words((b"LLM engine (v",))
_SERVER_ARGUMENTS: Final = Words((b"non-default args: {",), place=18)
_PARTIAL_LINES: Final = Words((b" stdout P", b" stderr P"), place=8)
# Finds the V0 engine's line, the engine-init line and most warnings. This search costs as much as all others together.
# In vLLM's own format the other words find the same lines, so large reads leave it out.
_SPECULATION: Final = Words((b"peculative",), place=3)
_MANY_BYTES: Final = 128 * 1024
# Lines about the start, searched for from its first line until the first statistics: the words are not rare.
_START: Final = Words(
    (b" took ", b" takes ", b" transform time: ", b" capturing ", b" KV cache size: ", b" concurrency for ", b" vLLM ")
)
# The same words, for lines that are read anyway.
_OF_INTEREST: Final = re.compile(
    "Decoding|Drafted: |Running: |peculative|WARNING|Received request |non-default args: |"
    + "|".join(re.escape(word.decode()) for word in _START.texts)
)
_COLOUR: Final = r"(?:(?:\x1b|\\u001b)\[[0-9;]*m)*"
_ANY_HEADER: Final = re.compile(
    rf"(?:DEBUG|INFO|WARNING|ERROR){_COLOUR} +{_COLOUR}\d\d-\d\d \d\d:\d\d:\d\d{_COLOUR} +{_COLOUR}"
    r'\[?[\w/.-]{1,200}:\d{1,6}\]|"(?:name|logger|logger_name|loggername)": ?"vllm\.'
    r"|\bvllm\.[\w.]{0,80}(?:loggers|metrics)\b|\b(?:loggers|metrics)\.py:\d".encode()
)
_DOCKER_COMPLETE: Final = rb'\n","stream":"'


class _BrokenLine(msgspec.Struct):
    """A line that breaks off: its possible readings so far, and the lines that may continue it."""

    beginning: str
    readings: list[str]
    timestamp: str | None
    continuations: list[str] = msgspec.field(default_factory=list)


class _Partial(msgspec.Struct):
    """The pieces so far of a line that a container runtime cut. ``kept`` is false if it grew too long."""

    timestamp: str | None
    text: bytearray = msgspec.field(default_factory=bytearray)
    kept: bool = True


class LogScanner:
    """Reads ONE log stream: one file, or stdin.

    ``kinds`` are the event types wanted, ``None`` for all; a scan for :class:`EngineConfig` alone is cheap. ``trust``
    tells whose lines count, see :data:`LogTrust`; those left out are counted as ``untrusted_lines``.
    ``count_lines=False`` leaves ``counters.lines`` alone. No input makes a method raise.
    """

    def __init__(
        self,
        counters: ReaderCounters,
        *,
        log_format: LogFormat = "auto",
        trust: LogTrust = "server",
        kinds: frozenset[type] | None = None,
        count_lines: bool = True,
    ) -> None:
        self._counters = counters
        self._kinds: frozenset[type] = _ALL_KINDS if kinds is None else kinds
        self._count_lines = count_lines
        self._configured_format: LogFormat = log_format
        self._partials: dict[str, _Partial] = {}
        self._awaits_header = trust == "auto"
        self._set_trust(any_writer=trust != "server")
        self.reset()

    def narrow(self, kinds: frozenset[type]) -> None:
        """Want no other kinds than these from now on."""
        self._kinds &= kinds
        self._set_format(self._format)

    def reset(self) -> None:
        """Forget all earlier lines, because the stream was truncated."""
        self._set_format(self._configured_format)
        self._engines: dict[Writer, str] = {}  # whose statistics each process printed last
        self._broken: _BrokenLine | None = None
        self._start_bytes = bounds.START_BYTES if self._wants_start else 0  # to search for lines about the start
        for partial in self._partials.values():
            self._release(partial)
        self._partials = {}
        self._last_line = b""
        self._starts = StartWatch() if StartFailure in self._kinds else None
        self._ends_in_crlf = True  # all lines so far; a terminal adds the carriage returns
        self._events: list[Event] = []

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        """Return the events of ``buffer[:end]``, which must be empty or end with a newline."""
        if end <= 0:
            return []
        self._counters.last_line_timestamp = time.time()
        if self._count_lines:
            self._counters.lines += buffer.count(b"\n", 0, end)
        if self._configured_format == "auto":
            self._detect_format(buffer, end)
        self._await_header(buffer, end)
        if self._ends_in_crlf and self._format not in ("cri", "docker"):
            self._ends_in_crlf = buffer[max(_line_end(buffer, 0, end) - 1, 0)] == ord("\r")
        self._read(buffer, end)
        self._last_line = _line_before(buffer, end)
        if len(self._engines) > bounds.LOG_WRITERS:
            self._counters.dropped["log_writers"] += len(self._engines)
            self._engines.clear()
        return self._take_events()

    def finish(self, tail: bytes = b"") -> list[Event]:
        """End the stream with the unterminated line ``tail``; return the events held back. Then the scanner is new."""
        if tail:
            if self._count_lines:
                self._counters.lines += 1
            self._counters.last_line_timestamp = time.time()
            self._await_header(tail, len(tail))
            self._take_line(tail, self._last_line)
            self._watch_start(tail, 0, len(tail))
        for partial in self._partials.values():
            text = self._release(partial)
            if partial.kept:
                self._take_text(_decode(text), partial.timestamp)
        while self._broken is not None:
            self._give_up()
        if self._starts is not None:
            self._events += self._starts.finish()
        events = self._take_events()
        self.reset()
        return events

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        self._counters.matched_lines += len(events)
        if self._awaits_header:
            self._counters.unsigned_lines += len(events)
        return events

    # --- whose lines count ---

    def _set_trust(self, *, any_writer: bool) -> None:
        self._how = How(any_writer=any_writer)
        self._how_joined = How(joined=True, any_writer=any_writer)

    def _await_header(self, buffer: bytes | bytearray, end: int) -> None:
        if self._awaits_header and _ANY_HEADER.search(buffer, 0, end) is not None:
            self._awaits_header = False
            self._set_trust(any_writer=False)

    def _goes_on(self, previous: bytes, line: bytes) -> bool:
        """Whether a line goes on with the message of the line before, see :func:`logline.continues`."""
        if not line.endswith(b"\r") or (previous and not previous.endswith(b"\r")):
            self._ends_in_crlf = False
        return not self._ends_in_crlf and continues(_decode(previous, keep_return=True), _decode(line))

    # --- finding lines of interest ---

    def _set_format(self, log_format: LogFormat) -> None:
        self._format: LogFormat = log_format
        self._wants_stats = EngineStats in self._kinds
        self._wants_drafts = SpecDecoding in self._kinds
        self._wants_start = bool(self._kinds & {StartPhase, KVCache})
        self._own_format = False  # all lines of interest in the last bytes read were usual ones
        self._words: list[Words] = []
        if self._wants_drafts:
            self._words.append(_DRAFTS)
        texts: tuple[bytes, ...] = (_STATISTICS,) if self._wants_drafts or self._wants_stats else ()
        if RequestParams in self._kinds:
            texts += (_REQUEST,)
        if texts:
            self._words.append(Words(texts))
        if PredictorWarning in self._kinds:
            self._words.append(_WARNING)
        if ServerArguments in self._kinds:
            self._words.append(_SERVER_ARGUMENTS)
        if log_format == "cri":
            self._words.append(_PARTIAL_LINES)
        self._words_in_own_format = [*self._words, _ENGINE_INIT]
        if self._kinds & {SpecDecoding, EngineConfig, PredictorWarning}:
            self._words.append(_SPECULATION)

    def _detect_format(self, buffer: bytearray, end: int) -> None:
        """Detect a framed format by the first line. A plain line decides nothing, because framed lines may follow."""
        found = detect_format(bytes(buffer[: min(_line_end(buffer, 0, end), LINE_BYTES)]))
        if found is not None and found != self._format:
            self._set_format(found)

    def _read(self, buffer: bytearray, end: int) -> None:
        if self._format == "docker" and _has_docker_partial(buffer, end):
            position = 0
            while position < end:
                after = self._take_line_at(buffer, position, end)
                position = self._watch_start(buffer, position, after)
            return
        begun: tuple[int, int] | None = (self._take_continuations(buffer, 0, end), 0)
        while begun is not None:
            begun = self._read_found(buffer, *begun, end)
        self._start_bytes = max(self._start_bytes - end, 0)

    def _read_found(self, buffer: bytearray, position: int, watched: int, end: int) -> tuple[int, int] | None:
        """Read the lines from ``position`` on that some words find; return where other words are to be found.

        Up to ``watched``, all lines were looked at for failed starts.
        """
        framed = self._format in ("cri", "docker")
        words = self._words_in_own_format if self._own_format and end >= _MANY_BYTES else self._words
        if starting := self._start_bytes > 0:
            words = [*words, _START]
        usual = others = 0
        starts = self._starts
        for place in find_words(words, buffer, end, position):
            if place < position:
                continue
            start = max(position, buffer.rfind(b"\n", position, place) + 1)
            if starts is not None:
                watched = self._watch_start(buffer, watched, start) if starts.active else start
            if not framed and (after := self._take_usual(buffer, start, end)) > start:
                position = after
                usual += 1
                self._start_bytes = 0
            elif (
                buffer.startswith(b"WARNING", place)
                and versions.WARNING_HINT.search(buffer, start, stop := _line_end(buffer, place, end)) is None
            ):
                position = stop + 1
            else:
                position = self._take_continuations(buffer, self._take_line_at(buffer, start, end), end)
                others += 1
            if (self._start_bytes > 0) != starting:
                return position, watched  # to go on with other words
        self._watch_start(buffer, watched, end)
        self._own_format = usual > 0 and not others
        return None

    def _take_continuations(self, buffer: bytearray, position: int, end: int) -> int:
        """Take lines from ``position`` on while they may continue an earlier line; return where they end."""
        while position < end and (self._broken is not None or self._partials):
            position = self._take_line_at(buffer, position, end)
        return position

    def _watch_start(self, buffer: bytes | bytearray, position: int, end: int) -> int:
        """Look at the lines from ``position`` to ``end`` while they may tell of a start; return ``end``."""
        while self._starts is not None and self._starts.active and position < end:
            stop = min(_line_end(buffer, position, end), position + LINE_BYTES)
            line = bytes(buffer[position:stop])
            piece = self._unwrap(line)
            text, timestamp = (line, None) if piece is None else (piece.payload, piece.timestamp)
            self._events += self._starts.line(_decode(text), timestamp)
            position = stop + 1
        return end

    def _take_usual(self, buffer: bytes | bytearray, start: int, end: int) -> int:
        """Take the usual line or lines at ``start``, if spec-decode lines are wanted; return where they end."""
        if not self._wants_drafts:
            return start
        return take_usual_lines(buffer, start, end, self._engines, self._events, wants_stats=self._wants_stats)

    # --- reading one line ---

    def _take_line_at(self, buffer: bytearray, start: int, end: int) -> int:
        stop = _line_end(buffer, start, end)
        if stop - start > LINE_BYTES:
            self._counters.oversized_lines += 1
        else:
            previous = _line_before(buffer, start) if start else self._last_line
            self._take_line(bytes(buffer[start:stop]), previous, goes_on=buffer.startswith(b",", stop + 1, end))
        return stop + 1

    def _take_line(self, line: bytes, previous: bytes, *, goes_on: bool = False) -> None:
        piece = self._unwrap(line)
        if piece is None:
            if not self._goes_on(previous, line):
                self._take_text(_decode(line), None, previous=_decode(previous), goes_on=goes_on)
            return
        partial = self._partials.get(piece.stream)
        if partial is None and not piece.partial:
            one_line = b"\n" not in piece.payload
            if self._broken is None and one_line and self._take_usual(piece.payload, 0, len(piece.payload)):
                return
            before = self._unwrap(previous)
            same_stream = before is not None and before.stream == piece.stream and not before.partial
            said_before = before.payload if before is not None and same_stream else b""
            if not self._goes_on(said_before, piece.payload):
                self._take_text(_decode(piece.payload), piece.timestamp, previous=_decode(said_before))
            return
        if partial is None:
            partial = self._partials[piece.stream] = _Partial(piece.timestamp)
        size = len(piece.payload)
        if partial.kept and (
            len(partial.text) + size > LINE_BYTES or self._counters.held_bytes + size > bounds.HELD_BYTES
        ):
            self._counters.oversized_lines += 1
            partial.kept = False
            self._release(partial)
        if partial.kept:
            partial.text += piece.payload
            self._counters.held_bytes += size
        if not piece.partial:
            del self._partials[piece.stream]
            text = self._release(partial)
            if partial.kept:
                self._take_text(_decode(text), partial.timestamp)

    def _release(self, partial: _Partial) -> bytes:
        """Return the text so far, which is no longer held."""
        text = bytes(partial.text)
        self._counters.held_bytes -= len(text)
        partial.text = bytearray()
        return text

    def _unwrap(self, line: bytes) -> Piece | None:
        return unwrap(line, self._format) if self._format in ("cri", "docker") else None

    def _take_text(self, text: str, timestamp: str | None, *, previous: str = "", goes_on: bool = False) -> None:
        if self._broken is not None:
            if not has_header(text):
                self._continue_broken(self._broken, text, goes_on=goes_on)
                return
            self._give_up()
        if _OF_INTEREST.search(text) is None:
            return
        if RequestParams not in self._kinds and _REQUEST_TEXT in text:
            return  # such a line holds no other kind; any match is in the prompt
        said, readings = None, [text]
        may_be_torn = 0 < len(previous) < _MOST_PREVIOUS_BYTES
        if may_be_torn and not has_header(text) and not isinstance(parse_text(previous, self._how), LogEvent):
            # This may be the rest of a line that was wrapped in its header or inside the words that find it.
            said, readings = _read_joined([previous], text, self._how_joined)
        if not isinstance(said, LogEvent):
            alone = parse_text(text, self._how)
            if said is None or isinstance(alone, LogEvent):
                said, readings = alone, [text]
        if isinstance(said, Malformed) and said.untrusted:
            self._counters.dropped["untrusted_lines"] += 1
        elif isinstance(said, Malformed) or (goes_on and _may_go_on(said)):
            if isinstance(said, Malformed) and not said.incomplete:
                self._count_error(text)
            else:
                self._broken = _BrokenLine(text, readings, timestamp)
        elif said is not None:
            self._take_event(said, timestamp)

    def _continue_broken(self, broken: _BrokenLine, text: str, *, goes_on: bool) -> None:
        """Read the broken line together with one more line."""
        broken.continuations.append(text)
        if len(broken.readings[0]) + len(text) > bounds.JOINED_CHARACTERS:
            self._give_up()
            return
        said, readings = _read_joined(broken.readings, text, self._how_joined)
        if isinstance(said, LogEvent) and not (goes_on and _may_go_on(said)):
            self._broken = None
            self._take_event(said, broken.timestamp)
            return
        broken.readings = readings
        if said is None or len(broken.continuations) >= _MOST_CONTINUATIONS:
            self._give_up()

    def _give_up(self) -> None:
        """Count the broken line as one error, and read the lines after it by themselves."""
        broken, self._broken = self._broken, None
        if broken is not None:
            self._count_error(broken.beginning)
            for text in broken.continuations:
                self._take_text(text, broken.timestamp)

    def _count_error(self, text: str) -> None:
        if _REQUEST_TEXT in text:
            return  # a user can break this line by line ends in the request's id
        self._counters.parse_errors += 1
        self._engines.clear()  # the line may have named the engine of the next spec-decode line

    def _take_event(self, event: Event, timestamp: str | None) -> None:
        if isinstance(event, EngineStats):
            # A spec-decode line has no engine. It belongs to the same process's statistics line before it.
            if event.engine is None:
                self._engines.pop((event.process, event.pid), None)
            else:
                self._engines[event.process, event.pid] = event.engine
            self._start_bytes = 0
        if self._start_bytes <= 0 and isinstance(event, StartPhase | KVCache):
            return  # later than a start, where only chance finds it
        if self._starts is not None and type(event) in START_KINDS:
            self._events += self._starts.started(event)
        if type(event) not in self._kinds:
            return
        if self._wants_start and isinstance(event, EngineConfig | ServerArguments):
            self._start_bytes = bounds.START_BYTES
        if isinstance(event, SpecDecoding):
            event = msgspec.structs.replace(event, engine=self._engines.pop((event.process, event.pid), None))
        if event.timestamp is None and timestamp is not None:
            event = msgspec.structs.replace(event, timestamp=timestamp)
        self._events.append(event)


def _read_joined(beginnings: list[str], text: str, how: How) -> tuple[Event | Malformed | None, list[str]]:
    """Read each beginning with one more line, joined directly and with a blank, because a wrap may drop the blank.

    Returns the event and its reading, or the last error and all readings that may still go on.
    """
    open_ends: list[str] = []
    broken: Malformed | None = None
    for beginning in beginnings:
        for blank in ("", " "):
            reading = f"{beginning}{blank}{text}"
            said = parse_text(reading, how)
            if isinstance(said, Malformed):
                if said.incomplete:
                    broken = said
                    open_ends.append(reading)
            elif said is not None:
                return said, [reading]
    return broken, open_ends


def _may_go_on(said: Event | Malformed | None) -> bool:
    """Whether a complete line may go on: in 0.8.5-0.10.1, it ends with a list."""
    return isinstance(said, SpecDecoding) and said.per_position is not None and said.accepted_throughput is None


def _has_docker_partial(buffer: bytearray, end: int) -> bool:
    """Whether some line is partial. The text of a whole one ends in a newline, as JSON spells it."""
    return buffer.count(_DOCKER_COMPLETE, 0, end) != buffer.count(b"\n", 0, end)


def _line_end(buffer: bytes | bytearray, position: int, end: int) -> int:
    stop = buffer.find(b"\n", position, end)
    return end if stop < 0 else stop


def _line_before(buffer: bytearray, position: int) -> bytes:
    """Return the line that ends before ``position``; empty if there is none.

    A long one is shortened in its middle to ``_MOST_PREVIOUS_BYTES``.
    """
    stop = max(position - 1, 0)
    start = buffer.rfind(b"\n", 0, stop) + 1
    if stop - start < _MOST_PREVIOUS_BYTES:
        return bytes(buffer[start:stop])
    half = _MOST_PREVIOUS_BYTES // 2
    return bytes(buffer[start : start + half] + buffer[stop - half : stop])


def _decode(line: bytes, *, keep_return: bool = False) -> str:
    text = line.decode("utf-8", "replace")
    return text if keep_return else text.removesuffix("\r")
