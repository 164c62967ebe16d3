r"""One line of a container runtime's log file -> what the container wrote. Pure; raises on no input.

Kubernetes' CRI text format (containerd, CRI-O): ``<RFC 3339 time> <stream> <tag> <text>``. Tag ``F``: the line ends
here. Tag ``P``: it goes on in the stream's next piece, because runtimes cut at 16 KiB. Attributes may follow the tag
after a colon. Docker's json-file driver: ``{"log":"text\n","stream":"stdout","time":"..."}``. A ``log`` without a
newline at its end is partial.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

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
    complete = text.endswith("\n")
    return Piece(
        payload=(text[:-1] if complete else text).encode(),
        stream=wrapped.stream,
        partial=not complete,
        timestamp=wrapped.time,
    )
