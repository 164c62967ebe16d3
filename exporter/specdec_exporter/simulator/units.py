"""Durations and load as people write them: ``90s``, ``5m``, ``4/s``, ``16``."""

from __future__ import annotations

import math
import re

import msgspec

_SECONDS_PER_UNIT = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)")
_LOAD = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(/s)?")


class Seconds(float):
    """A duration in seconds; read from a number or from text with a unit (``90s``, ``5m``, ``1h``)."""

    __slots__ = ()


def parse_seconds(text: str | float) -> Seconds:
    """``90``, ``"90s"``, ``"1.5m"`` or ``"1h"`` in seconds. Raises :class:`ValueError`, worded for a person."""
    if isinstance(text, (int, float)) and not isinstance(text, bool) and math.isfinite(text) and text >= 0:
        return Seconds(text)
    if isinstance(text, str) and (match := _DURATION.fullmatch(text.strip())):
        return Seconds(float(match[1]) * _SECONDS_PER_UNIT[match[2]])
    raise ValueError(f"expected a duration such as 90s, 5m or 1h, found {text!r}")


class Load(msgspec.Struct, frozen=True):
    """Synthetic load: an open stream of ``requests_per_second``, or a closed loop of ``concurrency`` requests."""

    requests_per_second: float = 0.0
    concurrency: int = 0


def parse_load(text: str | float) -> Load:
    """``"4/s"`` (requests per second, Poisson) or ``16`` (always so many requests). Raises :class:`ValueError`."""
    match = None if isinstance(text, bool) else _LOAD.fullmatch(str(text).strip())
    if match and match[2]:
        return Load(requests_per_second=float(match[1]))
    if match and float(match[1]).is_integer():
        return Load(concurrency=int(float(match[1])))
    raise ValueError(f"expected requests per second (4/s) or a number of concurrent requests (16), found {text!r}")
