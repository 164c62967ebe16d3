"""Whether both sides served the same traffic at the same load, and what each latency may then conclude. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison.distribution import quantile
from specdec_exporter.comparison.figure import Figure, ratio
from specdec_exporter.comparison.latency import Conditions, Sli
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation import acceptance
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.findings import other_prompts
from specdec_exporter.speculation.policy import LatencyPolicy, Policy


class Traffic(NamedTuple):
    """What one side served; ``None``: not recorded.

    ``in_flight`` is the mean number of requests in the predictor, waiting or running: the seconds of all requests per
    second of wall clock (Little's law). Lengths are mean tokens per request.
    """

    requests_per_second: Figure | None
    tokens_per_second: Figure | None
    in_flight: Figure | None
    prompt_tokens: Figure | None
    generation_tokens: Figure | None

    def __str__(self) -> str:
        rate, in_flight = (each.value if each else 0.0 for each in (self.requests_per_second, self.in_flight))
        return f"{rate:.3g} requests/s and {in_flight:.3g} requests in flight"


class Difference(NamedTuple):
    """How the traffic of two sides differs, in words; ``None``: it does not, as far as is known.

    ``shared`` says how two replicas shared it. ``other_prompts``: prompts are so much longer, or shorter, that
    speculation gains differently. ``demand`` and ``lengths`` are ratios of what was asked for per second, and of the
    tokens of a prompt and of an answer.
    """

    load: str | None
    shared: str | None
    prompts: str | None
    answers: str | None
    other_prompts: str | None
    demand: tuple[Estimate, ...]
    lengths: tuple[Estimate, ...]


def requests_of(recording: Baseline) -> float | None:
    """Return the number of requests with a first token; if not known, the number of finished requests."""
    first = recording.counts.first_tokens
    return recording.requests_finished if first is None else first


def traffic_of(recording: Baseline) -> Traffic:
    """Return what ``recording`` served."""
    counts, seconds, requests = recording.counts, recording.duration_seconds, requests_of(recording)
    whole = recording.request_latency_seconds

    def figure(
        above: float | None, below: float | None, parts: Callable[[Block], tuple[float | None, float | None]]
    ) -> Figure | None:
        if not (value := acceptance.ratio(above, below)):
            return None
        pairs = map(parts, recording.blocks)
        return Figure(value, tuple((one or 0.0, other or 0.0) for one, other in pairs))

    def seconds_of(block: Block) -> float | None:
        return block.request_latency_seconds.sum if block.request_latency_seconds else None

    return Traffic(
        figure(requests, seconds, lambda block: (block.counts.first_tokens, block.seconds)),
        figure(counts.generation_tokens, seconds, lambda block: (block.counts.generation_tokens, block.seconds)),
        figure(whole.sum if whole else None, seconds, lambda block: (seconds_of(block), block.seconds)),
        figure(counts.prompt_tokens, requests, lambda block: (block.counts.prompt_tokens, block.counts.first_tokens)),
        figure(
            counts.generation_tokens,
            requests,
            lambda block: (block.counts.generation_tokens, block.counts.first_tokens),
        ),
    )


def difference(baseline: Baseline, candidate: Baseline, policy: Policy, *, paired: bool = False) -> Difference:
    """Return how the traffic of ``candidate`` differs from that of ``baseline``.

    ``paired``: requests go to either side by chance, so only a load that differs by more than the tolerance is another.
    """
    before, after = traffic_of(baseline), traffic_of(candidate)
    found = [ratio(*pair, policy.chance) for pair in zip(after, before, strict=True)]
    demand = tuple(Estimate(each.value, None, None) if paired else each for each in found[:2] if each)
    sides = f"{before} in the baseline, {after} in the candidate"
    busier = _busier(demand, found[2], policy.latency)
    return Difference(
        load=sides if busier else None,
        shared=None if busier or not paired else sides,
        prompts=_lengths("prompt", (before.prompt_tokens, after.prompt_tokens), found[3], policy.latency)
        or _apart("prompt", baseline.prompt_length, candidate.prompt_length),
        answers=_lengths("answer", (before.generation_tokens, after.generation_tokens), found[4], policy.latency)
        or _apart("answer", baseline.generation_length, candidate.generation_length),
        other_prompts=other_prompts(candidate.mean_prompt_tokens, baseline.mean_prompt_tokens, policy.latency),
        demand=demand,
        lengths=tuple(each for each in found[3:] if each),
    )


def _lengths(
    what: str, sides: tuple[Figure | None, Figure | None], found: Estimate | None, policy: LatencyPolicy
) -> str | None:
    """Say that mean lengths certainly differ."""
    one, other = sides
    if not one or not other or not found or not (_more(found, policy) or _more(found.inverse(), policy)):
        return None
    return f"the mean {what} has {one.value:.0f} tokens in the baseline, {other.value:.0f} in the candidate"


def _apart(what: str, before: Histogram | None, after: Histogram | None) -> str | None:
    """Say that lengths of one mean are spread differently: the buckets around P50 or P90 do not overlap."""
    if before is None or after is None:
        return None
    for share in (0.5, 0.9):
        sides = [("baseline", quantile(before, share)), ("candidate", quantile(after, share))]
        for (name, one), (longer, other) in (sides, sides[::-1]):
            limit = one.high_seconds if one else None
            if limit is not None and other and other.low_seconds is not None and limit <= other.low_seconds:
                return (
                    f"P{share * 100:g} of the {what}s is at most {limit:.0f} tokens in the {name}, more in the {longer}"
                )
    return None


def _busier(rates: Sequence[Estimate], in_flight: Estimate | None, policy: LatencyPolicy) -> bool:
    """Whether one side served more and had more in flight.

    More served with fewer in flight, or as many, is a faster server and no higher load. The number in flight wanders
    widely by chance, so it need only be able to differ by more than the tolerance.
    """
    if in_flight is None:
        return False
    up = in_flight.value > 1.0
    most, *served = [each if up else each.inverse() for each in (in_flight, *rates) if each]
    possible = most.value if most.high is None else most.high
    return (
        most.value > policy.slowdown_min
        and possible > 1.0 + policy.traffic_tolerance
        and any(_more(rate, policy) for rate in served)
    )


def _more(found: Estimate, policy: LatencyPolicy) -> bool:
    """Whether a ratio certainly matters; where chance is not known, the tolerance decides."""
    return found.value > 1.0 + policy.traffic_tolerance if found.low is None else found.low > policy.slowdown_min


def conditions(found: Difference, like_load: Estimate | None, *, paired: bool = False) -> dict[Sli, Conditions]:
    """Return what each latency may conclude. ``like_load`` is the speed-up at loads that both sides had.

    A difference in traffic that is not certain may still explain as large a ratio of latencies.

    Prompts lengthen the time to first token, prompts and answers the whole. Time per output token is a mean over the
    answer, so its mean stays comparable. Its tail does not: it is spread wider by short answers, and long prompts that
    are read in the same steps stall other answers.
    """
    load = "the loads differ" if found.load else None
    prompts = "prompts differ in length" if found.prompts else None
    lengths = prompts or ("answers differ in length" if found.answers else None)
    demand = _range(found.demand)
    of_tokens = Conditions(None, lengths is None, paired=paired, explained=demand)
    if load:
        unlike = None if like_load else f"{load}, and step times at a load of both sides are not known"
        of_tokens = Conditions(unlike, tail=False, like_load=like_load.inverse() if like_load else None)
    return {
        "time_per_output_token": of_tokens,
        "time_to_first_token": Conditions(
            load or prompts, lengths is None, paired=paired, explained=_range(found.demand, found.lengths[:1])
        ),
        "request_latency": Conditions(load or lengths, paired=paired, explained=_range(found.demand, found.lengths)),
    }


def _range(*kinds: Sequence[Estimate]) -> tuple[float, float]:
    """Return the smallest and the largest product of one ratio of each kind, or of 1."""
    values = [[1.0, *(each.value for each in kind)] for kind in kinds]
    return math.prod(map(min, values)), math.prod(map(max, values))
