"""The settings of a simulated predictor: one frozen object, checked when it is created."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from specdec_exporter.errors import ConfigError
from specdec_exporter.simulator.curve import Acceptance, position_rates
from specdec_exporter.simulator.scenario import Incident, Scenario, check_incident
from specdec_exporter.simulator.units import Load, parse_load
from specdec_exporter.yamlfile import read_yaml

Frontend = Literal["python", "rust"]

_POSITIVE = (
    "speed",
    "log_interval_seconds",
    "step_seconds",
    "prefill_seconds",
    "prompt_tokens",
    "output_tokens",
    "max_num_seqs",
    "max_model_len",
    "kv_cache_tokens",
    "engines",
    "api_servers",
    "tail_factor",
)
_NOT_NEGATIVE = (
    "draft_token_seconds",
    "request_seconds",
    "batched_token_seconds",
    "step_sigma",
    "prefill_sigma",
    "output_sigma",
    "k",
    "duration_seconds",
    "uptime_seconds",
)
_SHARES = ("short_draft_share", "no_draft_share", "tail_share", "prefix_cache_hit_share")


class LatencyModel(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in simulated seconds. One engine step serves every decoding request.

    A step takes ``step_seconds`` + ``draft_token_seconds`` per token of its longest draft + ``request_seconds`` for
    every request after the first + ``batched_token_seconds`` for every token of the other drafts, times a lognormal
    factor of ``step_sigma``. Prefill is lognormal around ``prefill_seconds``. ``tail_share`` of the requests are
    ``tail_factor`` times slower, in prefill and in decoding.
    """

    step_seconds: float = 0.02
    draft_token_seconds: float = 0.0015
    request_seconds: float = 0.0002
    batched_token_seconds: float = 0.0
    step_sigma: float = 0.05
    prefill_seconds: float = 0.1
    prefill_sigma: float = 0.3
    tail_share: float = 0.005
    tail_factor: float = 3.0


class SimulatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated predictor. Durations are simulated seconds, ratios 0..1.

    ``method`` is ``None`` if speculation is off. ``acceptance`` is the mean rate of a geometric curve over ``k``
    positions, or the unconditional rates of the positions. ``short_draft_share`` of the drafts are shorter than ``k``,
    and ``no_draft_share`` of the request-steps have no draft, as with ngram. Raises :class:`ConfigError` for an
    impossible value.
    """

    vllm_version: str = "0.32.0"
    engine_generation: Literal["auto", "v0", "v1"] = "auto"
    frontend: Frontend = "python"
    model: str = "simulated/target-8b"
    served_model_name: str | None = None
    method: str | None = "eagle3"
    draft_model: str | None = "simulated/draft-head"
    k: int = 3
    acceptance: Acceptance = 0.72
    short_draft_share: float = 0.0
    no_draft_share: float = 0.0
    engines: int = 1
    api_servers: int = 1
    disable_log_stats: bool = False

    load: str | float = "4/s"  # requests per second, or a number of concurrent requests (16)
    prompt_tokens: int = 256
    output_tokens: int = 128
    output_sigma: float = 0.5
    max_num_seqs: int = 64
    max_model_len: int = 8192
    kv_cache_tokens: int = 200_000
    prefix_cache_hit_share: float = 0.25
    latency: LatencyModel = LatencyModel()

    incidents: tuple[Incident, ...] = ()
    seed: int = 42
    speed: float = 1.0
    uptime_seconds: float = 0.0  # real seconds; every process says that it began so much earlier
    log_interval_seconds: float | None = None  # None: the release's own, 5 s (V0 engine) or 10 s

    listen_address: str = "127.0.0.1:8080"
    log_path: str = "-"  # "-" is standard output
    duration_seconds: float | None = None  # real seconds; None runs until stopped

    def __post_init__(self) -> None:
        for prefix, holder in (("", self), ("latency.", self.latency)):
            for name in holder.__struct_fields__:
                _check_number(prefix, name, getattr(holder, name))
        _ = self.synthetic_load
        if self.speculates and self.k < 1:
            raise ConfigError(f"k: expected at least 1 with a method, found {self.k}")
        if self.speculates:
            position_rates(self.acceptance, self.k)
        for index, incident in enumerate(self.incidents):
            check_incident(incident, k=self.k if self.speculates else 0, where=f"incidents[{index}]")

    @property
    def speculates(self) -> bool:
        """Whether the predictor was started with a speculative configuration."""
        return self.method is not None

    @property
    def rates(self) -> tuple[float, ...]:
        """Unconditional acceptance of every position; empty if speculation is off."""
        return position_rates(self.acceptance, self.k) if self.speculates else ()

    @property
    def synthetic_load(self) -> Load:
        """``load``, parsed."""
        try:
            return parse_load(self.load)
        except ValueError as error:
            raise ConfigError(f"load: {error}") from None

    @property
    def model_name(self) -> str:
        """The value of the label ``model_name``."""
        return self.served_model_name or self.model


def load_simulation(scenario_file: str | None, overrides: Mapping[str, Any]) -> SimulatorSettings:
    """Return the settings of a scenario file, or the defaults, with ``overrides`` on top.

    ``overrides`` maps field names, including those of the latency model, to values; its incidents follow the file's.
    Without ``k``, a list of acceptance rates sets it. Method ``none`` switches speculation off. Raises
    :class:`ConfigError`, which names the file, the line and the key.
    """
    document = read_yaml(scenario_file, ConfigError) if scenario_file else None
    scenario: Scenario = document.read(Scenario) if document else Scenario()
    values = scenario.settings.fields(SimulatorSettings) if scenario.settings else {}
    incidents = (*values.get("incidents", ()), *scenario.incidents, *overrides.get("incidents", ()))
    latency = {name: overrides[name] for name in LatencyModel.__struct_fields__ if name in overrides}
    values |= {name: value for name, value in overrides.items() if name not in latency}
    values |= {
        "incidents": incidents,
        "latency": msgspec.structs.replace(values.get("latency", LatencyModel()), **latency),
    }
    if "k" not in values and isinstance(rates := values.get("acceptance"), tuple):
        values["k"] = len(rates)
    if values.get("method") == "none":
        values["method"] = None
    try:
        return SimulatorSettings(**values)
    except ConfigError as error:
        key = str(error).partition(":")[0]
        if document is None or key.removeprefix("latency.") in overrides:
            raise ConfigError(f"simulate: {error}") from None
        (document if key.startswith("incidents") else scenario.settings or document).blame(error)


def _check_number(prefix: str, name: str, value: object) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return
    if name in _POSITIVE and not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{prefix}{name}: expected a number above 0, found {value:g}")
    if name in _NOT_NEGATIVE and not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{prefix}{name}: expected 0 or more, found {value:g}")
    if name in _SHARES and not 0 <= value <= 1:
        raise ConfigError(f"{prefix}{name}: expected a share from 0 to 1, found {value:g}")
