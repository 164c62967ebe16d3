"""Bytes of one log stream -> events. Finds the lines of interest without splitting the log into lines."""

from __future__ import annotations

import re
import time
from typing import Final, Literal

from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log.container import FramedFormat, PartialLines, Piece, detect_format, unwrap
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import ALL_KINDS, EngineStats, Event, Malformed, SpecDecoding
from specdec_exporter.predictor.log.kinds import BYTE_ARRAY, KINDS, OF_INTEREST
from specdec_exporter.predictor.log.line import BrokenLine, read_line
from specdec_exporter.predictor.log.search import Words, find_words
from specdec_exporter.predictor.log.streamevents import StreamEvents

LogFormat = Literal["auto", "plain", "cri", "docker"]
# Whose statistics count: "server" those of lines that name the file or logger that prints them; "any" also those
# without a header; "auto" these only until the log shows a header of vLLM's.
LogTrust = Literal["server", "any", "auto"]

_PARTIAL_LINES: Final = Words((b" stdout P", b" stderr P"), place=8)
_COLOUR: Final = r"(?:(?:\x1b|\\u001b)\[[0-9;]*m)*"
_ANY_HEADER: Final = re.compile(
    rf"(?:DEBUG|INFO|WARNING|ERROR){_COLOUR} +{_COLOUR}\d\d-\d\d \d\d:\d\d:\d\d{_COLOUR} +{_COLOUR}"
    r'\[?[\w/.-]{1,200}:\d{1,6}\]|"(?:name|logger|logger_name|loggername)": ?"vllm\.'
    r"|\bvllm\.[\w.]{0,80}(?:loggers|metrics)\b|\b(?:loggers|metrics)\.(?:py:\d|\w{1,80}(?:: |\"))"
    r'|"MESSAGE":\[27,'.encode()  # a line with colours, as journalctl writes it
)
_HEADER: Final = re.compile(rb".{1,400}?:\d{1,6}\]")
_BARE_NEWLINE: Final = re.compile(rb"[^\r\n]\n")
_DOCKER_TEXT_END: Final = rb'","stream":"'
_DOCKER_COMPLETE: Final = rb"\n" + _DOCKER_TEXT_END


