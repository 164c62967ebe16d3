"""The rule of keeping speculation: only if first token, time per output token and throughput all improve."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.decision import times
from specdec_exporter.comparison.latency import LatencyComparison, Outcome, Sli, compare_latency, direction
from specdec_exporter.comparison.likeness import TITLES, sample_of
from specdec_exporter.comparison.loads import AtLoad, at_like_load
from specdec_exporter.comparison.traffic import conditions, difference, traffic_of
from specdec_exporter.speculation.estimate import Estimate, Spread, ratio_of_sums
from specdec_exporter.speculation.policy import Policy

RuleCode = Literal["keep", "do_not_keep", "undecided"]

_SLIS: tuple[Sli, ...] = ("time_to_first_token", "time_per_output_token")
_WORDS: dict[Outcome, str] = {
    "faster": "better",
    "slower": "worse",
    "tail_worse": "worse for the slowest requests",
    "no_difference": "no difference",
    "inconclusive": "not shown either way",
    "undecided": "not judged",
}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a recording keeps speculation, against the recording ``against`` without it.

    ``throughput_ratio`` is tokens per second / those of the other recording. Clients that send at a fixed rate set it:
    where it shows no difference, a speed-up at like load counts as throughput (``throughput_at_like_load``).
    ``speedup`` is the other recording's time per output token / this one's, at like load where that decides.
    ``regression``: something became worse beyond doubt; ``judged``: something could be judged at all.
    """

    code: RuleCode
    against: str
    time_to_first_token: Outcome
    time_per_output_token: Outcome
    throughput: Outcome
    throughput_ratio: Estimate | None
    throughput_at_like_load: bool
    speedup: Estimate | None
    headline: str
    reasons: tuple[str, ...]
    regression: bool
    judged: bool

    @property
    def summary(self) -> str:
        """The three outcomes in words."""
        outcomes = (self.time_to_first_token, self.time_per_output_token, self.throughput)
        return "; ".join(
            f"{name} {_WORDS[outcome]}"
            for name, outcome in zip((*(TITLES[sli] for sli in _SLIS), "throughput"), outcomes, strict=True)
        )


def rule_for(plain: Baseline, candidate: Baseline, whole: AtLoad, policy: Policy) -> Rule:
    """Decide whether to keep ``candidate``'s speculation; ``whole`` has its speed-up at like load."""
    like_load = at_like_load(plain, candidate, policy, recorded_in_both=True)
    found = conditions(difference(plain, candidate, policy.latency), like_load)
    latencies = [
        compare_latency(sli, sample_of([plain], sli), sample_of([candidate], sli), policy.latency, found[sli])
        for sli in _SLIS
    ]
    return rule_of(latencies, plain, candidate, whole.speedup, pays=whole.pays, policy=policy)


def rule_of(
    compared: Iterable[LatencyComparison],
    plain: Baseline,
    candidate: Baseline,
    like_load_speedup: Estimate | None,
    *,
    pays: bool | None,
    policy: Policy,
) -> Rule:
    """Decide from latencies that were compared already; ``pays``: whether the speed-up at like load is large enough."""
    by_sli = {each.sli: each for each in compared}
    latencies = [by_sli[sli] for sli in _SLIS]
    slower = latencies[1].like_load_ratio or latencies[1].mean_ratio
    rate = _throughput(plain, candidate, policy)
    throughput = _outcome(rate, policy)
    at_like_load_only = throughput in ("no_difference", "inconclusive") and pays is True
    if at_like_load_only:
        throughput = "faster"
    reasons = []
    for latency in latencies:
        detail = latency.undecided_because or f"{times(latency.mean_ratio)} of the time without speculation"
        reasons.append(f"{TITLES[latency.sli]}: {_WORDS[latency.outcome]} ({detail})")
    detail = "no interval" if rate is None or rate.low is None else f"{times(rate)} of the tokens per second"
    if at_like_load_only:
        detail += f"; the clients set it, and at like load it is {times(like_load_speedup)}"
    reasons.append(f"throughput: {_WORDS[throughput]} ({detail})")
    outcomes: dict[str, Outcome] = {TITLES[latency.sli]: latency.outcome for latency in latencies}
    outcomes["throughput"] = throughput
    code, headline = _decide(outcomes)
    return Rule(
        code=code,
        against=plain.name,
        time_to_first_token=latencies[0].outcome,
        time_per_output_token=latencies[1].outcome,
        throughput=throughput,
        throughput_ratio=rate,
        throughput_at_like_load=at_like_load_only,
        speedup=slower.inverse() if slower else None,
        headline=headline,
        reasons=tuple(reasons),
        regression=code == "do_not_keep",
        judged=any(outcome != "undecided" for outcome in outcomes.values()),
    )


def _decide(outcomes: dict[str, Outcome]) -> tuple[RuleCode, str]:
    worse = [name for name, outcome in outcomes.items() if outcome in ("slower", "tail_worse")]
    if worse:
        return "do_not_keep", f"Not all improve: worse in {_list(worse)}"
    open_ = [name for name, outcome in outcomes.items() if outcome != "faster"]
    if open_:
        return "undecided", f"Not shown to improve: {_list(open_)}"
    return "keep", f"{_list(list(outcomes)).capitalize()} all improve"


def _list(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _throughput(plain: Baseline, candidate: Baseline, policy: Policy) -> Estimate | None:
    """Return the ratio of tokens per second; the spread of both over time gives its interval."""
    before, after = (_tokens_per_second(side, policy) for side in (plain, candidate))
    return (after / before).estimate() if before and after else None


def _tokens_per_second(recording: Baseline, policy: Policy) -> Spread | None:
    rate = traffic_of(recording).tokens_per_second
    if rate is None:
        return None
    found = rate.spread(policy.latency)
    if found.error is not None:
        return found
    # A recording without blocks of time may have those of its loads.
    blocks = [block for each in recording.by_load for block in each.blocks]
    tokens, seconds = [block.tokens for block in blocks], [block.seconds for block in blocks]
    scatter = ratio_of_sums(tokens, seconds, policy.cost.min_intervals)
    return Spread(found.value, scatter.error, scatter.freedom) if scatter else found


def _outcome(found: Estimate | None, policy: Policy) -> Outcome:
    slower = found.inverse() if found else None
    return direction(slower, policy.latency) or "undecided"
