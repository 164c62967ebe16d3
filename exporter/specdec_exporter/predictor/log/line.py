"""The text of one line after the other -> events."""

from __future__ import annotations

import msgspec

from specdec_exporter import bounds
from specdec_exporter.predictor.log.envelope import begins_a_line, messages
from specdec_exporter.predictor.log.events import Event, LogEvent, Malformed
from specdec_exporter.predictor.log.kinds import read_message

_MOST_CONTINUATIONS = 3


def read_line(text: str, timestamp: str | None = None, *, any_writer: bool = False) -> list[Event | Malformed]:
    """Return what one line says, without its newline: nothing if vLLM did not write it, or if it is of no use.

    ``timestamp``: when a container's runtime got it, for a line without a time. ``any_writer``: see
    :func:`kinds.read_message`. A row or object of a collector may hold several messages. No text makes it raise.
    """
    said: list[Event | Malformed] = []
    for message in messages(text):
        if timestamp is not None:
            message.place.setdefault("timestamp", timestamp)
        if (event := read_message(message, any_writer=any_writer)) is not None:
            said.append(event)
    return said


class BrokenLine:
    """A line that breaks off, as a terminal or a guide wraps it, and its possible readings with the lines after it."""

    def __init__(self, text: str, timestamp: str | None, error: Malformed) -> None:
        self.text = text
        self.error = error
        self._timestamp = timestamp
        self._readings = [text]
        self._continuations = 0

    def continued(self, text: str, *, any_writer: bool) -> Event | None:
        """Return the event of the line with one more line. A wrap may drop the blank at which it breaks."""
        self._continuations += 1
        self._readings = [f"{reading}{blank}{text}" for reading in self._readings for blank in ("", " ")]
        read = (read_line(reading, self._timestamp, any_writer=any_writer) for reading in self._readings)
        events = [event for said in read for event in said if isinstance(event, LogEvent)]
        # At a wrong seam, a name is none that is known, and its figure is missing.
        return max(events, key=lambda event: len(msgspec.to_builtins(event)), default=None)

    def takes(self, text: str) -> bool:
        """Whether this line may go on with the broken one."""
        fits = len(self._readings[0]) + len(text) <= bounds.JOINED_CHARACTERS
        return fits and self._continuations < _MOST_CONTINUATIONS and not begins_a_line(text)
