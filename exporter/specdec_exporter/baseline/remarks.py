"""What a reader of a baseline's numbers must know, in words."""

from __future__ import annotations

from collections.abc import Iterator

from specdec_exporter.baseline.file import SLIS, Baseline
from specdec_exporter.predictor.engines.engine import VLLM
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.steptime import step_times


def remarks(baseline: Baseline) -> tuple[str, ...]:
    """Return in words what a reader of the baseline's numbers must know."""
    told = [f"{name.replace('_', ' ')} not given (--{name.replace('_', '-')})" for name in baseline.context.missing]
    if baseline.interrupted:
        told.append(f"interrupted after {baseline.duration_seconds:g} s")
    few = load_policy().latency.min_requests
    if (baseline.requests_finished or 0.0) < few:
        told.append(f"{baseline.requests_finished or 0:,.0f} requests: fewer than {few} decide nothing")
    if baseline.counts.draft_tokens and baseline.method is None:
        by = "only the predictor's log tells it (--predictor.log-path)"
        if baseline.engine is not VLLM:
            by = f"{baseline.engine.name} did not tell it"
        told.append(f"speculation's method is not known: {by}")
    if baseline.adaptive_verification:
        told.append(PARTLY_VERIFIED)
    missing = [sli for sli in SLIS if getattr(baseline, sli) is None]
    told += [f"no {sli.removesuffix('_seconds').replace('_', ' ')} was recorded" for sli in missing]
    return (
        *told,
        *_remarks_on_caches(baseline.counts),
        *_remarks_on_blocks(len(baseline.blocks)),
        *_remarks_on_step_times(baseline),
    )


def _remarks_on_caches(counts: Counts) -> Iterator[str]:
    if counts.prompt_tokens and counts.step_seconds is not None and counts.cached_prompt_tokens is None:
        yield "cached prompt tokens were not counted, so all prompt tokens are taken for computed ones"


def _remarks_on_blocks(blocks: int) -> Iterator[str]:
    if not blocks:
        yield "no blocks of time, so chance is underestimated and intervals come out too narrow; record again"
    elif blocks < load_policy().latency.enough_blocks:
        yield f"only {blocks} blocks of time: they tell little about chance; record for longer"


def _remarks_on_step_times(baseline: Baseline) -> Iterator[str]:
    policy = load_policy()
    drafted = bool(baseline.counts.draft_tokens)
    if step_times(baseline.intervals, policy, per_token=drafted):
        return
    intervals, needed = len(baseline.intervals), policy.chance.fewest_batches
    steps = sum(load.tokens if drafted else load.steps for load in baseline.intervals)
    if baseline.counts.steps is None:
        why = "the predictor does not expose its step latency"
    elif baseline.counts.step_seconds is None:
        why = "V0 engines do not count step_seconds; with another engine, record again"
    elif intervals < needed:
        why = f"{intervals} intervals with decoding steps, {needed} are needed; record for longer"
    elif steps < policy.cost.min_steps:
        why = f"{steps:,.0f} decoding steps, {policy.cost.min_steps} are needed; record for longer"
    else:
        why = "one stall took most of the time of all steps; record again"
    yield f"no step times by load, so what a draft costs cannot be computed: {why}"
