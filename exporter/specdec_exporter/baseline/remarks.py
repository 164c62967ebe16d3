"""What a reader of a baseline's numbers must know, in words."""

from __future__ import annotations

from collections.abc import Iterator

from specdec_exporter.baseline.file import SLIS, Baseline
from specdec_exporter.speculation.cost import step_times
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.speculation.policy import load_policy


def remarks(baseline: Baseline) -> tuple[str, ...]:
    """Return in words what a reader of the baseline's numbers must know."""
    found = [f"{name.replace('_', ' ')} not given (--{name.replace('_', '-')})" for name in baseline.context.missing]
    if baseline.interrupted:
        found.append(f"interrupted after {baseline.duration_seconds:g} s")
    few = load_policy().latency.min_requests
    if (baseline.requests_finished or 0.0) < few:
        found.append(f"{baseline.requests_finished or 0:,.0f} requests: fewer than {few} decide nothing")
    if baseline.counts.draft_tokens and baseline.method is None:
        found.append("speculation's method is not known: only the predictor's log tells it (--predictor.log-path)")
    if baseline.adaptive_verification:
        found.append(PARTLY_VERIFIED)
    missing = [sli for sli in SLIS if getattr(baseline, sli) is None]
    found += [f"no {sli.removesuffix('_seconds').replace('_', ' ')} was recorded" for sli in missing]
    return (*found, *_remarks_on_blocks(len(baseline.blocks)), *_remarks_on_load(baseline))


def _remarks_on_blocks(blocks: int) -> Iterator[str]:
    if not blocks:
        yield "no blocks of time: intervals take requests for independent, and come out too narrow; record again"
    elif blocks < load_policy().latency.enough_blocks:
        yield f"only {blocks} blocks of time: they tell little about chance; record for longer"


def _remarks_on_load(baseline: Baseline) -> Iterator[str]:
    policy = load_policy().cost
    if step_times(baseline.by_load, policy).points:
        return
    found, advice = "no step times by load", "record again"
    if baseline.by_load:
        found = f"no load has {policy.min_steps} request-steps in {policy.min_intervals} intervals"
        advice = "record for longer"
    elif baseline.counts.steps is None:
        advice = "the predictor does not expose its step latency"
    elif baseline.counts.step_seconds is None:
        advice = "V0 engines do not count step_seconds; with another engine, record again"
    yield f"{found}: what a draft costs cannot be computed; {advice}"
