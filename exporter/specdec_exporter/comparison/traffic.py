"""Whether both sides served the same traffic at the same load, and what each latency may then conclude. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.latency import Conditions, Sli
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.cost import MeasuredCost
from specdec_exporter.speculation.estimate import Spread, ratio_of_sums
from specdec_exporter.speculation.policy import LatencyPolicy
from specdec_exporter.speculation.promptlength import other_prompts


class Figure(NamedTuple):
    """A ratio of sums over one recording, and the two sums of each of its blocks of time."""

    value: float
    blocks: tuple[tuple[float, float], ...]

    def spread(self, policy: LatencyPolicy) -> Spread:
        """Return the value with the scatter of its blocks."""
        found = ratio_of_sums(*_columns(self.blocks), policy.min_blocks)
        return Spread(self.value, found.error, found.freedom) if found else Spread(self.value)


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


class Difference(NamedTuple):
    """How the traffic of two sides differs, in words; ``None``: it does not, as far as is known.

    ``demand`` has the smallest and the largest ratio of what was asked for per second, at most 1 and at least 1.
    ``lengths`` has the same of the length of requests. ``other_prompts``: prompts are so much longer, or shorter, that
    speculation gains differently.
    """

    load: str | None
    prompts: str | None
    answers: str | None
    demand: tuple[float, float]
    prompt_lengths: tuple[float, float]
    all_lengths: tuple[float, float]
    other_prompts: str | None = None


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
        if not (value := ratio(above, below)):
            return None
        pairs = map(parts, recording.blocks)
        return Figure(value, tuple((one or 0.0, other or 0.0) for one, other in pairs))

    return Traffic(
        figure(requests, seconds, lambda block: (block.counts.first_tokens, block.seconds)),
        figure(counts.generation_tokens, seconds, lambda block: (block.counts.generation_tokens, block.seconds)),
        figure(whole.sum if whole else None, seconds, lambda block: (_sum(block), block.seconds)),
        figure(counts.prompt_tokens, requests, lambda block: (block.counts.prompt_tokens, block.counts.first_tokens)),
        figure(
            counts.generation_tokens,
            requests,
            lambda block: (block.counts.generation_tokens, block.counts.first_tokens),
        ),
    )


def _sum(block: Block) -> float | None:
    return block.request_latency_seconds.sum if block.request_latency_seconds else None


def difference(baseline: Baseline, candidate: Baseline, policy: LatencyPolicy) -> Difference:
    """Return how the traffic of ``candidate`` differs from that of ``baseline``."""
    before, after = traffic_of(baseline), traffic_of(candidate)
    requests, tokens, in_flight, prompts, answers = (
        _ratio(one, other, policy) for one, other in zip(before, after, strict=True)
    )
    return Difference(
        _load(before, after, (requests, tokens), in_flight, policy),
        _lengths("prompt", before.prompt_tokens, after.prompt_tokens, prompts, policy)
        or _distributions("prompts", baseline.prompt_length, candidate.prompt_length, prompts, policy),
        _lengths("answer", before.generation_tokens, after.generation_tokens, answers, policy)
        or _distributions("answers", baseline.generation_length, candidate.generation_length, answers, policy),
        _range(requests, tokens),
        _range(prompts),
        _range(prompts, answers),
        other_prompts(candidate.mean_prompt_tokens, baseline.mean_prompt_tokens, policy),
    )


def _ratio(before: Figure | None, after: Figure | None, policy: LatencyPolicy) -> Spread | None:
    """Return after / before; ``None`` without both, and if absurd counts overflow.

    The same traffic scatters alike, and the blocks of both sides together tell better how far than those of each.
    """
    if not before or not after or not 0.0 < before.value < math.inf:
        return None
    value = after.value / before.value
    if not 1e-9 < value < 1e9:
        return None
    sides = (before.blocks, after.blocks)
    weights = [sum(below for _, below in blocks) for blocks in sides]
    if min(map(len, sides)) < policy.min_blocks or min(weights) <= 0.0:
        return Spread(value)
    kinds = [kind for kind, blocks in enumerate(sides) for _ in blocks]
    found = ratio_of_sums(*_columns(before.blocks + after.blocks), policy.min_blocks, kinds)
    if found is None or found.error is None:
        return Spread(value)
    # The error is that of all blocks, and each side has only its own.
    return Spread(value, found.error * math.sqrt(sum(sum(weights) / weight for weight in weights)), found.freedom)


def _columns(blocks: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [above for above, _ in blocks], [below for _, below in blocks]


def _range(*ratios: Spread | None) -> tuple[float, float]:
    values = [1.0, *(found.value for found in ratios if found is not None)]
    return min(values), max(values)


def _load(
    before: Traffic,
    after: Traffic,
    rates: tuple[Spread | None, ...],
    in_flight: Spread | None,
    policy: LatencyPolicy,
) -> str | None:
    """Return both loads if one side served more and had more in flight.

    More served with fewer in flight, or as many, is a faster server and no higher load. The number in flight wanders
    widely by chance, so it need only be able to differ by more than the tolerance. Where chance is not known, it must:
    a fixed number of clients makes no higher load, although the ends of a short recording count fewer of them.
    """
    if in_flight is None or not before.requests_per_second or not after.requests_per_second:
        return None
    ratios = [found for found in (in_flight, *rates) if found]
    most, *served = ratios if in_flight.value > 1.0 else [ratio.inverse() for ratio in ratios]
    possible = most.value if most.error is None else most.estimate().high
    tolerated = possible is not None and possible <= 1.0 + policy.traffic_tolerance
    if tolerated or most.value <= policy.slowdown_min or not any(_more(rate, policy) for rate in served):
        return None
    return f"{_words(before)} in the baseline, {_words(after)} in the candidate"


def _words(side: Traffic) -> str:
    rate, in_flight = (found.value if found else 0.0 for found in (side.requests_per_second, side.in_flight))
    return f"{rate:.3g} requests/s and {in_flight:.3g} requests in flight"


def _more(found: Spread, policy: LatencyPolicy) -> bool:
    """Whether a ratio is above 1 beyond chance, and by more than two equal runs differ.

    Where chance is not known, the tolerance decides.
    """
    if found.error is None:
        return found.value > 1.0 + policy.traffic_tolerance
    low = found.estimate(policy.traffic_z_score).low
    return found.value > policy.slowdown_min and low is not None and low > 1.0


def _lengths(
    what: str, before: Figure | None, after: Figure | None, quotient: Spread | None, policy: LatencyPolicy
) -> str | None:
    """Return both mean lengths if they differ."""
    if before is None or after is None or quotient is None:
        return None
    if not _more(quotient, policy) and not _more(quotient.inverse(), policy):
        return None
    return f"the mean {what} has {before.value:.0f} tokens in the baseline, {after.value:.0f} in the candidate"


def _distributions(
    what: str, before: Histogram | None, after: Histogram | None, means: Spread | None, policy: LatencyPolicy
) -> str | None:
    """Return in words how two distributions of lengths differ beyond chance. ``means`` is the ratio of their means.

    They are compared where they are farthest apart (Kolmogorov and Smirnov), so the number of boundaries does not
    matter: with n and m independent requests, chance explains sqrt(ln(2 / chance) / 2 * (1 / n + 1 / m)). The requests
    of a conversation are alike and tell less. The ratio of means shows it: it scatters more than that of independent
    requests.
    """
    widest = distribution.widest_gap(after, before) if before and after else None
    if before is None or after is None or widest is None:
        return None
    bound, gap = widest
    independent = sum(distribution.unevenness(each) / each.count for each in (before, after))
    effect = distribution.design_effect(means, independent) if means else 1.0
    chance = math.erfc(policy.traffic_z_score / math.sqrt(2.0))
    margin = math.sqrt(math.log(2.0 / chance) / 2.0 * effect * (1.0 / before.count + 1.0 / after.count))
    if abs(gap) <= max(margin, policy.length_shift_min):
        return None
    more, less = ("candidate", "baseline") if gap > 0.0 else ("baseline", "candidate")
    return f"{abs(gap):.0%} more of the {what} have at most {bound:.0f} tokens in the {more} than in the {less}"


def conditions(found: Difference, like_load: MeasuredCost | None) -> dict[Sli, Conditions]:
    """Return what each latency may conclude. ``like_load`` compares the time per token at the loads of both sides.

    Prompts lengthen the time to first token, prompts and answers the whole. Time per output token is a mean over the
    answer, so its mean stays comparable. Its tail does not: it is spread wider by short answers, and long prompts that
    are read in the same steps stall other answers.
    """
    prompts = "prompts differ in length" if found.prompts else None
    lengths = prompts or ("answers differ in length" if found.answers else None)
    load = "the loads differ" if found.load else None
    per_token = Conditions(tail=lengths is None, explained=found.demand)
    if load:
        per_token = Conditions(
            unlike=None if like_load else f"{load}, and no load was recorded in both",
            tail=False,
            like_load=like_load.speedup.inverse() if like_load else None,
        )
    return {
        "time_per_output_token": per_token,
        "time_to_first_token": Conditions(
            unlike=load or prompts, explained=_product(found.demand, found.prompt_lengths), tail=lengths is None
        ),
        "request_latency": Conditions(unlike=load or lengths, explained=_product(found.demand, found.all_lengths)),
    }


def _product(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] * other[0], one[1] * other[1]
