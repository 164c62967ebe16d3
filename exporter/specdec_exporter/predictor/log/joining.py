"""The text of one line after the other -> events. Lines that break off are joined with those that go on."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, LogEvent, Malformed, RequestParams, SpecDecoding
from specdec_exporter.predictor.log.logline import has_header, parse_text
from specdec_exporter.predictor.log.message import REQUEST, How
from specdec_exporter.predictor.log.streamevents import StreamEvents

MOST_PREVIOUS_BYTES: Final = 4096
# Words about the start, which are not rare: looked for from its first line until the first statistics.
START_WORDS: Final = (
    *(b" took ", b" takes ", b" transform time: ", b" capturing ", b" KV cache size: ", b" concurrency for "),
    b" vLLM ",
)
# Every line that may be of interest has one of these.
_OF_INTEREST: Final = re.compile(
    f"Decoding|Drafted: |Running: |peculative|WARNING|{REQUEST}|non-default args: |"
    + "|".join(re.escape(word.decode()) for word in START_WORDS)
)
_MOST_CONTINUATIONS: Final = 4


class _BrokenLine(msgspec.Struct):
    """A line that breaks off: its possible readings so far, and the lines that may continue it."""

    beginning: str
    readings: list[str]
    timestamp: str | None
    continuations: list[str] = msgspec.field(default_factory=list)


class LineJoiner:
    """Reads the lines of one stream and gives their ``events``; counts those that cannot be read.

    ``any_writer`` as in :func:`writers.writes`.
    """

    def __init__(self, counters: ReaderCounters, events: StreamEvents, *, any_writer: bool) -> None:
        self._counters = counters
        self._events = events
        self._broken: _BrokenLine | None = None
        self.trust(any_writer=any_writer)

    def trust(self, *, any_writer: bool) -> None:
        """Change whose lines count from now on."""
        self._how = How(any_writer=any_writer)
        self._how_joined = How(joined=True, any_writer=any_writer)

    @property
    def waiting(self) -> bool:
        """Whether a line broke off, so that the next one is wanted whatever it says."""
        return self._broken is not None

    def take(self, text: str, timestamp: str | None, *, previous: str = "", goes_on: bool = False) -> None:
        """Read one line. ``goes_on``: the line after it begins with a comma; ``previous``: the line before it."""
        if self._broken is not None:
            if not has_header(text):
                self._continue(self._broken, text, goes_on=goes_on)
                return
            self._give_up()
        if _OF_INTEREST.search(text) is None:
            return
        if RequestParams not in self._events.kinds and REQUEST in text:
            return  # such a line holds no other kind; any match is in the prompt
        said, readings = self._read(text, previous)
        if said is None:
            return
        if isinstance(said, Malformed):
            if said.untrusted:
                self._counters.dropped["untrusted_lines"] += 1
                return
            if not said.incomplete:
                self._count_error(text)
                return
        elif not (goes_on and _may_go_on(said)):
            self._events.add(said, timestamp)
            return
        self._broken = _BrokenLine(text, readings, timestamp)

    def finish(self) -> None:
        """End the stream: no line goes on."""
        while self._broken is not None:
            self._give_up()

    def _read(self, text: str, previous: str) -> tuple[Event | Malformed | None, list[str]]:
        """Return what a line says, and the readings of it that may go on."""
        said: Event | Malformed | None = None
        readings: list[str] = []
        may_be_torn = 0 < len(previous) < MOST_PREVIOUS_BYTES and not has_header(text)
        before = parse_text(previous, self._how) if may_be_torn else None
        if may_be_torn and not isinstance(before, LogEvent):
            # This may be the rest of a line that was wrapped in its header or inside the words that find it.
            said, readings = _read_joined([previous], text, self._how_joined)
            if isinstance(said, LogEvent):
                return said, readings
            if isinstance(before, Malformed):
                said = None  # it is the line before that is broken, whatever this one says
        alone = parse_text(text, self._how)
        return (alone, [text]) if said is None or isinstance(alone, LogEvent) else (said, readings)

    def _continue(self, broken: _BrokenLine, text: str, *, goes_on: bool) -> None:
        """Read the broken line together with one more line."""
        broken.continuations.append(text)
        if len(broken.readings[0]) + len(text) > bounds.JOINED_CHARACTERS:
            self._give_up()
            return
        said, readings = _read_joined(broken.readings, text, self._how_joined)
        if isinstance(said, LogEvent) and not (goes_on and _may_go_on(said)):
            self._broken = None
            self._events.add(said, broken.timestamp)
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
                self.take(text, broken.timestamp)

    def _count_error(self, text: str) -> None:
        if REQUEST in text:
            return  # a user can break this line by line ends in the request's id
        self._counters.parse_errors += 1
        self._events.forget_engines()


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


def _may_go_on(said: Event) -> bool:
    """Whether a complete line may go on: in 0.8.5-0.10.1, it ends with a list."""
    return isinstance(said, SpecDecoding) and said.per_position is not None and said.accepted_throughput is None
