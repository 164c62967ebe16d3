"""The evidence that a judgement rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import VLLM, InferenceEngine
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.facts.known import pitfalls_of
from specdec_exporter.predictor.versions import KnownPitfall, parse_release
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.measured import Measured
from specdec_exporter.speculation.steptime import StepTimes

StateName = Literal["unreachable", "stats_disabled", "speculation_off", "idle", "not_drafting", "drafting"]

# Whether generated tokens come with drafts; the other states do not tell.
_DRAFTING: Mapping[str, bool] = {"drafting": True, "not_drafting": False}
_SPECULATIVE: Mapping[str, bool] = {"drafting": True, "not_drafting": True, "speculation_off": False}


class DecodingBaseline(msgspec.Struct, frozen=True):
    """How fast the baseline decoded, and with which prompts.

    ``times`` are its times per output token. ``mean_acceptance_length``: of its drafts, tokens; ``None`` without.

    ``mean_seconds`` is the mean time per output token of its ``requests``, ``None`` if not recorded. ``speculative``:
    recorded with drafts. ``model_name``: the served model it belongs to. ``step_times`` are those without drafts, by
    load; ``None`` if it was recorded with drafts or without loads. ``generation_tokens`` of all requests in ``seconds``
    tell its load; ``None`` if not known, as ``mean_prompt_tokens``, the mean length of a prompt, and
    ``cached_prompt_ratio``, the share of the prompt tokens that a cache held.
    """

    mean_seconds: float | None
    requests: float
    speculative: bool
    times: Histogram | None = None
    mean_acceptance_length: float | None = None
    model_name: str | None = None
    step_times: StepTimes | None = None
    seconds: float | None = None
    generation_tokens: float | None = None
    mean_prompt_tokens: float | None = None
    cached_prompt_ratio: float | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a judgement of one predictor rests on, from its metrics or its log.

    ``figures`` belong to the span to judge, and ``cost`` compares it with the baseline's step times; ``None`` without
    such a baseline. ``log_windows`` counts spec-decode lines; ``None``: no log is read. ``deployment`` has what the
    server's arguments say. ``draft_overhead_ratio``: seconds of drafting / seconds of an iteration, by the engine;
    ``interval_acceptance_length`` is that of its last interval, by its own gauge. ``unusable``: why counters that a
    verdict rests on cannot be used, in words.
    """

    state: StateName
    figures: Figures | None = None
    vllm_version: str | None = None
    engine_generation: str | None = None
    method: str | None = None
    num_speculative_tokens: int | None = None
    engines: int = 1
    log_windows: int | None = None
    warnings: frozenset[str] = frozenset()
    baseline: DecodingBaseline | None = None
    cost: Measured | None = None
    deployment: Deployment = Deployment()
    inference_engine: InferenceEngine = VLLM
    generated: bool = True
    unusable: tuple[str, ...] = ()
    draft_overhead_ratio: float | None = None
    interval_acceptance_length: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the speed-up against the baseline's step times is known."""
        return self.cost is not None and self.cost.speedup is not None

    @property
    def proves_nothing(self) -> bool:
        """Whether missing drafts prove nothing: counters are there without speculation, or after the first request."""
        engine = self.inference_engine
        return engine.counts_without_speculation or (engine.counts_at_end and not self.generated)

    @property
    def speedup_max(self) -> float | None:
        """The most that the speed-up can be where the engine tells what drafting costs.

        An iteration without drafting takes at least as long as a step without speculation.
        """
        length = self.figures.mean_acceptance_length if self.figures else None
        overhead = self.draft_overhead_ratio
        return None if length is None or overhead is None else length * (1.0 - overhead)

    def known(self) -> Deployment:
        """Return the deployment with all that the evidence shows of it."""
        shown = {
            "release": parse_release(self.vllm_version or ""),
            "engine_generation": self.engine_generation,
            "method": self.method,
            "num_speculative_tokens": self.num_speculative_tokens,
            "drafting": _DRAFTING.get(self.state),
            "log_windows": self.log_windows,
            "speculative": _SPECULATIVE.get(self.state),
        }
        known = {field: value for field, value in shown.items() if value is not None}
        return msgspec.structs.replace(self.deployment, engines=self.engines, warnings=self.warnings, **known)

    def pitfalls(self) -> tuple[KnownPitfall, ...]:
        """Return the known pitfalls that apply to this evidence; those that cost requests come first.

        Only those of vLLM are known.
        """
        return pitfalls_of(self.known()) if self.inference_engine is VLLM else ()
