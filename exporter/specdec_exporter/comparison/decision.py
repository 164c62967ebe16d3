"""The decision of a comparison: one word, the reasons, and the next step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from specdec_exporter.comparison.acceptance import AcceptanceChange
from specdec_exporter.comparison.latency import LatencyComparison, Outcome, Pair
from specdec_exporter.comparison.likeness import TITLES
from specdec_exporter.formatting import percent, percentage_points, seconds
from specdec_exporter.speculation.cost import KChoice, MeasuredCost
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import ResolvedPolicy

DecisionCode = Literal["faster", "no_difference", "inconclusive", "slower", "tail_worse", "mixed", "undecided"]
_LONGEST = 100  # nobody records this many times as long
REGRESSIONS: frozenset[DecisionCode] = frozenset({"slower", "tail_worse", "mixed"})


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """``regression``: whether anything became slower beyond doubt, or acceptance fell and nothing became faster.

    A slower tail counts.
    """

    code: DecisionCode
    headline: str
    reasons: tuple[str, ...]
    action: str
    regression: bool


class Drafting(NamedTuple):
    """What drafts cost at like load. ``choice`` is the k that follows, ``None`` if its curve is not known.

    ``pays``: whether the speed-up at like load is large enough, beyond chance; ``None`` if that cannot be told.
    """

    cost: MeasuredCost
    choice: KChoice | None
    pays: bool | None


def decide(
    latencies: tuple[LatencyComparison, ...],
    baseline: Figures | None,
    candidate: Figures | None,
    *,
    drafting: Drafting | None,
    policy: ResolvedPolicy,
    preemptions: Pair,
    acceptance: AcceptanceChange | None = None,
) -> Decision:
    """Decide from the outcomes of the SLIs.

    The figures (``None``: nothing was drafted) and the measured cost of a draft choose the next step. Without a
    measured cost no other k is named.
    """
    outcomes: dict[Outcome, list[str]] = {}
    for latency in latencies:
        outcomes.setdefault(latency.outcome, []).append(TITLES[latency.sli])
    code, headline = _headline(outcomes, some_are_faster=any(map(_some_are_faster, latencies)))
    reasons = [reason for latency in latencies for reason in _reasons(latency)]
    reasons += _reasons_of_drafts(candidate, drafting, policy)
    reasons += _reasons_of_preemptions(preemptions)
    reasons += _acceptance_reasons(acceptance)
    dropped = acceptance if acceptance is not None and acceptance.outcome == "dropped" else None
    if dropped is not None:
        fall = dropped.difference.value if dropped.difference else None
        headline += f"; acceptance changed by {percentage_points(fall)}"
    turned_on = baseline is None and candidate is not None
    if dropped is not None and code not in REGRESSIONS:
        action = _revisit(dropped, faster=code == "faster")
    else:
        action = _of_outcomes(code, outcomes, turned_on=turned_on) or _action(code, baseline, candidate, drafting)
    return Decision(
        code=code,
        headline=headline,
        reasons=tuple(reasons),
        action=action,
        regression=code in REGRESSIONS or (dropped is not None and code != "faster"),
    )


def _reasons_of_drafts(candidate: Figures | None, drafting: Drafting | None, policy: ResolvedPolicy) -> Iterator[str]:
    if drafting is not None:
        cost = drafting.cost
        yield f"speed-up at like load ({cost.concurrency:.1f} running) {times(cost.speedup)}"
    if candidate is not None and candidate.acceptance_ratio is not None:
        price = drafting.cost.draft_cost_ratio if drafting else None
        least = f"break-even {times(price, unit='')}, measured"
        if price is None:
            least = f"break-even not measured, assumed {policy.acceptance_ratio_min:.2f} for this method"
        yield f"acceptance of the candidate {candidate.acceptance_ratio:.2f} ({least})"


def _reasons_of_preemptions(found: Pair) -> Iterator[str]:
    before, after = found.baseline or 0.0, found.candidate or 0.0
    if after > before:
        yield (
            f"the candidate preempted requests {after:,.0f} times, the baseline {before:,.0f} times: the candidate's "
            "KV cache is too small"
        )


def _of_outcomes(code: DecisionCode, outcomes: dict[Outcome, list[str]], *, turned_on: bool) -> str | None:
    """Return the next step where the outcomes alone tell it."""
    if code == "undecided":
        return "Fix what the flags and reasons name, record again, and compare again."
    if outcomes.get("tail_worse") and code != "slower":
        return (
            "Find the slow requests: long prompts, one client, one language, one temperature. Route them to a service "
            "without speculation or with another k. The mean hides them."
        )
    if code == "slower" and outcomes["slower"] == [TITLES["time_to_first_token"]] and turned_on:
        return (
            "Look at waiting requests, prompt lengths and the load: only the first token came later. Record longer to "
            "see what the answers gain."
        )
    if code == "mixed":
        return (
            "Decide what matters more to your users: the first token or the whole answer. For a slower first token, "
            "look at waiting requests and prompt lengths. For slower answers, look at acceptance and batch size."
        )
    return None


def _acceptance_reasons(found: AcceptanceChange | None) -> list[str]:
    if found is None:
        return []
    if found.undecided_because is not None:
        return [f"acceptance: not judged against the baseline's: {found.undecided_because}"]
    words = {
        "dropped": "which is a drop beyond chance",
        "not_dropped": "which is no drop",
        "inconclusive": "so a drop is neither shown nor ruled out: record longer",
    }[found.outcome]
    change = found.difference
    shown = [percentage_points(each) for each in (change.value, change.low, change.high)] if change else ["-"] * 3
    reasons = [f"acceptance: {shown[0]} ({shown[1]} to {shown[2]}) against the baseline, {words}"]
    reasons += [f"likely cause: {cause}" for cause in found.likely_causes[:1]]
    return reasons + [f"another possible cause: {cause}" for cause in found.likely_causes[1:]]


def _revisit(found: AcceptanceChange, *, faster: bool) -> str:
    """Say what to do about acceptance that fell while nothing became slower."""
    because = "look at what changed: models, prompts, temperature, release"
    if found.likely_causes:
        because = f"undo this and record again: {found.likely_causes[0]}"
    if faster:
        return f"Keep the candidate's setting: it is faster. Its drafts became worse, which costs speed-up: {because}."
    return f"Revisit the candidate's setting: {because}."


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
    same, open_ = outcomes.get("no_difference", []), outcomes.get("inconclusive", [])
    if open_:
        rest = f"; no difference in {_list(same)}" if same else ""
        return "inconclusive", f"A difference in {_list(open_)} is neither shown nor ruled out{rest}"
    if same:
        return "no_difference", f"No difference in {_list(same)}"
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
    if latency.like_load_ratio is not None:
        found.append(f"{title}: {times(latency.like_load_ratio)} at like load, which decides")
    if latency.requests_needed is not None and latency.requests.baseline and latency.requests.candidate:
        found.append(f"{title}: {_more(latency)} would decide")
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


def _more(latency: LatencyComparison) -> str:
    """Return how much more would have to be recorded."""
    now = min(latency.requests.baseline or 1.0, latency.requests.candidate or 1.0)
    factor = (latency.requests_needed or 0.0) / now
    if factor > _LONGEST:
        return f"only more than {_LONGEST} times as many requests"
    return f"about {factor:.1f} times as many requests ({latency.requests_needed:,.0f} of each side)"


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
    drafting: Drafting | None,
) -> str:
    turned_on = baseline is None and candidate is not None
    turned_off = baseline is not None and candidate is None
    if code in ("no_difference", "inconclusive"):
        return _without_difference(code, drafting if turned_on else None)
    if code == "faster":
        if turned_on:
            return _keep(drafting)
        if turned_off:
            return "Leave speculation off for this traffic: it is faster without."
        return "Keep the candidate's setting, and make its recording the new baseline."
    if turned_off:
        return "Leave speculation on: it is slower without."
    if not turned_on:
        return "Keep the baseline's setting, and look at what else differs (the flags name it)."
    return _remedy(drafting)


def _without_difference(code: DecisionCode, drafting: Drafting | None) -> str:
    if drafting is not None and drafting.pays:
        return "Keep speculation on: it pays at like load. Record longer to see it in the latencies too."
    if drafting is not None and drafting.pays is False:
        return f"Speculation gives no speed-up at this load. {_other_k(drafting.choice)}"
    if code == "inconclusive":
        return "Record longer: neither a difference nor the absence of one is shown. Change nothing until then."
    return "Choose by other things: memory, risk, throughput. These latencies do not differ."


def _keep(drafting: Drafting | None) -> str:
    keep = "Keep speculation on. Serve the baseline, and an alert fires when the speed-up disappears."
    if drafting and drafting.choice and drafting.choice.try_more and drafting.choice.recommended:
        keep += f" Record k = {drafting.choice.recommended + 1} too: the last position still pays for itself."
    return keep


def _remedy(drafting: Drafting | None) -> str:
    """Say what to do about speculation that makes the service slower, which was measured."""
    if drafting is None:
        return (
            "Switch speculation off at this load, or record another k. What a draft costs is not measured: that needs "
            "step times by load in both recordings."
        )
    choice = drafting.choice
    best = choice is not None and not choice.within_chance and choice.recommended == choice.expected[-1].k
    if drafting.pays or best:
        return (
            f"At like load {'speculation pays' if drafting.pays else 'no other k is better'}. Look at what else makes "
            "requests slower: waiting requests, prompt lengths, a higher load than the baseline's."
        )
    return _other_k(drafting.choice)


def _other_k(choice: KChoice | None) -> str:
    """Say which k to run or to record instead of one that does not pay."""
    if choice is None:
        return "Switch speculation off at this load, or record another k."
    if choice.recommended is None:
        candidates = " or ".join(map(str, choice.candidates))
        more = f"record k = {choice.record_next} too" if choice.record_next is not None else "record longer"
        return f"The best k is {candidates}, and these recordings do not tell which: {more}, and compare all."
    if choice.recommended == 0:
        return f"Switch speculation off at this load: no k up to {choice.expected[-1].k} pays. Then look at the draft."
    if choice.within_chance:
        return "Switch speculation off at this load, or record longer: another k may be better, but not beyond chance."
    return f"Run k = {choice.recommended}, record it, and compare again."
