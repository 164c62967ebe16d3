"""How recordings were made, and what traffic they hold: what a careful benchmark would have done otherwise.

These are remarks, not decisions. They ask for the same seed, one temperature, a warm-up, several runs per prompt, and
medians that agree with the means. They also name traffic that speculation does little for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdec_exporter.baseline.file import SLIS, Baseline
from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.latency import LatencyComparison, direction
from specdec_exporter.comparison.likeness import TITLES, Flag, sample_of, speculates
from specdec_exporter.comparison.requests import runs_per_prompt, temperatures_of, workload_of
from specdec_exporter.predictor.speculativeconfig import deployment_of
from specdec_exporter.speculation.policy import Policy


def conduct_flags(
    baseline: Baseline, candidate: Baseline, latencies: Sequence[LatencyComparison], policy: Policy
) -> Iterator[Flag]:
    """Yield what to know about both recordings; ``latencies`` were compared already."""
    seeds = [deployment_of(each.context.command).seed for each in (baseline, candidate)]
    if seeds[0] != seeds[1] and all(each.context.command for each in (baseline, candidate)):
        one, other = ("not given" if seed is None else seed for seed in seeds)
        words = f"--seed: {one} in the baseline, {other} in the candidate"
        yield Flag("seed_differs", words, "Start both with the same --seed.")
    for each in latencies:
        mean, median = (direction(ratio, policy.latency) for ratio in (each.mean_ratio, each.quantiles[0].ratio))
        if {mean, median} == {"faster", "slower"}:
            words = f"{TITLES[each.sli]}: the mean is {mean}, the median (P50) is {median}"
            yield Flag("median_contradicts_mean", words, "Look at the tail: a few requests move the mean.")
    sides = (("the baseline", baseline), ("the candidate", candidate))
    for name, side in sides:
        yield from side_flags(name, side, policy)
    temperatures = temperatures_of(workload_of(candidate))
    if speculates(candidate) and temperatures and temperatures[-1] > (high := policy.comparison.temperature_high):
        words = f"the candidate's requests have temperatures up to {temperatures[-1]:g}, above {high:g}"
        yield Flag("temperature_high", words, "Sampling lowers acceptance: record lower temperatures too.")
    yield from _bound_by_first_token(baseline, policy)


def side_flags(name: str, side: Baseline, policy: Policy) -> Iterator[Flag]:
    """Yield what to know about one recording; ``name`` is what messages call it."""
    limits, workload = policy.comparison, workload_of(side)
    temperatures, runs = temperatures_of(workload), runs_per_prompt(workload)
    if workload is not None and not temperatures and speculates(side):
        words = f"{name}'s request parameters name no temperature, and acceptance depends on it"
        yield Flag("temperature_not_given", words, "Record with --request-parameters that name it: temperature 0.")
    if len(temperatures) > 1 and speculates(side):
        words = f"{name}'s requests have temperatures from {temperatures[0]:g} to {temperatures[-1]:g}"
        action = "Record each temperature by itself: a good mean may hide requests that speculation slows down."
        yield Flag("temperature_mixed", words, action)
    if runs is not None and runs < limits.runs_per_prompt_min:
        words = f"{name} has {runs} runs of each prompt, fewer than {limits.runs_per_prompt_min}"
        yield Flag("few_runs", words, "Send the same prompts more often.")
    if cold := _cold_start(side, policy):
        words = f"{name} begins slowly: {cold}"
        yield Flag("cold_start", words, "Let the server answer some requests before the recording starts.")
    if varied := _varied_acceptance(side, policy):
        words = f"{name}'s acceptance differs between parts of the recording: {varied}"
        action = "Record kinds of requests apart: those with low acceptance may be slower with speculation."
        yield Flag("acceptance_varies", words, action)


def _cold_start(side: Baseline, policy: Policy) -> str | None:
    """Return in words which latency was slower in the first block than in each other one, and by far than in all."""
    for key in SLIS[:2]:
        found = [histogram for block in side.blocks if (histogram := getattr(block, key)) and histogram.count]
        if len(found) < max(policy.latency.enough_blocks, 2) or len(found) < len(side.blocks):
            continue
        first, *others = (histogram.mean for histogram in found)
        rest = sum(histogram.sum for histogram in found[1:]) / sum(histogram.count for histogram in found[1:])
        if first > max(others) and first > policy.comparison.cold_start_ratio * rest > 0.0:
            name = key.removesuffix("_seconds").replace("_", " ")
            return f"{name} is {first / rest:.1f} times that of the rest in the first of {len(found)} blocks"
    return None


def _varied_acceptance(side: Baseline, policy: Policy) -> str | None:
    """Return in words how far the acceptance of whole blocks lies apart, among those with enough drafts."""
    counts = [block.counts for block in side.blocks if (block.counts.drafts or 0.0) >= policy.min_drafts]
    rates = [(each.accepted_tokens or 0.0) / each.draft_tokens for each in counts if each.draft_tokens]
    if len(rates) < policy.latency.enough_blocks or max(rates) - min(rates) <= policy.comparison.acceptance_range_max:
        return None
    return f"{min(rates):.0%} to {max(rates):.0%} in {len(rates)} blocks"


def _bound_by_first_token(plain: Baseline, policy: Policy) -> Iterator[Flag]:
    """Yield a flag if most of a request's time without speculation goes by before its first token."""
    first, whole = (sample_of([plain], sli) for sli in ("time_to_first_token", "request_latency"))
    if speculates(plain) or first is None or whole is None:
        return
    means = [distribution.mean(each, policy.latency) for each in (first, whole)]
    if not means[0] or not means[1] or not means[1].value:
        return
    share = means[0].value / means[1].value
    if share > policy.comparison.first_token_share_max:
        words = f"the first token takes {min(share, 1.0):.0%} of a request's time without speculation"
        action = (
            "Speculation speeds up only the rest. Look at waiting requests, prompt lengths and prefix caching first."
        )
        yield Flag("first_token_bound", words, action)
