"""Bytes of one log stream -> events. Finds the lines of interest without splitting the log into lines."""

from __future__ import annotations

import re
import time
from typing import Final, Literal

from specdec_exporter.predictor import versions
from specdec_exporter.predictor.log.configline import SERVER_ARGUMENTS
from specdec_exporter.predictor.log.container import FramedFormat, PartialLines, Piece, detect_format, unwrap
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import (
    ALL_KINDS,
    EngineConfig,
    EngineStats,
    Event,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    SpecDecoding,
)
from specdec_exporter.predictor.log.joining import MOST_PREVIOUS_BYTES, START_WORDS, LineJoiner
from specdec_exporter.predictor.log.logline import continues
from specdec_exporter.predictor.log.message import REQUEST
from specdec_exporter.predictor.log.search import Words, find_words
from specdec_exporter.predictor.log.streamevents import StreamEvents

LogFormat = Literal["auto", "plain", "cri", "docker"]
# Whose statistics count: "server" those of lines that name the file or logger that prints them; "any" also those
# without a header; "auto" these only until the log shows a header of vLLM's.
LogTrust = Literal["server", "any", "auto"]

# Words that find the lines of interest. The rest of a line wrapped inside "SpecDecoding" has "Drafted: ". The V0
# engine's line has "Draft acceptance rate: ".
_DRAFTS: Final = Words((b"Decoding", b"Drafted: ", b"Draft acceptance rate: "))
_STATISTICS: Final = b"Running: "
_WARNING: Final = Words((b"WARNING",))
_SERVER_ARGUMENTS: Final = Words((SERVER_ARGUMENTS.encode(),), place=18)
_PARTIAL_LINES: Final = Words((b" stdout P", b" stderr P"), place=8)
# Finds the V0 engine's line, the engine-init line and most warnings.
_SPECULATION: Final = Words((b"peculative",), place=3)
_START: Final = Words(START_WORDS)
_COLOUR: Final = r"(?:(?:\x1b|\\u001b)\[[0-9;]*m)*"
_ANY_HEADER: Final = re.compile(
    rf"(?:DEBUG|INFO|WARNING|ERROR){_COLOUR} +{_COLOUR}\d\d-\d\d \d\d:\d\d:\d\d{_COLOUR} +{_COLOUR}"
    r'\[?[\w/.-]{1,200}:\d{1,6}\]|"(?:name|logger|logger_name|loggername)": ?"vllm\.'
    r"|\bvllm\.[\w.]{0,80}(?:loggers|metrics)\b|\b(?:loggers|metrics)\.py:\d".encode()
)
_BARE_NEWLINE: Final = re.compile(rb"(?<!\r)\n")
_DOCKER_COMPLETE: Final = rb'\n","stream":"'


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
        self._kinds: frozenset[type] = ALL_KINDS if kinds is None else kinds
        self._count_lines = count_lines
        self._configured_format: LogFormat = log_format
        self._partials = PartialLines(counters)
        self._any_writer = trust != "server"
        self._awaits_header = trust == "auto"
        self.reset()

    def reset(self) -> None:
        """Forget all earlier lines, because the stream was truncated."""
        self._set_format(self._configured_format if self._configured_format in ("cri", "docker") else None)
        self._partials.finish()
        self._events = StreamEvents(self._counters, self._kinds)
        self._lines = LineJoiner(self._counters, self._events, any_writer=self._any_writer)
        self._last_line = b""
        self._ends_in_crlf = True  # all lines so far; a terminal adds the carriage returns
        self._crlf_end = 0  # and in this buffer those before here

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
        self._crlf_end = end
        if self._ends_in_crlf and self._format is None and (bare := _BARE_NEWLINE.search(buffer, 0, end)) is not None:
            self._crlf_end = bare.start()
        self._read(buffer, end)
        self._ends_in_crlf = self._ends_in_crlf and self._crlf_end == end
        self._last_line = _line_before(buffer, end)
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
        for line in self._partials.finish():
            self._lines.take(_decode(line.payload), line.timestamp)
        self._lines.finish()
        self._events.finish()
        events = self._take_events()
        self.reset()
        return events

    def _take_events(self) -> list[Event]:
        events = self._events.taken()
        if self._awaits_header:
            self._counters.unsigned_lines += len(events)
        return events

    def _await_header(self, buffer: bytes | bytearray, end: int) -> None:
        if self._awaits_header and _ANY_HEADER.search(buffer, 0, end) is not None:
            self._awaits_header = self._any_writer = False
            self._lines.trust(any_writer=False)

    # --- finding lines of interest ---

    def _set_format(self, log_format: FramedFormat | None) -> None:
        self._format = log_format  # None while no line was framed
        kinds = self._kinds
        texts: tuple[bytes, ...] = (_STATISTICS,) if kinds & {SpecDecoding, EngineStats} else ()
        if RequestParams in kinds:
            texts += (REQUEST.encode(),)
        self._words: list[Words] = []
        for wanted, words in (
            (SpecDecoding in kinds, _DRAFTS),
            (bool(texts), Words(texts)),
            (PredictorWarning in kinds, _WARNING),
            (ServerArguments in kinds, _SERVER_ARGUMENTS),
            (log_format == "cri", _PARTIAL_LINES),
            (bool(kinds & {SpecDecoding, EngineConfig, PredictorWarning}), _SPECULATION),
        ):
            if wanted:
                self._words.append(words)

    def _detect_format(self, buffer: bytearray, end: int) -> None:
        """Detect a framed format by the first line. A plain line decides nothing, because framed lines may follow."""
        found = detect_format(bytes(buffer[: _line_end(buffer, 0, end)]))
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
        self._events.start_bytes = max(self._events.start_bytes - end, 0)

    def _read_found(self, buffer: bytearray, position: int, watched: int, end: int) -> tuple[int, int] | None:
        """Read the lines from ``position`` on that some words find; return where other words are to be found.

        Up to ``watched``, all lines were looked at for failed starts.
        """
        starting = self._events.start_bytes > 0
        for place in find_words([*self._words, _START] if starting else self._words, buffer, end, position):
            if place < position:
                continue
            start = max(position, buffer.rfind(b"\n", position, place) + 1)
            watched = self._watch_start(buffer, watched, start)
            if (
                buffer.startswith(b"WARNING", place)
                and versions.WARNING_HINT.search(buffer, start, stop := _line_end(buffer, place, end)) is None
            ):
                position = stop + 1
            else:
                position = self._take_continuations(buffer, self._take_line_at(buffer, start, end), end)
            if (self._events.start_bytes > 0) != starting:
                return position, watched  # to go on with other words
        self._watch_start(buffer, watched, end)
        return None

    def _take_continuations(self, buffer: bytearray, position: int, end: int) -> int:
        """Take lines from ``position`` on while they may continue an earlier line; return where they end."""
        while position < end and (self._lines.waiting or self._partials):
            position = self._take_line_at(buffer, position, end)
        return position

    def _watch_start(self, buffer: bytes | bytearray, position: int, end: int) -> int:
        """Look at the lines from ``position`` to ``end`` while they may tell of a start; return ``end``."""
        while self._events.watches_start and position < end:
            stop = _line_end(buffer, position, end)
            line = bytes(buffer[position:stop])
            piece = self._unwrap(line)
            text, timestamp = (line, None) if piece is None else (piece.payload, piece.timestamp)
            self._events.watch(_decode(text), timestamp)
            position = stop + 1
        return end

    # --- reading one line ---

    def _take_line_at(self, buffer: bytearray, start: int, end: int) -> int:
        stop = _line_end(buffer, start, end)
        previous = _line_before(buffer, start) if start else self._last_line
        self._ends_in_crlf = self._ends_in_crlf and stop < self._crlf_end
        self._take_line(bytes(buffer[start:stop]), previous, goes_on=buffer.startswith(b",", stop + 1, end))
        return stop + 1

    def _take_line(self, line: bytes, previous: bytes, *, goes_on: bool = False) -> None:
        piece = self._unwrap(line)
        if piece is None:
            if not self._goes_on(previous, line):
                self._lines.take(_decode(line), None, previous=_decode(previous), goes_on=goes_on)
        elif piece.partial or self._partials.holds(piece.stream):
            if (whole := self._partials.add(piece)) is not None:
                self._lines.take(_decode(whole.payload), whole.timestamp)
        else:
            before = self._unwrap(previous)
            same_stream = before is not None and before.stream == piece.stream and not before.partial
            said_before = before.payload if before is not None and same_stream else b""
            if not self._goes_on(said_before, piece.payload):
                self._lines.take(_decode(piece.payload), piece.timestamp, previous=_decode(said_before))

    def _unwrap(self, line: bytes) -> Piece | None:
        return None if self._format is None else unwrap(line, self._format)

    def _goes_on(self, previous: bytes, line: bytes) -> bool:
        """Whether a line goes on with the message of the line before, see :func:`logline.continues`."""
        if not line.endswith(b"\r") or (previous and not previous.endswith(b"\r")):
            self._ends_in_crlf = False
        return not self._ends_in_crlf and continues(_decode(previous, keep_return=True), _decode(line))


def _has_docker_partial(buffer: bytearray, end: int) -> bool:
    """Whether some line is partial. The text of a whole one ends in a newline, as JSON spells it."""
    return buffer.count(_DOCKER_COMPLETE, 0, end) != buffer.count(b"\n", 0, end)


def _line_end(buffer: bytes | bytearray, position: int, end: int) -> int:
    stop = buffer.find(b"\n", position, end)
    return end if stop < 0 else stop


def _line_before(buffer: bytearray, position: int) -> bytes:
    """Return the line that ends before ``position``; empty if there is none.

    A long one is shortened in its middle to ``MOST_PREVIOUS_BYTES``.
    """
    stop = max(position - 1, 0)
    start = buffer.rfind(b"\n", 0, stop) + 1
    if stop - start < MOST_PREVIOUS_BYTES:
        return bytes(buffer[start:stop])
    half = MOST_PREVIOUS_BYTES // 2
    return bytes(buffer[start : start + half] + buffer[stop - half : stop])


def _decode(line: bytes, *, keep_return: bool = False) -> str:
    text = line.decode("utf-8", "replace")
    return text if keep_return else text.removesuffix("\r")
