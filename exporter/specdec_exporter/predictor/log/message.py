"""A message of a predictor's log, apart from what stands around it."""

from __future__ import annotations

from typing import NamedTuple, TypedDict


class Place(TypedDict, total=False):
    """Where and when a message was printed: the fields that every event has, see :class:`events.LogEvent`."""

    timestamp: str
    process: str
    pid: int
    server: str


class Message(NamedTuple):
    """One message.

    ``tag``: the file or logger that printed it; ``None`` where nothing names one. ``level``: in capitals.
    """

    text: str
    place: Place
    tag: str | None = None
    level: str | None = None

    @property
    def module(self) -> list[str]:
        """The writer's path: ``"metrics/loggers.py"``, ``"metrics.loggers"`` -> ``["metrics", "loggers"]``."""
        tag = (self.tag or "").removesuffix(".py").removesuffix(".rs")
        return tag.replace("/", ".").split(".")


class UnreadableError(Exception):  # caught by kinds.py, which makes it a Malformed
    """One of vLLM's messages cannot be read: it breaks off, contradicts itself, or another process wrote into it."""
