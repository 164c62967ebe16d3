"""Incidents of a simulated predictor, and the conditions that they make at a moment."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

Acceptance = float | tuple[float, ...]


class Load(msgspec.Struct, frozen=True):
    """Synthetic load: ``requests_per_second`` arrive (Poisson), or ``concurrency`` requests always run."""

    requests_per_second: float = 0.0
    concurrency: int = 0

    @staticmethod
    def of(written: str | int) -> Load:
        """Read ``"4/s"`` (requests per second) or ``16`` (concurrent requests). Raises :class:`ValueError`."""
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)/s", str(written)):
            return Load(requests_per_second=float(match[1]))
        if re.fullmatch(r"\d+", str(written)):
            return Load(concurrency=int(written))
        raise ValueError(f"load: expected requests per second (4/s) or a number of requests (16), found {written!r}")


def position_rates(acceptance: Acceptance, num_positions: int) -> tuple[float, ...]:
    """Return the unconditional rates of ``num_positions`` positions, which never rise.

    A mean rate gives ``p, p**2, ...``: every draft token is right with probability ``p``. Raises :class:`ValueError`
    for a rate outside 0..1, a rising curve, or a curve of the wrong length.
    """
    if isinstance(acceptance, tuple):
        falls = all(earlier >= later for earlier, later in itertools.pairwise((1.0, *acceptance, 0.0)))
        if len(acceptance) != num_positions or not falls:
            raise ValueError(f"acceptance: expected {num_positions} rates from 1 down to 0, found {acceptance}")
        return acceptance
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance: expected a ratio from 0 to 1, found {acceptance:g}")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(middle**position for position in range(1, num_positions + 1)) / num_positions
        low, high = (middle, high) if mean < acceptance else (low, middle)
    return tuple(high**position for position in range(1, num_positions + 1))


class _Incident(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """``at`` is simulated seconds since the start. ``duration`` is the key ``for``; without it there is no end."""

    at: Annotated[float, msgspec.Meta(ge=0)]
    duration: Annotated[float, msgspec.Meta(gt=0)] | None = msgspec.field(default=None, name="for")

    @property
    def end(self) -> float:
        """The simulated second at which it is over."""
        return math.inf if self.duration is None else self.at + self.duration


class Collapse(_Incident, frozen=True, kw_only=True, tag="collapse"):
    """Acceptance changes at once to this rate, or to this list of rates."""

    acceptance: Acceptance


class Latency(_Incident, frozen=True, kw_only=True, tag="latency"):
    """Steps and prefill take ``factor`` times as long; ``tail_share`` of requests take ``tail_factor`` times that."""

    factor: float = 1.0
    tail_share: float | None = None
    tail_factor: float | None = None


class Restart(_Incident, frozen=True, kw_only=True, tag="restart"):
    """The process drops all connections for ``for`` (2 s), then starts from 0 with a new engine-init line."""

    @property
    def end(self) -> float:
        """The simulated second at which the next process starts."""
        return self.at + (2.0 if self.duration is None else self.duration)


class StopDrafting(_Incident, frozen=True, kw_only=True, tag="stop_drafting"):
    """Drafting stops, and the engine continues without drafts."""


class ChangeLoad(_Incident, frozen=True, kw_only=True, tag="load"):
    """The synthetic load changes: ``8/s``, or ``32`` concurrent requests."""

    load: str | int

    def __post_init__(self) -> None:
        Load.of(self.load)


class BreakMetrics(_Incident, frozen=True, kw_only=True, tag="metrics_error"):
    """``/metrics`` answers with status 500."""


Incident = Collapse | Latency | Restart | StopDrafting | ChangeLoad | BreakMetrics


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings at one moment, with the incidents of that moment applied."""

    rates: tuple[float, ...]
    load: Load
    tail_share: float
    tail_factor: float
    drafting: bool = True
    latency_factor: float = 1.0
    metrics_broken: bool = False


def apply_incidents(usual: Conditions, incidents: Sequence[Incident], now: float) -> Conditions:
    """Return the conditions at simulated second ``now``. Incidents apply in their order."""
    changes: dict[str, Any] = {}
    for incident in incidents:
        if not incident.at <= now < incident.end:
            continue
        match incident:
            case Collapse(acceptance=acceptance):
                changes["rates"] = position_rates(acceptance, len(usual.rates))
            case Latency(factor=factor, tail_share=share, tail_factor=tail_factor):
                changes["latency_factor"] = factor
                changes |= {"tail_share": share} if share is not None else {}
                changes |= {"tail_factor": tail_factor} if tail_factor is not None else {}
            case StopDrafting():
                changes["drafting"] = False
            case ChangeLoad(load=load):
                changes["load"] = Load.of(load)
            case BreakMetrics():
                changes["metrics_broken"] = True
            case Restart():  # it changes the process, not its conditions
                pass
    return msgspec.structs.replace(usual, **changes)
