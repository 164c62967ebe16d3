"""The rule of keeping speculation: only if first token, time per output token and throughput all improve."""

from __future__ import annotations

from typing import Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.decision import times
from specdec_exporter.comparison.latency import Outcome, Sli, compare_latency
from specdec_exporter.comparison.likeness import TITLES, histogram_of, unlike_traffic
from specdec_exporter.comparison.loads import AtLoad
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.estimate import Estimate, Spread, ratio_of_sums
from specdec_exporter.speculation.policy import Policy

RuleCode = Literal["keep", "do_not_keep", "undecided"]

_SLIS: tuple[Sli, ...] = ("time_to_first_token", "time_per_output_token")
_WORDS: dict[Outcome, str] = {
    "faster": "better",
    "slower": "worse",
    "tail_worse": "worse for the slowest requests",
    "no_difference": "no difference shown",
    "undecided": "not judged",
}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a recording keeps speculation, against the recording ``against`` without it.

    ``throughput_ratio`` is tokens per second / those of the other recording. Clients that send at a fixed rate set it:
    where it shows no difference, a speed-up at like load counts as throughput (``throughput_at_like_load``).
    ``regression``: something became worse beyond doubt; ``judged``: something could be judged at all.
    """

    code: RuleCode
    against: str
    time_to_first_token: Outcome
    time_per_output_token: Outcome
    throughput: Outcome
    throughput_ratio: Estimate | None
    throughput_at_like_load: bool
    headline: str
    reasons: tuple[str, ...]
    regression: bool
    judged: bool


def rule_for(plain: Baseline, candidate: Baseline, whole: AtLoad, policy: Policy) -> Rule:
    """Decide whether to keep ``candidate``'s speculation; ``whole`` has its speed-up at like load."""
    unlike = unlike_traffic(plain, candidate, policy.latency)
    latencies = [
        compare_latency(
            sli, histogram_of(plain, sli), histogram_of(candidate, sli), policy.latency, unlike=unlike.get(sli)
        )
        for sli in _SLIS
    ]
    found = _throughput(plain, candidate, policy)
    throughput = _outcome(found, policy)
    at_like_load = throughput == "no_difference" and whole.pays is True
    if at_like_load:
        throughput = "faster"
    reasons = []
    for latency in latencies:
        detail = latency.undecided_because or f"{times(latency.mean_ratio)} of the time without speculation"
        reasons.append(f"{TITLES[latency.sli]}: {_WORDS[latency.outcome]} ({detail})")
    detail = "no interval" if found is None or found.low is None else f"{times(found)} of the tokens per second"
    if at_like_load:
        detail += f"; the clients set it, and at like load it is {times(whole.speedup)}"
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
        throughput_ratio=found,
        throughput_at_like_load=at_like_load,
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
    before, after = (ratio(side.counts.generation_tokens, side.duration_seconds) for side in (plain, candidate))
    value = ratio(after, before)
    if not value:
        return None
    spreads = [_tokens_per_second(side, policy) for side in (plain, candidate)]
    error = None
    if spreads[0] is not None and spreads[1] is not None:
        error = spreads[1] / spreads[0]
    return Spread(value, error.error, error.freedom).estimate() if error else Estimate(value, None, None)


def _tokens_per_second(recording: Baseline, policy: Policy) -> Spread | None:
    blocks = [block for each in recording.by_load for block in each.blocks]
    return ratio_of_sums(
        [block.tokens for block in blocks], [block.seconds for block in blocks], policy.cost.min_intervals
    )


def _outcome(found: Estimate | None, policy: Policy) -> Outcome:
    if found is None or found.low is None or found.high is None:
        return "undecided"
    if found.low > 1.0 and found.value >= policy.latency.speedup_min:
        return "faster"
    if found.high < 1.0 and found.value * policy.latency.slowdown_min <= 1.0:
        return "slower"
    return "no_difference"
