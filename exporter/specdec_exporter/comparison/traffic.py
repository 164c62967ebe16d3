"""Whether both sides served the same traffic at the same load, and what each latency may then conclude. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison.figure import Figure, ratio
from specdec_exporter.speculation.acceptance import ratio as quotient
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.findings import other_caches, other_prompts
from specdec_exporter.speculation.policy import LatencyPolicy, Policy

Sli = Literal["time_per_output_token", "time_to_first_token", "request_latency"]


class Traffic(NamedTuple):
    """What one side served; ``None``: not recorded.

    ``requests_in_flight`` is the mean number in the predictor, waiting or running: the seconds of all requests per
    second of wall clock (Little's law).
    """

    requests_per_second: Figure | None
    generation_tokens_per_second: Figure | None
    requests_in_flight: Figure | None
    mean_prompt_tokens: Figure | None
    mean_generation_tokens: Figure | None

    def __str__(self) -> str:
        rate, in_flight = (each.value if each else 0.0 for each in (self.requests_per_second, self.requests_in_flight))
        return f"{rate:.3g} requests/s and {in_flight:.3g} requests in flight"


class Difference(NamedTuple):
    """How the traffic of two sides differs, in words; ``None``: it does not, as far as is known.

    ``caches``: how much of the prompts they held. ``demand`` and ``lengths`` are ratios of what was asked for per
    second, and of the tokens of a prompt and of an answer.
    """

    load: str | None
    prompts: str | None
    caches: str | None
    answers: str | None
    demand: tuple[Estimate, ...]
    lengths: tuple[Estimate, ...]

    @property
    def alike(self) -> bool:
        """Whether the sides are not known to differ."""
        return not (self.load or self.prompts or self.caches or self.answers)

    @property
    def other_steps(self) -> bool:
        """Whether answers were made in other steps: with more requests, or more prompts that no cache held."""
        return bool(self.load or self.caches)

    def forbids(self, sli: Sli) -> str | None:
        """Say why a latency concludes nothing.

        Prompts that are computed lengthen the time to first token, prompts and answers the whole. Time per output token
        is a mean over the answer, so its mean stays comparable. Its tail does not: it is spread wider by short answers,
        and long prompts that are read in the same steps stall other answers.
        """
        if sli == "time_per_output_token":
            return None
        if self.load or self.prompts:
            return "the loads differ" if self.load else "prompts differ in length"
        if self.caches:
            return "prefix caches held other shares of the prompts"
        return "answers differ in length" if self.answers and sli == "request_latency" else None

    def explains(self, sli: Sli) -> tuple[float, float]:
        """Return the smallest and the largest ratio of a latency that differences explain, certain or not."""
        lengths = self.lengths[: {"time_per_output_token": 0, "time_to_first_token": 1}.get(sli, 2)]
        kinds = [[1.0, *(each.value for each in kind)] for kind in (self.demand, lengths)]
        return math.prod(map(min, kinds)), math.prod(map(max, kinds))


def requests_of(recording: Baseline) -> float | None:
    """Return the number of requests with a first token; if not known, the number of finished requests."""
    first = recording.counts.first_tokens
    return recording.requests_finished if first is None else first


def traffic_of(recording: Baseline) -> Traffic:
    """Return what ``recording`` served."""
    whole = _sums(recording, recording.duration_seconds, requests_of(recording))
    rows = [whole, *(_sums(block, block.seconds, block.counts.first_tokens) for block in recording.blocks)]
    seconds, requests, prompts, answers, in_flight = zip(*rows, strict=True)

    def per(below: Sequence[float], above: Sequence[float]) -> Figure | None:
        found = quotient(above[0], below[0])
        return Figure(found, tuple(zip(above[1:], below[1:], strict=True))) if found else None

    rates = (per(seconds, each) for each in (requests, answers, in_flight))
    return Traffic(*rates, *(per(requests, each) for each in (prompts, answers)))


def _sums(part: Baseline | Block, seconds: float, requests: float | None) -> tuple[float, ...]:
    """Return seconds, requests, tokens of prompts and of answers, and seconds of requests."""
    counts, whole = part.counts, part.request_latency_seconds
    served = requests or 0.0, counts.prompt_tokens or 0.0, counts.generation_tokens or 0.0
    return (seconds, *served, whole.sum if whole else 0.0)


def difference(baseline: Baseline, candidate: Baseline, policy: Policy, *, paired: bool = False) -> Difference:
    """Return how the traffic of ``candidate`` differs from that of ``baseline``.

    ``paired``: requests go to either side by chance, so only a load that differs by more than the tolerance is another.
    """
    before, after = traffic_of(baseline), traffic_of(candidate)
    found = [ratio(*pair, policy.chance) for pair in zip(after, before, strict=True)]
    demand = tuple(Estimate(each.value, None, None) if paired else each for each in found[:2] if each)
    other_work = other_prompts(candidate.mean_prompt_tokens, baseline.mean_prompt_tokens, policy.latency)
    prompts, answers = (
        f"the mean {what} has {one.value:.0f} tokens in the baseline, {other.value:.0f} in the candidate"
        if one and other and each and (_more(each, policy.latency) or _more(each.inverse(), policy.latency))
        else None
        for what, one, other, each in zip(("prompt", "answer"), before[3:], after[3:], found[3:], strict=True)
    )
    busier = _busier(demand, found[2], policy.latency)
    return Difference(
        load=f"{before} in the baseline, {after} in the candidate" if busier else None,
        prompts=f"{other_work}: the speed-up compares different work" if other_work else prompts,
        caches=other_caches(
            candidate.counts.cached_prompt_ratio,
            baseline.counts.cached_prompt_ratio,
            policy.latency,
            "in the candidate",
        ),
        answers=answers,
        demand=demand,
        lengths=tuple(each for each in found[3:] if each),
    )


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