class LogScanner:
    """Reads ONE log stream: one file, or stdin.

    ``kinds`` are the event types wanted, ``None`` for all; a scan for :class:`EngineConfig` alone is cheap. ``trust``
    tells whose lines count, see :data:`LogTrust`; those left out are counted as ``untrusted_lines``. ``joins``: a line
    that breaks off is read with those after it. ``count_lines=False`` leaves ``counters.lines`` alone. No input makes
    a method raise.
    """

    def __init__(
        self,
        counters: ReaderCounters,
        *,
        log_format: LogFormat = "auto",
        trust: LogTrust = "server",
        kinds: frozenset[type] | None = None,
        joins: bool = False,
        count_lines: bool = True,
    ) -> None:
        self._counters = counters
        self._kinds: frozenset[type] = ALL_KINDS if kinds is None else kinds
        self._count_lines = count_lines
        self._joins = joins
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
        self._broken: BrokenLine | None = None
        self._docker_partials = False  # in this buffer
        self._every_line = True  # whether this line is read as every line, or was found by its words
        self._last_line = b""
        self._terminal = True  # whether all lines so far ended in a carriage return, which a terminal adds

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        """Return the events of ``buffer[:end]``, which must be empty or end with a newline."""
        if end <= 0:
            return []
        self._begin(buffer, end, buffer.count(b"\n", 0, end))
        if self._configured_format == "auto":
            self._detect_format(buffer, end)
        terminal_end = end if self._terminal else 0
        if terminal_end and (bare := _BARE_NEWLINE.search(buffer, 0, end)) is not None:
            terminal_end = buffer.rfind(b"\n", 0, bare.start()) + 1
        # The text of a whole line of Docker's ends in a newline, as JSON spells it.
        self._docker_partials = self._format == "docker" and not (
            buffer.count(b"\n", 0, end)
            == buffer.count(_DOCKER_COMPLETE, 0, end)
            == buffer.count(_DOCKER_TEXT_END, 0, end)  # a garbled line may have two ends
        )
        position = 0
        places = iter(find_words(self._words, buffer, end))
        while position < end:
            self._every_line = self._wants_every_line
            if not self._every_line:
                if (place := next((place for place in places if place >= position), None)) is None:
                    break
                position = max(position, buffer.rfind(b"\n", position, place) + 1)
            stop = buffer.find(b"\n", position, end)
            self._terminal = position < terminal_end
            previous = _line_before(buffer, position) if position else self._last_line
            self._take_line(bytes(buffer[position:stop]), previous)
            position = stop + 1
        self._terminal = terminal_end == end
        self._events.pass_by(end - position)
        self._last_line = _line_before(buffer, end)
        return self._take_events()

    def finish(self, tail: bytes = b"") -> list[Event]:
        """End the stream with the unterminated line ``tail``; return the events held back. Then the scanner is new."""
        self._every_line = True
        if tail:
            self._begin(tail, len(tail), 1)
            self._terminal = self._terminal and tail.endswith(b"\r")
            self._take_line(tail, self._last_line)
        for line in self._partials.finish():
            self._take_text(line.payload, line.timestamp)
        self._give_up()
        self._events.finish()
        events = self._take_events()
        self.reset()
        return events

    def _begin(self, buffer: bytes | bytearray, end: int, lines: int) -> None:
        self._counters.last_line_timestamp = time.time()
        if self._count_lines:
            self._counters.lines += lines
        if self._awaits_header and _ANY_HEADER.search(buffer, 0, end) is not None:
            self._awaits_header = self._any_writer = False

    def _take_events(self) -> list[Event]:
        events = self._events.taken()
        if self._awaits_header:
            self._counters.unsigned_lines += len(events)
        return events

    # --- finding lines ---

    def _set_format(self, log_format: FramedFormat | None) -> None:
        self._format = log_format  # None while no line was framed
        # Drafts belong to the engine whose statistics stand before them.
        wanted = self._kinds | ({EngineStats} if SpecDecoding in self._kinds else set())
        rows = [kind for kind in KINDS if kind.event in wanted and not kind.only_at_start]
        framing = [_PARTIAL_LINES] if log_format == "cri" else []
        self._words = list(dict.fromkeys([BYTE_ARRAY, *framing, *(words for row in rows for words in row.words)]))

    def _detect_format(self, buffer: bytearray, end: int) -> None:
        """Detect a framed format by the first line. A plain line decides nothing, because framed lines may follow."""
        log_format = detect_format(bytes(buffer[: buffer.find(b"\n", 0, end)]))
        if log_format is not None and log_format != self._format:
            self._set_format(log_format)

    @property
    def _wants_every_line(self) -> bool:
        return self._events.starting or self._broken is not None or bool(self._partials) or self._docker_partials

    # --- reading one line ---

    def _take_line(self, line: bytes, previous: bytes) -> None:
        piece = self._unwrap(line)
        if piece is None:
            self._take_text(line, None, goes_on=self._goes_on(previous, line))
        elif piece.partial or self._partials.holds(piece.stream):
            if (whole := self._partials.add(piece)) is not None:
                self._take_text(whole.payload, whole.timestamp)
        else:
            before = self._unwrap(previous)
            goes_on = before is not None and self._goes_on(before.payload, piece.payload)
            self._take_text(piece.payload, piece.timestamp, goes_on=goes_on)

    def _unwrap(self, line: bytes) -> Piece | None:
        return None if self._format is None else unwrap(line, self._format)

    def _goes_on(self, previous: bytes, line: bytes) -> bool:
        """Whether a line goes on with the message of the line before.

        vLLM prints a message of several lines with a carriage return at the end of all but the last, and repeats the
        header. A user's text with line ends is the usual reason.
        """
        if self._terminal or not previous.endswith(b"\r") or (header := _HEADER.match(line)) is None:
            return False
        return previous.startswith(header[0])

    def _take_text(self, line: bytes, timestamp: str | None, *, goes_on: bool = False) -> None:
        text = line.decode("utf-8", "replace").removesuffix("\r")
        of_interest = not self._every_line or self._broken is not None or OF_INTEREST.search(line) is not None
        if of_interest and not goes_on:
            self._read(text, timestamp)
        self._events.pass_by(len(line))
        self._events.watch(text, timestamp)

    def _read(self, text: str, timestamp: str | None) -> None:
        if self._broken is not None:
            if self._broken.takes(text):
                if (event := self._broken.continued(text, any_writer=self._any_writer)) is not None:
                    self._broken = None
                    self._events.add(event)
                return
            self._give_up()
        for said in read_line(text, timestamp, any_writer=self._any_writer):
            if not isinstance(said, Malformed):
                self._events.add(said)
            elif self._joins and not said.untrusted:
                self._broken = BrokenLine(text, timestamp, said)
            else:
                self._count(said, text)

    def _give_up(self) -> None:
        """Count a broken line as an error: no line goes on with it."""
        if (broken := self._broken) is not None:
            self._broken = None
            self._count(broken.error, broken.text)

    def _count(self, said: Malformed, text: str) -> None:
        self._counters.left_out(said, plain(text))
        if not said.untrusted:
            self._events.forget_engines()


def _line_before(buffer: bytearray, position: int) -> bytes:
    stop = max(position - 1, 0)
    return bytes(buffer[buffer.rfind(b"\n", 0, stop) + 1 : stop])
