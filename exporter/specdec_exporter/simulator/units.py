"""Readers of durations and load: ``90s``, ``5m``, ``4/s``, ``16``."""

from __future__ import annotations

import msgspec

from specdec_exporter.yamlfile import number_of

_SECONDS_PER_UNIT = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_seconds(text: str | float) -> float:
    """Return the seconds of ``90``, ``"90s"``, ``"1.5m"`` or ``"1h"``. Raises :class:`ValueError`."""
    written = str(text).strip()
    unit = written[-1:] if written[-1:] in _SECONDS_PER_UNIT else ""
    number = number_of(written.removesuffix(unit))
    if number is None or number < 0:
        raise ValueError(f"expected a duration such as 90s, 5m or 1h, found {text!r}")
    return number * _SECONDS_PER_UNIT[unit]


class Load(msgspec.Struct, frozen=True):
    """Synthetic load: ``requests_per_second`` arrive, or ``concurrency`` requests always run."""

    requests_per_second: float = 0.0
    concurrency: int = 0


def parse_load(text: str | float) -> Load:
    """Read ``"4/s"`` (requests per second, Poisson) or ``16`` (concurrent requests). Raises :class:`ValueError`."""
    written = str(text).strip()
    number = number_of(written.removesuffix("/s"))
    if number is not None and number >= 0:
        if written.endswith("/s"):
            return Load(requests_per_second=number)
        if number.is_integer():
            return Load(concurrency=int(number))
    raise ValueError(f"expected requests per second (4/s) or a number of concurrent requests (16), found {text!r}")
