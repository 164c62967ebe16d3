"""The settings of a simulated predictor: a scenario file, or made in code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from demo.simulator.scenario import Acceptance, Collapse, Incident, Load, position_rates

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class SettingsError(Exception):
    """Settings that cannot be: names the file, the value and what was expected."""


class LatencyModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Durations in simulated seconds. One engine step serves every decoding request.

    A step takes ``step_seconds`` + ``draft_token_seconds`` per token of its longest draft + ``request_seconds`` for
    every request after the first + ``batched_token_seconds`` for every verified token of the other drafts, times a
    lognormal factor of ``step_sigma``. Prefill is lognormal around ``prefill_seconds``. ``tail_share`` of the requests
    are ``tail_factor`` times slower, in prefill and in decoding.
    """

    step_seconds: Positive = 0.02
    draft_token_seconds: NotNegative = 0.0015
    request_seconds: NotNegative = 0.0002
    batched_token_seconds: NotNegative = 0.0
    step_sigma: NotNegative = 0.05
    prefill_seconds: Positive = 0.1
    prefill_sigma: NotNegative = 0.3
    tail_share: Share = 0.005
    tail_factor: Positive = 3.0


class SimulatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A simulated predictor. Durations are simulated seconds, ratios 0..1. A file's values are checked when it is read.

    ``method`` is ``None`` if speculation is off. ``acceptance`` is the mean rate of a geometric curve over ``k``
    positions, or the unconditional rates of the positions. ``short_draft_share`` of the drafts are shorter than ``k``,
    and ``no_draft_share`` of the request-steps have no draft, as with ngram. ``adaptive_verification`` (since 0.28.0):
    a busy step verifies only the first tokens of each draft, if ``batched_token_seconds`` makes that pay.
    """

    vllm_version: str = "0.32.0"
    engine_generation: Literal["v0", "v1"] | None = None  # None: V1 from 0.8.3 on
    model: str = "simulated/target-8b"
    served_model_name: str | None = None
    method: str | None = "eagle3"
    draft_model: str | None = "simulated/draft-head"
    k: int = 3
    acceptance: Acceptance = 0.72
    short_draft_share: Share = 0.0
    no_draft_share: Share = 0.0
    adaptive_verification: bool = False
    engines: Count = 1

    load: str | int = "4/s"  # requests per second, or a number of concurrent requests (16)
    prompt_tokens: Count = 256
    output_tokens: Count = 128
    max_num_seqs: Count = 64
    max_model_len: Count = 8192
    kv_cache_tokens: Count = 200_000
    latency: LatencyModel = LatencyModel()

    incidents: tuple[Incident, ...] = ()
    seed: int = 42
    speed: Positive = 1.0  # simulated seconds per real second
    uptime_seconds: NotNegative = 0.0  # real seconds; the first process says that it began so much earlier

    listen_address: str = "127.0.0.1:8080"
    log_path: str = "/dev/stdout"

    def __post_init__(self) -> None:
        Load.of(self.load)
        if self.speculates and self.k < 1:
            raise ValueError(f"k: expected at least 1 with a method, found {self.k}")
        if not self.speculates and any(isinstance(incident, Collapse) for incident in self.incidents):
            raise ValueError("incidents: acceptance cannot collapse while speculation is off")
        for acceptance in (self.acceptance, *(i.acceptance for i in self.incidents if isinstance(i, Collapse))):
            if self.speculates:
                position_rates(acceptance, self.k)

    @property
    def speculates(self) -> bool:
        """Whether the predictor was started with a speculative configuration."""
        return self.method is not None

    @property
    def rates(self) -> tuple[float, ...]:
        """Unconditional acceptance of every position; empty if speculation is off."""
        return position_rates(self.acceptance, self.k) if self.speculates else ()

    @property
    def model_name(self) -> str:
        """The value of the label ``model_name``."""
        return self.served_model_name or self.model


def load_settings(scenario: str | None, changes: Mapping[str, Any]) -> SimulatorSettings:
    """Return the settings of a scenario file, or the defaults, with ``changes`` instead of its values.

    Raises :class:`SettingsError`.
    """
    where = scenario or "flags"
    try:
        told = yaml.safe_load(Path(scenario).read_text(encoding="utf-8")) if scenario else {}
        if not isinstance(told, dict):
            raise SettingsError(f"{where}: expected settings, found {type(told).__name__}")
        return msgspec.convert({**told, **changes}, SimulatorSettings)
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror}") from None
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise SettingsError(f"{where}: {error}") from None
