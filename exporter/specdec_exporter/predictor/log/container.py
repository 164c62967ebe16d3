r"""The lines of a container runtime's log file -> what the container wrote. Raises on no input.

Kubernetes' CRI text format (containerd, CRI-O): ``<RFC 3339 time> <stream> <tag> <text>``. Tag ``F``: the line ends
here. Tag ``P``: it goes on in the stream's next piece, because runtimes cut at 16 KiB. Attributes may follow the tag
after a colon. Docker's json-file driver: ``{"log":"text\n","stream":"stdout","time":"..."}``. A ``log`` without a
newline at its end is partial. Fluent Bit and Fluentd write CRI lines as such objects, with the tag in ``logtag`` or
``_p`` and no newline.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from specdec_exporter import bounds
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log.counters import ReaderCounters

FramedFormat = Literal["cri", "docker"]

_CRI: Final = re.compile(
    rb"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d))"
    rb" (?P<stream>stdout|stderr) (?P<tag>[PF])(?::[^ ]*)?(?: |$)"
)


class Piece(msgspec.Struct, frozen=True):
    """The content of one framed line. ``payload`` has no newline; if ``partial``, it goes on in the next piece."""

    payload: bytes
    stream: str
    partial: bool
    timestamp: str | None  # the runtime's, RFC 3339


class _DockerLine(msgspec.Struct):
    log: str
    stream: str
    time: str | None = None
    logtag: str | None = None
    collectors_tag: str | None = msgspec.field(default=None, name="_p")


_DOCKER: Final = msgspec.json.Decoder(_DockerLine)


def unwrap(line: bytes, log_format: FramedFormat) -> Piece | None:
    """Return the piece inside one line (without its newline; a carriage return may end it).

    ``None`` where the line is not in that format.
    """
    return _unwrap_cri(line) if log_format == "cri" else _unwrap_docker(line)


def detect_format(line: bytes) -> FramedFormat | None:
    """Return the format of this line; ``None`` for a plain line (vLLM's own JSON lines are plain)."""
    if _unwrap_cri(line) is not None:
        return "cri"
    return "docker" if _unwrap_docker(line) is not None else None


def _unwrap_cri(line: bytes) -> Piece | None:
    if (match := _CRI.match(line)) is None:
        return None
    return Piece(
        payload=line[match.end() :],
        stream=match["stream"].decode(),
        partial=match["tag"] == b"P",
        timestamp=match["time"].decode(),
    )


def _unwrap_docker(line: bytes) -> Piece | None:
    if line[:1] != b"{":
        return None
    try:
        wrapped = _DOCKER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if wrapped.stream not in ("stdout", "stderr"):
        return None
    text = wrapped.log
    tag = wrapped.logtag or wrapped.collectors_tag
    return Piece(
        payload=text.removesuffix("\n").encode(),
        stream=wrapped.stream,
        partial=not text.endswith("\n") if tag is None else tag == "P",
        timestamp=wrapped.time and plain(wrapped.time),
    )


class PartialLines:
    """Joins the pieces of lines that a container runtime cut, by stream.

    A line longer than :data:`bounds.LINE_BYTES` is given up, and so is one that would make the log hold more than
    :data:`bounds.HELD_BYTES`; ``counters`` counts both as oversized.
    """

    def __init__(self, counters: ReaderCounters) -> None:
        self._counters = counters
        self._begun: dict[str, _Begun] = {}

    def __bool__(self) -> bool:
        """Whether a line waits for its next piece."""
        return bool(self._begun)

    def holds(self, stream: str) -> bool:
        """Whether a line of this stream waits for its next piece."""
        return stream in self._begun

    def add(self, piece: Piece) -> Piece | None:
        """Take in the next piece; return the whole line if it ends here."""
        begun = self._begun.setdefault(piece.stream, _Begun(piece.timestamp))
        size = len(piece.payload)
        if begun.kept and (
            len(begun.text) + size > bounds.LINE_BYTES or self._counters.held_bytes + size > bounds.HELD_BYTES
        ):
            self._counters.oversized_lines += 1
            begun.kept = False
            self._release(begun)
        if begun.kept:
            begun.text += piece.payload
            self._counters.held_bytes += size
        return None if piece.partial else self._end(piece.stream)

    def finish(self) -> list[Piece]:
        """Return the lines so far: no piece follows."""
        ended = (self._end(stream) for stream in list(self._begun))
        return [line for line in ended if line is not None]

    def _end(self, stream: str) -> Piece | None:
        begun = self._begun.pop(stream)
        text = self._release(begun)
        return Piece(text, stream, partial=False, timestamp=begun.timestamp) if begun.kept else None

    def _release(self, begun: _Begun) -> bytes:
        """Return the text so far, which is no longer held."""
        text = bytes(begun.text)
        self._counters.held_bytes -= len(text)
        begun.text = bytearray()
        return text


class _Begun(msgspec.Struct):
    """The pieces so far of one line. ``kept`` is false once it was given up."""

    timestamp: str | None
    text: bytearray = msgspec.field(default_factory=bytearray)
    kept: bool = True
