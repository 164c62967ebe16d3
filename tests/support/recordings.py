"""Recordings for tests: latencies drawn from distributions, in vLLM's buckets, with the counts of so much traffic."""

from __future__ import annotations

import dataclasses
import math
import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

from msgspec.structs import replace

from rules.scenario import BOUNDS
from specdec_exporter.baseline.file import HISTOGRAMS, Baseline, Block, Context
from specdec_exporter.comparison.compare import Comparison, compare
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import SCALARS, Counts
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import load_policy

INF = math.inf
TPOT, TTFT, E2E = ((*BOUNDS[sli], INF) for sli in ("tpot", "ttft", "e2e"))
CONTEXT = Context(
    hardware="1 x L4 24 GB",
    model="meta-llama/Llama-3.1-8B",
    runtime="vLLM 0.32.0",
    request_parameters="temperature 0, 128 tokens",
    command="vllm serve meta-llama/Llama-3.1-8B",
)
INTERVAL_SECONDS = 15.0
CURVE = (0.7, 0.5, 0.34)  # of which the mean acceptance length is 2.54


def histogram(values: Sequence[float], bounds: tuple[float, ...] = TPOT) -> Histogram:
    """The histogram that a server would show after these values."""
    counts = [0] * len(bounds)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    cumulative = tuple(float(sum(counts[: i + 1])) for i in range(len(bounds)))
    return Histogram(bounds=bounds, counts=cumulative, sum=math.fsum(values))


def lognormal(source: random.Random, median: float, count: int, sigma: float = 0.4) -> list[float]:
    return [median * source.lognormvariate(0.0, sigma) for _ in range(count)]


def recording(
    name: str = "recording",
    tpot: Sequence[float] = (0.02,) * 1000,
    ttft: Sequence[float] | None = None,
    e2e: Sequence[float] | None = None,
    curve: Sequence[float] = (),
    *,
    blocks: int = 0,
    **facts: Any,
) -> Baseline:
    """A recording of ten minutes with answers of 128 tokens; ``curve``: speculation with these rates by position.

    Where not given, the first token takes 50 ms and the rest follows from the time per token. ``blocks``: so many
    blocks of time, each with its part of the requests, in their order.
    """
    requests = float(len(tpot))
    decoded = requests * 127
    drafts = decoded / (1 + sum(curve)) if curve else None
    counts = Counts(
        drafts=drafts,
        draft_tokens=drafts and drafts * len(curve),
        accepted_tokens=drafts and drafts * sum(curve),
        accepted_per_position=tuple(rate * drafts for rate in curve) if drafts else (),
        generation_tokens=requests * 128,
        first_tokens=requests,
        steps=drafts or decoded,
        prompt_tokens=requests * 300,
        preemptions=0.0,
    )
    first = [0.05] * len(tpot) if ttft is None else ttft
    whole = [0.05 + 127 * value for value in tpot] if e2e is None else e2e
    given: dict[str, Any] = {
        "name": name,
        "recorded_at": "2026-11-21T02:00:00Z",
        "duration_seconds": 600.0,
        "context": CONTEXT,
        "vllm_version": "0.32.0",
        "model_name": "llama",
        "method": "eagle3" if curve else None,
        "num_speculative_tokens": len(curve) or None,
        "counts": counts,
        "requests_finished": requests,
        **_histograms(first, tpot, whole),
    }
    made = Baseline(**given | facts)
    return replace(made, blocks=_blocks(made, blocks, (first, tpot, whole))) if blocks else made


def _histograms(first: Sequence[float], tpot: Sequence[float], whole: Sequence[float]) -> dict[str, Histogram]:
    return dict(zip(HISTOGRAMS, map(histogram, (first, tpot, whole), (TTFT, TPOT, E2E)), strict=True))


