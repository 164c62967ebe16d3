"""Incidents of a simulated predictor, and the scenario file that lists them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from specdec_exporter.errors import ConfigError
from specdec_exporter.simulator.curve import blend, position_rates
from specdec_exporter.simulator.units import Load, parse_load, parse_seconds
from specdec_exporter.yamlfile import Node, parse_yaml

_FOREVER = float("inf")


class _Incident(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """``at`` is simulated seconds since the start. ``duration`` is the key ``for``; without it there is no end."""

    at: Annotated[float, parse_seconds]
    duration: Annotated[float, parse_seconds] | None = msgspec.field(default=None, name="for")

    @property
    def end(self) -> float:
        """The simulated second at which it is over."""
        return _FOREVER if self.duration is None else self.at + self.duration


class Collapse(_Incident, frozen=True, kw_only=True, tag="collapse"):
    """Acceptance changes at once to this rate, or to this list of rates."""

    acceptance: float | tuple[float, ...]


class Drift(_Incident, frozen=True, kw_only=True, tag="drift"):
    """Acceptance moves linearly to this rate or list of rates over ``for``, and stays there."""

    acceptance: float | tuple[float, ...]


class Latency(_Incident, frozen=True, kw_only=True, tag="latency"):
    """Steps and prefill take ``factor`` times as long; ``tail_share`` of requests take ``tail_factor`` times that."""

    factor: float = 1.0
    tail_share: float | None = None
    tail_factor: float | None = None


class Restart(_Incident, frozen=True, kw_only=True, tag="restart"):
    """The process refuses connections for ``for`` (2 s), then starts from 0 with a new engine-init line."""


class StopDrafting(_Incident, frozen=True, kw_only=True, tag="stop_drafting"):
    """Drafting stops, and the engine goes on without drafts."""


class ChangeLoad(_Incident, frozen=True, kw_only=True, tag="load"):
    """The synthetic load changes: ``8/s``, or ``32`` concurrent requests."""

    load: str | float

    def __post_init__(self) -> None:
        try:
            parse_load(self.load)
        except ValueError as error:
            raise ConfigError(f"load: {error}") from None


class PositionCliff(_Incident, frozen=True, kw_only=True, tag="position_cliff"):
    """Acceptance of ``position`` (counted from 0) and all later ones is multiplied by ``factor``."""

    position: int
    factor: float = 0.05


MetricsFault = Literal["http_500", "html", "slow"]


class BreakMetrics(_Incident, frozen=True, kw_only=True, tag="metrics_error"):
    """``/metrics`` answers with an error, with a web page, or ``seconds`` (real time) late. The API still works."""

    mode: MetricsFault
    seconds: float = 30.0


Incident = Collapse | Drift | Latency | Restart | StopDrafting | ChangeLoad | PositionCliff | BreakMetrics

DEFAULT_DOWNTIME_SECONDS = 2.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario file: settings, with the names of :class:`~.settings.SimulatorSettings`, and incidents."""

    description: Node | None = None  # for people
    settings: Node | None = None
    incidents: tuple[Incident, ...] = ()


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings at one moment, with the incidents of that moment applied."""

    rates: tuple[float, ...]
    drafting: bool
    latency_factor: float
    tail_share: float
    tail_factor: float
    load: Load
    metrics_fault: MetricsFault | None
    metrics_delay_seconds: float


def apply_incidents(conditions: Conditions, incidents: Sequence[Incident], now: float) -> Conditions:
    """Return the conditions at simulated second ``now``. Incidents apply in their order."""
    changes: dict[str, Any] = {}
    rates = conditions.rates
    for incident in incidents:
        over = now >= incident.end
        if now < incident.at or (over and not isinstance(incident, Drift)):
            continue
        match incident:
            case Collapse(acceptance=acceptance) if rates:
                rates = position_rates(acceptance, len(rates))
            case Drift(acceptance=acceptance, duration=duration) if rates:
                share = 1.0 if over or not duration else (now - incident.at) / duration
                rates = blend(rates, position_rates(acceptance, len(rates)), share)
            case Latency(factor=factor, tail_share=share, tail_factor=tail_factor):
                changes["latency_factor"] = changes.get("latency_factor", conditions.latency_factor) * factor
                changes |= {"tail_share": share} if share is not None else {}
                changes |= {"tail_factor": tail_factor} if tail_factor is not None else {}
            case StopDrafting():
                changes["drafting"] = False
            case ChangeLoad(load=load):
                changes["load"] = parse_load(load)
            case PositionCliff(position=position, factor=factor):
                rates = rates[:position] + tuple(rate * factor for rate in rates[position:])
            case BreakMetrics(mode=mode, seconds=seconds):
                changes |= {"metrics_fault": mode, "metrics_delay_seconds": seconds}
            case _:  # a restart does not change the conditions
                pass
    return msgspec.structs.replace(conditions, rates=rates, **changes)


def check_incident(incident: Incident, *, k: int, where: str) -> None:
    """Raise :class:`ConfigError`, which names ``where`` and the key, if ``incident`` is impossible with ``k``."""
    match incident:
        case Collapse(acceptance=acceptance) | Drift(acceptance=acceptance):
            if k == 0:
                raise ConfigError(f"{where}: acceptance cannot change while speculation is off")
            try:
                position_rates(acceptance, k)
            except ConfigError as error:
                raise ConfigError(f"{where}.{error}") from None
        case PositionCliff(position=position) if not 0 <= position < k:
            raise ConfigError(f"{where}.position: expected a position below k={k}, found {position}")
        case PositionCliff(factor=factor) if not 0 <= factor <= 1:
            raise ConfigError(f"{where}.factor: expected a ratio from 0 to 1, found {factor:g}")
        case Latency(tail_share=share) if share is not None and not 0 <= share <= 1:
            raise ConfigError(f"{where}.tail_share: expected a share from 0 to 1, found {share:g}")
        case Latency(factor=factor, tail_factor=tail) if factor <= 0 or (tail is not None and tail <= 0):
            raise ConfigError(f"{where}: expected factors above 0")
        case _:
            pass


def parse_incident(text: str) -> Incident:
    """Read an incident such as ``"collapse at=60s for=2m acceptance=0.2"``; the keys are those of a scenario file."""
    try:
        kind, *pairs = shlex.split(text)
    except ValueError:
        raise ConfigError(f"incident {text!r}: expected a kind and key=value pairs") from None
    entries = [f"kind: {kind}"]
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"incident {text!r}: expected key=value, found {pair!r}")
        entries.append(f"{key}: [{value}]" if "," in value else f"{key}: {value}")
    content = "\n".join(entries).encode(errors="surrogatepass")
    incident: Incident = parse_yaml(content, f"incident {text!r}", ConfigError, lines=False).read(Incident)
    return incident
