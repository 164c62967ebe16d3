"""Prometheus' remote write 1.0, as far as a test needs it: samples of any age, by anybody."""

from __future__ import annotations

import struct
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence

Labels = Mapping[str, str]  # with ``__name__``
Sample = tuple[float, float]  # seconds since the epoch, value
_LITERAL = 1 << 16  # most bytes of one piece


def write(url: str, series: Iterable[tuple[Labels, Sequence[Sample]]], headers: Mapping[str, str] | None = None) -> str:
    """Send samples, in one request; what the server complains of, if it does."""
    body = _uncompressed(b"".join(field(1, _series(labels, samples)) for labels, samples in series))
    head = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy", **(headers or {})}
    head["X-Prometheus-Remote-Write-Version"] = "0.1.0"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=120):
            return ""
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


def _series(labels: Labels, samples: Sequence[Sample]) -> bytes:
    pairs = (field(1, name.encode()) + field(2, value.encode()) for name, value in sorted(labels.items()))
    values = (b"\x09" + struct.pack("<d", value) + b"\x10" + varint(round(at * 1000)) for at, value in samples)
    return b"".join([*(field(1, pair) for pair in pairs), *(field(2, value) for value in values)])


def field(number: int, content: bytes | int) -> bytes:
    """A field of a protobuf message: bytes with their length, or a number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """A number as protobuf writes it, seven bits a byte."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _uncompressed(content: bytes) -> bytes:
    """Snappy's format with literals only."""
    pieces = (content[begin : begin + _LITERAL] for begin in range(0, len(content), _LITERAL))
    return varint(len(content)) + b"".join(b"\xf4" + struct.pack("<H", len(piece) - 1) + piece for piece in pieces)