def _blocks(of: Baseline, number: int, samples: Sequence[Sequence[float]]) -> tuple[Block, ...]:
    known: dict[str, Any] = {name: value for name in SCALARS if (value := getattr(of.counts, name)) is not None}
    counts = Counts(**{name: value / number for name, value in known.items()})
    parts = ([each[len(each) * i // number : len(each) * (i + 1) // number] for each in samples] for i in range(number))
    seconds = of.duration_seconds / number
    blocks: list[dict[str, Any]] = [_histograms(*part) for part in parts]
    return tuple(Block(seconds=seconds, counts=counts, **each) for each in blocks)


def loaded(
    name: str,
    step_seconds: Mapping[float, float],
    curve: Sequence[float] = (),
    *,
    noise: float = 0.02,
    seed: int = 1,
    intervals: int = 24,
    tokens_per_answer: int = 128,
    **facts: Any,
) -> Baseline:
    """A recording with ``intervals`` of 15 s: so many at each concurrency in turn, with its mean seconds of a step.

    ``noise`` is the relative scatter of an interval's step time, ``curve`` the acceptance by position; every step
    drafts as many tokens as the curve is long. Latencies and counts follow from the steps. Prompts have 200 and 400
    tokens in turn, and reading them takes no time: step times depend on the load alone.
    """
    source = random.Random(f"{name} {seed}")
    made: list[Load] = []
    per_step = 1.0 + sum(curve)
    tpot: list[float] = []
    for i in range(intervals):
        for concurrency, mean in step_seconds.items():
            step = mean * source.lognormvariate(0.0, noise)
            steps = INTERVAL_SECONDS * concurrency / step
            requests = steps * per_step / (tokens_per_answer - 1)
            counts = Counts(
                steps=steps,
                step_seconds=steps * step,
                generation_tokens=steps * per_step + requests,
                first_tokens=requests,
                prompt_tokens=requests * (200 if i % 2 else 400),
                drafts=steps if curve else None,
                draft_tokens=steps * len(curve) if curve else None,
                accepted_tokens=steps * sum(curve) if curve else None,
                preemptions=0.0,
            )
            made.append(Load(INTERVAL_SECONDS, counts))
            tpot += [step / per_step * source.lognormvariate(0.0, 0.1) for _ in range(max(round(requests), 1))]
    total = reduce(add, made)
    curve_counts = tuple(rate * total.steps for rate in curve)
    given: dict[str, Any] = {
        "duration_seconds": total.seconds,
        "counts": replace(total.counts, accepted_per_position=curve_counts),
        "intervals": tuple(made),
    }
    return recording(name, tpot=tpot, curve=curve, **(given | facts))


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A server whose step times are known, and so the truth about its speed-up.

    A step takes (alpha + beta * requests in decode) / (1 - gamma * prompt tokens per second); with k drafts
    1 + (fixed + k * marginal) * (1 + growth * requests in decode) times as long. ``curve``: acceptance by position, of
    the largest k. ``noise``: the relative deviation of the step time of an interval.
    """

    fixed: float = 0.0
    marginal: float = 0.0
    growth: float = 0.0
    curve: tuple[float, ...] = ()
    alpha: float = 0.02
    beta: float = 0.0005
    gamma: float = 0.00002
    noise: float = 0.0

    @property
    def tokens_per_step(self) -> float:
        return 1.0 + sum(self.curve)

    def slowdown(self, k: int, load: float) -> float:
        return 1.0 + (self.fixed + k * self.marginal) * (1.0 + self.growth * load) if k else 1.0

    def speedup(self, k: int | None = None, load: float = 0.0) -> float:
        curve = self.curve[:k]
        return (1.0 + sum(curve)) / self.slowdown(len(curve), load)

    def step_seconds(self, load: float, prompt_rate: float = 0.0, k: int | None = None) -> float:
        plain = (self.alpha + self.beta * load) / (1.0 - self.gamma * prompt_rate)
        return plain * self.slowdown(len(self.curve[:k]), load)

    def interval(self, load: float, prompt_rate: float = 0.0, shock: float | None = 0.0, seconds: float = 15.0) -> Load:
        """What it does in some seconds; ``shock`` is how many deviations this interval is off."""
        step = self.step_seconds(load, prompt_rate) * math.exp(self.noise * (shock or 0.0))
        steps = seconds * load / step
        counts = Counts(
            steps=steps,
            step_seconds=load * seconds,
            generation_tokens=steps * self.tokens_per_step + 3.0,
            first_tokens=3.0,
            prompt_tokens=prompt_rate * seconds,
            draft_tokens=steps * len(self.curve) if self.curve else None,
        )
        return Load(seconds, counts)

    def record(self, k: int, loads: Sequence[float], **facts: Any) -> Baseline:
        """A recording with k drafts a step at these loads in turn."""
        steps = {load: self.step_seconds(load, k=k) for load in loads}
        name = facts.pop("name", f"k{k}" if k else "plain")
        return loaded(name, steps, self.curve[:k], **facts)


def compared(baseline: Baseline, candidate: Baseline, *, paired: bool = False) -> Comparison:
    """The comparison by the policy as it is."""
    return compare(baseline, candidate, load_policy(), paired=paired)


def codes(comparison: Comparison) -> set[str]:
    """Of its flags."""
    return {flag.code for flag in comparison.flags}
