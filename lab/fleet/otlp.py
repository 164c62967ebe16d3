"""Metrics as OTLP carries them: protobuf, as collectors send it. VictoriaMetrics takes no JSON."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from fleet.remotewrite import field, varint

_CUMULATIVE = field(2, 2)


def request(metrics: Iterable[bytes]) -> bytes:
    """The body of an export, of one resource without attributes."""
    return field(1, field(2, b"".join(field(2, metric) for metric in metrics)))


def counter(name: str, value: float, attributes: Mapping[str, str], nanoseconds: int) -> bytes:
    """A sum that only grows."""
    point = _attributes(7, attributes) + _fixed(3, nanoseconds) + _double(4, value)
    return field(1, name.encode()) + field(7, field(1, point) + _CUMULATIVE + field(3, 1))


def gauge(name: str, value: float, attributes: Mapping[str, str], nanoseconds: int) -> bytes:
    """A value that goes up and down."""
    point = _attributes(7, attributes) + _fixed(3, nanoseconds) + _double(4, value)
    return field(1, name.encode()) + field(5, field(1, point))


def histogram(
    name: str, counts: Sequence[int], bounds: Sequence[float], attributes: Mapping[str, str], nanoseconds: int
) -> bytes:
    """``counts``: of each bucket alone, one more than ``bounds``."""
    point = _attributes(9, attributes) + _fixed(3, nanoseconds) + _fixed(4, sum(counts)) + _double(5, 1.0)
    point += field(6, struct.pack(f"<{len(counts)}Q", *counts)) + field(7, struct.pack(f"<{len(bounds)}d", *bounds))
    return field(1, name.encode()) + field(9, field(1, point) + _CUMULATIVE)


def _attributes(number: int, attributes: Mapping[str, str]) -> bytes:
    pairs = (field(1, key.encode()) + field(2, field(1, value.encode())) for key, value in attributes.items())
    return b"".join(field(number, pair) for pair in pairs)


def _fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def _double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)
