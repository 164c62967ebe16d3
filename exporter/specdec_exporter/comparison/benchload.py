"""Runs of a benchmark at one load, without and with speculation: figures, speed-ups, outcome. Pure.

The time per output token decides. It compares both with fixed clients and at a fixed request rate. Tokens per second do
not: at a fixed rate both sides have the same, and with fixed clients they also change with a prefix cache, and with the
start and end of a run.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from statistics import fmean, median, stdev
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.comparison.latency import Outcome, direction
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.benchresult import BenchResult
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.chance import Estimate, Spread, batches, of_batches
from specdec_exporter.speculation.findings import other_prompts
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.tailshift import Sample, Shift, tail_shift

Runs = Sequence[BenchResult]


class Setting(NamedTuple):
    """What was asked of the server: requests at once (``None``: no limit) and requests per second (all at once)."""

    clients: int | None
    request_rate: float | None

    def __str__(self) -> str:
        most = f"{self.clients:,} client{'' if self.clients == 1 else 's'}" if self.clients else None
        rate = f"{self.request_rate:g} request{'' if self.request_rate == 1 else 's'}/s" if self.request_rate else None
        return ", ".join(filter(None, (rate, most)))


class BenchSide(msgspec.Struct, frozen=True, kw_only=True):
    """One side at one load. Times, rates and lengths are medians of its ``runs``; acceptance is that of all drafts.

    ``requests`` were completed, ``failed`` were not. Latencies are means of the requests.
    """

    runs: int
    requests: int
    failed: int
    time_to_first_token_seconds: float | None
    time_per_output_token_seconds: float | None
    time_per_output_token_p99_seconds: float | None
    output_tokens_per_second: float
    mean_prompt_tokens: float
    mean_generation_tokens: float
    acceptance_ratio: float | None
    mean_acceptance_length: float | None


class BenchLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides at one load.

    ``clients``: requests at once; ``null``: no limit. ``request_rate``: per second; ``null``: as fast as clients allow.
    ``speedup`` of decoding: time per output token of the baseline / of the candidate. ``tokens_per_second_ratio``:
    candidate / baseline, ``null`` at a fixed request rate. ``ceiling``: the candidate's mean acceptance length, the
    speed-up if drafts cost nothing; ``reached_ratio``: speed-up / ceiling. ``break_even_acceptance_length``: ceiling /
    speed-up; all three are ``null`` unless the candidate alone drafted, the last two also where nothing is decided or
    no length can break even: below 1, or above k + 1. ``tail_shift`` needs the requests (``--save-detailed``).
    """

    clients: int | None
    request_rate: float | None
    baseline: BenchSide
    candidate: BenchSide
    speedup: Estimate | None
    tokens_per_second_ratio: Estimate | None
    time_to_first_token_ratio: float | None
    ceiling: float | None
    reached_ratio: float | None
    break_even_acceptance_length: Estimate | None
    tail_shift: Shift | None
    outcome: Outcome
    undecided_because: str | None

    @property
    def setting(self) -> Setting:
        """The load of both sides."""
        return Setting(self.clients, self.request_rate)


def setting_of(run: BenchResult) -> Setting:
    """Return the load of a run. Where nothing limits it, all prompts are sent at once: as many clients."""
    unlimited = run.clients is None and run.request_rate is None
    return Setting((run.prompts or run.completed) if unlimited else run.clients, run.request_rate)


def measure(setting: Setting, before: Runs, after: Runs, policy: Policy) -> BenchLoad:
    """Compare the runs of both sides at one load; neither is empty."""
    sides = then, now = _side(before), _side(after)
    speedup = _ratio(before, after, _seconds_per_token, policy)
    throughput = _ratio(after, before, _tokens_per_second, policy) if setting.request_rate is None else None
    ceiling = now.mean_acceptance_length if not any(each.speculates for each in before) else None
    tail = _tail_shift(after, before, policy)
    why = _not_judged(then, now, speedup, policy)
    outcome = "undecided" if why else _outcome(speedup, tail, sides, policy)
    even = speedup.inverse().scaled(ceiling) if speedup and ceiling and not why else None
    k = (ceiling - 1.0) / now.acceptance_ratio if ceiling and now.acceptance_ratio else math.inf
    if even is not None and not 1.0 <= even.value <= k + 1.0:
        even = None
    return BenchLoad(
        clients=setting.clients,
        request_rate=setting.request_rate,
        baseline=then,
        candidate=now,
        speedup=speedup,
        tokens_per_second_ratio=throughput,
        time_to_first_token_ratio=ratio(now.time_to_first_token_seconds, then.time_to_first_token_seconds),
        ceiling=ceiling,
        reached_ratio=1.0 / even.value if even else None,
        break_even_acceptance_length=even,
        tail_shift=tail,
        outcome=outcome,
        undecided_because=why,
    )


def differs(one: float, other: float, limit: float) -> bool:
    """Whether two positive figures differ by more than a factor."""
    return max(one, other) > limit * min(one, other)


# --- Figures ----------------------------------------------------------------------------------------------------------


def _side(runs: Runs) -> BenchSide:
    drafted, accepted, drafts = (
        math.fsum(getattr(run, name) or 0.0 for run in runs) for name in ("draft_tokens", "accepted_tokens", "drafts")
    )
    return BenchSide(
        runs=len(runs),
        requests=sum(run.completed for run in runs),
        failed=sum(run.failed for run in runs),
        time_to_first_token_seconds=_middle(run.mean_time_to_first_token for run in runs),
        time_per_output_token_seconds=_middle(map(_seconds_per_token, runs)),
        time_per_output_token_p99_seconds=_middle(run.time_per_output_token.p99 for run in runs),
        output_tokens_per_second=median(map(_tokens_per_second, runs)),
        mean_prompt_tokens=median(run.input_tokens / run.completed for run in runs),
        mean_generation_tokens=median(run.output_tokens / run.completed for run in runs),
        acceptance_ratio=accepted / drafted if drafted else None,
        mean_acceptance_length=1.0 + accepted / drafts if drafts else None,
    )


