"""Figures of the last window, for people."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_exporter.serving.families.family import ENGINE, Group, gauge, histogram
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.state.view import EngineView


def _known(ratios: Sequence[float | None]) -> dict[object, float]:
    return {position: ratio for position, ratio in enumerate(ratios) if ratio is not None}


DERIVED: Group[Figures] = Group(
    ENGINE,
    (
        gauge(
            "specdec_acceptance_ratio",
            "Acceptance rate: accepted draft tokens / draft tokens, or verified ones where vLLM counts them.",
            lambda f: f.acceptance_ratio,
            absent="until the second reading, without draft tokens in the window, adaptive verification",
        ),
        gauge(
            "specdec_mean_acceptance_length",
            "Mean acceptance length: 1 + accepted tokens / drafts, the bonus token included.",
            lambda f: f.mean_acceptance_length,
            absent="without drafts in the window, or a count of them (0.8.3, 0.8.4)",
        ),
        gauge(
            "specdec_mean_draft_length",
            "Mean draft length: draft tokens / drafts. Below k, some drafts are short.",
            lambda f: f.mean_draft_length,
            absent="as `specdec_mean_acceptance_length`; adaptive verification",
        ),
        gauge(
            "specdec_tokens_per_step",
            "Tokens per step: (generation tokens - requests) / request-steps, steps without a draft included. "
            "A request counts when its first token comes.",
            lambda f: f.tokens_per_step,
            absent="without decoding in the window",
        ),
        gauge(
            "specdec_position_acceptance_ratio",
            "Per-position rate: accepted at the position / drafts, or those with such a token where vLLM counts them.",
            lambda f: _known(f.per_position),
            absent="as `specdec_mean_acceptance_length`; positions above 0 with adaptive verification",
            labels=("position",),
        ),
        gauge(
            "specdec_position_conditional_acceptance_ratio",
            "Conditional rate: accepted at the position / accepted at the position before. "
            "It is exact only when no draft is shorter than k.",
            lambda f: _known(f.conditional),
            absent="as above; positions that no draft reached",
            labels=("position",),
        ),
    ),
    remark="For people, over the last {window}.",
)

WINDOWS: Group[EngineView] = Group(
    ENGINE,
    (
        histogram(
            "specdec_window_acceptance_ratio",
            "Acceptance rates of short windows, for P10, P50 and P90 of windows, not of requests: the more requests "
            "share a window, the less it differs. A window runs from one scrape to another, "
            "lasts at least {policy.short_window_seconds:g} s and has at least {policy.min_drafts} drafts.",
            lambda v: v.track.ratios.histogram if v.has_windows else None,
            absent="fetch failed, speculation off, V0 engine, adaptive verification",
        ),
        histogram(
            "specdec_request_acceptance_ratio",
            "Acceptance rates of finished requests.",
            lambda v: v.snapshot.request_acceptance if v.snapshot else None,
            absent="fetch failed; all releases up to 0.33.0, only builds that count it have it",
        ),
        gauge(
            "specdec_kv_cache_capacity_tokens",
            "Tokens that fit into the engine's KV cache. Before 0.24.0 and without a log it is blocks x block size: a "
            "guess for models with several kinds of layers, and with context parallelism.",
            lambda v: v.kv_cache_tokens,
            absent="fetch failed; Rust frontend without a log",
        ),
    ),
)
