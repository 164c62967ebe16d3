"""What this exporter itself sees that makes figures of a predictor, or their comparison, hard to believe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.view import counts_of_window, engines_left

Problem = Literal[
    "positions_differ",
    "several_processes",
    "engine_left",
    "baseline_old",
    "baseline_other_release",
    "baseline_other_method",
    "prompts_longer",
]

# As a family's text: with fields of the policy and the window.
PROBLEMS: Final[dict[Problem, str]] = {
    "positions_differ": "accepted tokens by position differ by more than {policy.data.positions_tolerance:.0%} from "
    "all accepted tokens, over {window} with at least {policy.data.positions_min_drafts} drafts; not on V0 engines and "
    "with adaptive verification",
    "several_processes": "several processes answered at the predictor's URL within 10 minutes: gauges show one at a "
    "time",
    "engine_left": "an engine that generated or drafted in the last {policy.data.engine_left_seconds:g} s is no longer "
    "in the predictor's metrics, which can be read and are of the same process",
    "baseline_old": "the baseline file is older than {policy.data.baseline_days:g} days",
    "baseline_other_release": "the baseline file names another release of vLLM than runs",
    "baseline_other_method": "the baseline file names another method of speculation than the predictor's log",
    "prompts_longer": "the mean prompt of the last {policy.data.traffic_seconds:g} s is more than "
    "{policy.latency.prompt_length_ratio:g} times as long as that of the baseline file, of at least "
    "{policy.latency.min_requests} requests",
}


def problems_of(state: PredictorState) -> Iterator[Problem]:
    """Yield what is wrong now. What nobody knows is not wrong."""
    if _positions_differ(state):
        yield "positions_differ"
    if state.process_count > 1:
        yield "several_processes"
    if engines_left(state):
        yield "engine_left"
    if state.pinned is not None and state.fit.model_name is not None:
        yield from _of_baseline(state, state.pinned, state.fit.model_name)


def _positions_differ(state: PredictorState) -> bool:
    policy, counts = state.policy.data, counts_of_window(state)
    if counts is None or state.running.deployment.adaptive_verification:
        return False
    by_position, accepted = sum(counts.accepted_per_position), counts.accepted_tokens
    if not accepted or not by_position or (counts.drafts or 0.0) < policy.positions_min_drafts:
        return False
    return abs(1.0 - by_position / accepted) > policy.positions_tolerance


def _of_baseline(state: PredictorState, pinned: PinnedBaseline, model_name: str) -> Iterator[Problem]:
    policy = state.policy
    if state.wall_clock() - pinned.baseline.recorded_timestamp > policy.data.baseline_days * 86400:
        yield "baseline_old"
    if pinned.is_of_other_release(state.running.vllm_version):
        yield "baseline_other_release"
    if pinned.is_of_other_method(state.method):
        yield "baseline_other_method"
    window, recorded = state.traffic.get(model_name), pinned.baseline.mean_prompt_tokens
    traffic = window.lately(state.clock()) if window else None
    if traffic is None or recorded is None or traffic.prompts < policy.latency.min_requests:
        return
    if traffic.prompt_tokens > policy.latency.prompt_length_ratio * recorded * traffic.prompts:
        yield "prompts_longer"