def _middle(figures: Iterable[float | None]) -> float | None:
    """Return the median; ``None`` unless all are known."""
    known = list(figures)
    return None if None in known else median(each or 0.0 for each in known)


_seconds_per_token: Final = attrgetter("time_per_output_token.mean")
_tokens_per_second: Final = attrgetter("output_tokens_per_second")


# --- Chance -----------------------------------------------------------------------------------------------------------

_REPEATS: Final = 3  # runs from which their own scatter says how far chance moves a figure
_MEDIAN_LOSS: Final = math.sqrt(math.pi / 2.0)  # the error of a median / that of a mean, for normal figures


def _ratio(above: Runs, below: Runs, figure: Callable[[BenchResult], float | None], policy: Policy) -> Estimate | None:
    """Return above / below with its interval, never narrower than two runs of one setting differ.

    From three runs a side on, by the scatter of the runs; else by the requests within, and wider if the runs are short.
    """
    one, other = _spread(above, figure, policy), _spread(below, figure, policy)
    if one is None or other is None:
        return None
    found = one / other
    if min(len(above), len(below)) < _REPEATS:
        seconds = min(math.fsum(run.duration_seconds for run in runs) for runs in (above, below))
        short = max(policy.chance.enough_seconds / seconds - 1.0, 0.0)
        found *= Spread(1.0, policy.chance.runs_differ * math.sqrt(short))
    return found.of_two_runs(policy.chance)


def _spread(runs: Runs, figure: Callable[[BenchResult], float | None], policy: Policy) -> Spread | None:
    values = [value for run in runs if (value := figure(run))]
    if len(values) < len(runs):
        return None
    value, logarithms = median(values), list(map(math.log, values))
    if len(runs) >= _REPEATS:
        return Spread(value, _MEDIAN_LOSS * stdev(logarithms) / math.sqrt(len(runs)), len(runs) - 1)
    if figure is not _seconds_per_token:
        return Spread(value)  # the files do not tell how it scatters within a run
    within = _within(runs, policy)
    apart = (max(logarithms) - min(logarithms)) / 2.0
    return Spread(value, math.hypot(within.error or 0.0, apart), within.freedom)


def _within(runs: Runs, policy: Policy) -> Spread:
    """Return the error that the requests tell: in batches by time where they are known.

    Else the deviation tells. Drafts are accepted more or less from text to text, so requests with drafts count as
    independent. Others differ by what they have in common, load and machine: they count as so many batches.
    """
    latencies = [run.time_per_output_token for run in runs]
    if all(each.requests for each in latencies):
        found = of_batches([one for each in latencies for one in each.requests], fmean, policy.chance)
        if found is not None and found.error is not None:
            return found
    usual = policy.latency.time_per_output_token_cv
    scatter = max(each.deviation / each.mean if each.deviation and each.mean else usual for each in latencies)
    draws = sum(run.completed for run in runs)
    if not all(run.speculates for run in runs):
        draws = min(draws, policy.chance.batches)
    return Spread(1.0, scatter / math.sqrt(draws), max(draws - 1, 1))


def _tail_shift(after: Runs, before: Runs, policy: Policy) -> Shift | None:
    """Return how many requests became slower than the slow ones of the baseline, by a factor that is harm.

    Drafts are accepted more or less from text to text, so that the slowest requests gain least: that alone is no harm.
    """
    now, then = ([one for run in runs for one in run.time_per_output_token.requests] for runs in (after, before))
    if min(len(now), len(then)) < policy.latency.min_requests:
        return None
    slow = sorted(then)[int(policy.latency.tail_limit_share * len(then)) :: max(len(then) // 30, 1)]
    limits = (*dict.fromkeys(policy.latency.harmful_ratio * each for each in slow), math.inf)
    return tail_shift(_sample(now, limits, policy), _sample(then, limits, policy), policy)


def _sample(seconds: Sequence[float], limits: tuple[float, ...], policy: Policy) -> Sample:
    cut = [seconds, *batches(seconds, policy.chance)]
    whole, *blocks = (
        Histogram(limits, tuple(float(bisect_right(part, each)) for each in limits), math.fsum(part))
        for part in map(sorted, cut)
    )
    return Sample(whole, tuple(blocks))


# --- Outcome ----------------------------------------------------------------------------------------------------------


def _not_judged(then: BenchSide, now: BenchSide, speedup: Estimate | None, policy: Policy) -> str | None:
    if speedup is None:
        return "a result has no time per output token: answers have one token, or were not streamed or not timed"
    if any(side.failed > (policy.latency.slowdown_min - 1.0) * side.requests for side in (then, now)):
        return f"{then.failed + now.failed:,} requests failed, so the load was another"
    if (other := other_prompts(now.mean_prompt_tokens, then.mean_prompt_tokens, policy.latency)) is not None:
        return other
    if speedup.low is not None:
        return None
    return "requests or runs scatter too widely to tell"


def _outcome(
    speedup: Estimate | None, tail: Shift | None, sides: tuple[BenchSide, BenchSide], policy: Policy
) -> Outcome:
    found = direction(speedup.inverse() if speedup else None, policy.latency)
    if found is None:
        return "undecided"
    lengths = [(side.mean_prompt_tokens, side.mean_generation_tokens) for side in sides]
    alike = not any(differs(one, other, policy.latency.slowdown_min) for one, other in zip(*lengths, strict=True))
    return "tail_worse" if tail and tail.shifted and alike and found != "slower" else found
