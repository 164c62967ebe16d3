"""Whether both sides served the same traffic at the same load, and what each latency may then conclude. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison.figure import Figure, ratio
from specdec_exporter.comparison.latency import Conditions, Sli
from specdec_exporter.speculation import acceptance
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import LatencyPolicy, Policy
from specdec_exporter.speculation.promptlength import other_prompts


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

    ``other_prompts``: prompts are so much longer, or shorter, that speculation gains differently.
    """

    load: str | None
    prompts: str | None
    answers: str | None
    other_prompts: str | None


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
    rates, in_flight, lengths = found[:2], found[2], found[3:]
    if paired:
        rates = [each and Estimate(each.value, None, None) for each in rates]
    load = f"{before} in the baseline, {after} in the candidate" if _busier(rates, in_flight, policy.latency) else None
    words = [
        f"the mean {what} has {one.value:.0f} tokens in the baseline, {other.value:.0f} in the candidate"
        if one and other and length and (_more(length, policy.latency) or _more(length.inverse(), policy.latency))
        else None
        for what, one, other, length in zip(("prompt", "answer"), before[3:], after[3:], lengths, strict=True)
    ]
    prompts = other_prompts(candidate.mean_prompt_tokens, baseline.mean_prompt_tokens, policy.latency)
    return Difference(load, words[0], words[1], prompts)


def _busier(rates: list[Estimate | None], in_flight: Estimate | None, policy: LatencyPolicy) -> bool:
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
    """Whether a ratio is above 1 beyond chance and matters; where chance is not known, the tolerance decides."""
    if found.low is None:
        return found.value > 1.0 + policy.traffic_tolerance
    return found.low > 1.0 and found.value > policy.slowdown_min


def conditions(found: Difference, like_load: Estimate | None, *, paired: bool = False) -> dict[Sli, Conditions]:
    """Return what each latency may conclude. ``like_load`` is the speed-up at loads that both sides had.

    Prompts lengthen the time to first token, prompts and answers the whole. Time per output token is a mean over the
    answer, so its mean stays comparable. Its tail does not: it is spread wider by short answers, and long prompts that
    are read in the same steps stall other answers.
    """
    load = "the loads differ" if found.load else None
    prompts = "prompts differ in length" if found.prompts else None
    lengths = prompts or ("answers differ in length" if found.answers else None)
    of_tokens = Conditions(tail=lengths is None, paired=paired)
    if load:
        unlike = None if like_load else f"{load}, and step times at a load of both sides are not known"
        of_tokens = Conditions(unlike, tail=False, like_load=like_load.inverse() if like_load else None)
    return {
        "time_per_output_token": of_tokens,
        "time_to_first_token": Conditions(load or prompts, tail=lengths is None, paired=paired),
        "request_latency": Conditions(load or lengths, paired=paired),
    }
