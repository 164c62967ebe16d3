"""The decision of a comparison: one word, the reasons, and the next step."""

from __future__ import annotations

from typing import Literal

import msgspec

from specdec_exporter.comparison.latency import LatencyComparison, Outcome, Pair
from specdec_exporter.comparison.likeness import TITLES
from specdec_exporter.formatting import percent, seconds
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import ResolvedPolicy

DecisionCode = Literal["faster", "no_difference", "slower", "tail_worse", "mixed", "undecided"]
REGRESSIONS: frozenset[DecisionCode] = frozenset({"slower", "tail_worse", "mixed"})


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """``regression``: whether anything became slower beyond doubt; a slower tail counts."""

    code: DecisionCode
    headline: str
    reasons: tuple[str, ...]
    action: str
    regression: bool


def decide(
    latencies: tuple[LatencyComparison, ...],
    baseline: Figures | None,
    candidate: Figures | None,
    *,
    policy: ResolvedPolicy,
    preemptions: Pair,
) -> Decision:
    """Decide from the outcomes of the SLIs.

    The figures (``None``: nothing was drafted) and the policy choose the next step.
    """
    outcomes: dict[Outcome, list[str]] = {}
    for latency in latencies:
        outcomes.setdefault(latency.outcome, []).append(TITLES[latency.sli])
    code, headline = _headline(outcomes, some_are_faster=any(map(_some_are_faster, latencies)))
    reasons = [reason for latency in latencies for reason in _reasons(latency)]
    if candidate is not None and candidate.acceptance_ratio is not None:
        minimum = f"minimum {policy.acceptance_ratio_min:.2f} for this method"
        reasons.append(f"acceptance of the candidate {candidate.acceptance_ratio:.2f} ({minimum})")
    if (preemptions.candidate or 0.0) > (preemptions.baseline or 0.0):
        reasons.append(
            f"the candidate preempted requests {preemptions.candidate:,.0f} times, the baseline "
            f"{preemptions.baseline or 0:,.0f} times: the candidate's KV cache is too small"
        )
    if code == "undecided":
        action = "Fix what the flags and reasons name, record again, and compare again."
    elif outcomes.get("tail_worse") and code != "slower":
        action = (
            "Find the slow requests: long prompts, one client, one language, one temperature. Route them to a service "
            "without speculation or with another k. The mean hides them."
        )
    else:
        action = _action(code, baseline, candidate, policy)
    return Decision(code=code, headline=headline, reasons=tuple(reasons), action=action, regression=code in REGRESSIONS)


def _headline(outcomes: dict[Outcome, list[str]], *, some_are_faster: bool) -> tuple[DecisionCode, str]:
    faster, slower, tail = (outcomes.get(name, []) for name in ("faster", "slower", "tail_worse"))
    if slower:
        better = f", faster in {_list(faster)}" if faster else ""
        worse = f", and a worse tail in {_list(tail)}" if tail else ""
        return "mixed" if some_are_faster else "slower", f"Slower in {_list(slower)}{better}{worse}"
    if tail:
        rest = f"; faster in {_list(faster)}" if faster else ""
        return "tail_worse", f"The slowest requests became slower in {_list(tail)}, the typical one did not{rest}"
    if faster:
        return "faster", f"Faster in {_list(faster)}"
    if outcomes.get("no_difference"):
        return "no_difference", f"No difference shown in {_list(outcomes['no_difference'])}"
    return "undecided", "These recordings allow no decision"


def _some_are_faster(latency: LatencyComparison) -> bool:
    """Whether all requests or a part of them became faster."""
    head = latency.head_shift
    return latency.outcome == "faster" or (latency.outcome == "tail_worse" and head is not None and head.shifted)


def _list(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _reasons(latency: LatencyComparison) -> list[str]:
    title = TITLES[latency.sli]
    if latency.outcome == "undecided":
        return [f"{title}: not judged: {latency.undecided_because}"]
    found = []
    if latency.mean_ratio is not None:
        means = f"{seconds(latency.mean_seconds.baseline)} -> {seconds(latency.mean_seconds.candidate)}"
        found.append(f"{title}: mean {means}, {times(latency.mean_ratio)}")
    tail, head = latency.tail_shift, latency.head_shift
    if tail is not None and tail.shifted:
        found.append(
            f"{title}: {percent(tail.share)} more of the requests than expected are slower than "
            f"{seconds(tail.limit_seconds)} (chance explains at most {percent(tail.margin)})"
        )
        if head is not None and head.shifted:
            found.append(
                f"{title}: {percent(head.share)} more of the requests are faster than {seconds(head.limit_seconds)}"
            )
    return found


def times(estimate: Estimate | None, unit: str = "x") -> str:
    """``1.84x (1.79 to 1.90)``; without the brackets if there is no interval."""
    if estimate is None:
        return "-"
    value = f"{estimate.value:.2f}{unit}"
    if estimate.low is None and estimate.high is None:
        return value
    low, high = ("?" if bound is None else f"{bound:.2f}" for bound in (estimate.low, estimate.high))
    return f"{value} ({low} to {high})"


def _action(
    code: DecisionCode,
    baseline: Figures | None,
    candidate: Figures | None,
    policy: ResolvedPolicy,
) -> str:
    turned_on = baseline is None and candidate is not None
    turned_off = baseline is not None and candidate is None
    if code == "mixed":
        return (
            "Decide what matters more to your users: the first token or the whole answer. For a slower first token, "
            "look at waiting requests and prompt lengths. For slower answers, look at acceptance and batch size."
        )
    if code == "no_difference":
        if turned_on:
            return (
                "Speculation costs memory and shows no gain here: switch it off. Or record longer, if a gain smaller "
                "than the interval would be worth it."
            )
        return "Keep the simpler setting, or record longer to see a smaller difference."
    if code == "faster":
        if turned_on:
            return "Keep speculation on. Serve the baseline, and an alert fires when the speed-up disappears."
        if turned_off:
            return "Leave speculation off for this traffic: it is faster without."
        return "Keep the candidate's setting, and make its recording the new baseline."
    if turned_off:
        return "Leave speculation on: it is slower without."
    if not turned_on or candidate is None:
        return "Keep the baseline's setting, and look at what else differs (the flags name it)."
    return _remedy(candidate, policy)


def _remedy(candidate: Figures, policy: ResolvedPolicy) -> str:
    """Say what to do about speculation that slows decoding down."""
    rate = candidate.acceptance_ratio
    if rate is not None and rate >= policy.acceptance_ratio_min:
        return (
            "Acceptance is good, but each step now costs too much. Compare at today's batch size, and look at the cost "
            "of the draft model. Limit speculation to small batches, or switch it off."
        )
    return "Switch speculation off. Then look at the draft head, the sampling temperature and the load."
