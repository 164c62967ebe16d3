"""What a simulated predictor counts, and the recording that the product's own recorder makes of it."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable

import msgspec

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.baseline.recording import Recorder, with_increases
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.speculation.policy import load_policy
from support.builders import known
from support.counting import ONE_ENGINE

POLL_SECONDS = 5.0
# vLLM's buckets of tokens per request, for a context of 32,768 tokens.
LENGTHS = tuple(float(digit * 10**power) for power in range(5) for digit in (1, 2, 5))[:-1]
(_ENGINE,) = parse_exposition(ONE_ENGINE.read_bytes()).engines
CONTEXT = Context(hardware="simulated", model="m", runtime="simulated", request_parameters="drawn", command="none")


class Counters:
    """Totals of an engine since it started. Without speculation ``k`` is 0."""

    def __init__(self, k: int = 0, acceptance: float = 0.0, engine: str = "0") -> None:
        self.k = k
        self.engine = engine
        self.curve = [acceptance**n / sum(acceptance**m for m in range(k)) for n in range(k)]
        self.time_to_first_token = _Values(known(_ENGINE.time_to_first_token).bounds[:-1])
        self.time_per_output_token = _Values(known(_ENGINE.time_per_output_token).bounds[:-1])
        self.request_latency = _Values(known(_ENGINE.request_latency).bounds[:-1])
        self.prompt_length = _Values(LENGTHS)
        self.generation_length = _Values(LENGTHS)
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.steps = 0
        self.step_seconds = 0.0
        self.decoded_tokens = 0.0

    def stepped(self, steps: int, seconds: float, tokens: float) -> None:
        """Requests decoded so many steps, each counted for itself, in so many seconds, and got so many tokens."""
        self.steps += steps
        self.step_seconds += seconds
        self.decoded_tokens += tokens

    def first_token(self, waited: float, prompt: int, cached: int) -> None:
        """A request got its first token after so many seconds; the prefix cache held so many tokens of its prompt."""
        self.time_to_first_token.add(waited)
        self.prompt_tokens += prompt
        self.cached_prompt_tokens += cached

    def finished(self, seconds: float, decode_seconds: float, prompt: int, answer: int) -> None:
        """A request of so many tokens finished: seconds from its arrival, and from its first token."""
        self.request_latency.add(seconds)
        self.time_per_output_token.add(decode_seconds / (answer - 1))
        self.prompt_length.add(prompt)
        self.generation_length.add(answer)

    def snapshot(self) -> Snapshot:
        """What one poll reads."""
        first = self.time_to_first_token.histogram()
        finished = self.request_latency.histogram()
        accepted = max(self.decoded_tokens - self.steps, 0.0)
        engine = EngineSnapshot(
            model_name="m",
            engine=self.engine,
            generation_tokens=first.count + self.decoded_tokens,
            prompt_tokens=float(self.prompt_tokens),
            cached_prompt_tokens=float(self.cached_prompt_tokens),
            preemptions=0.0,
            requests_finished={"stop": finished.count},
            time_to_first_token=first,
            time_per_output_token=self.time_per_output_token.histogram(),
            step_latency=Histogram((math.inf,), (float(self.steps),), self.step_seconds),
            request_latency=finished,
            prompt_length=self.prompt_length.histogram(),
            generation_length=self.generation_length.histogram(),
        )
        if self.k:
            engine = msgspec.structs.replace(
                engine,
                drafts=float(self.steps),
                draft_tokens=float(self.steps * self.k),
                accepted_tokens=accepted,
                accepted_tokens_per_position={n: share * accepted for n, share in enumerate(self.curve)},
            )
        return Snapshot(engines=(engine,), engine_generation="v1", stats_present=True)


class _Values:
    """A histogram that grows."""

    def __init__(self, limits: tuple[float, ...]) -> None:
        self.limits = limits
        self.counts = [0] * (len(limits) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.limits, value)] += 1
        self.sum += value

    def histogram(self) -> Histogram:
        return Histogram((*self.limits, math.inf), tuple(map(float, itertools.accumulate(self.counts))), self.sum)


def recorded(name: str, polls: Iterable[tuple[float, Snapshot]], *, k: int) -> Baseline:
    """The recording of such polls: times in seconds and what was read."""
    times = iter(polls)
    at, first = next(times)
    recorder = Recorder(first, at, interval_seconds=load_policy().cost.interval_seconds)
    for at, snapshot in times:
        recorder.observe(snapshot, at)
    return with_increases(
        Baseline(
            name=name,
            recorded_at="2026-01-01T00:00:00Z",
            duration_seconds=recorder.seconds,
            context=CONTEXT,
            vllm_version="0.32.0",
            method="eagle3" if k else None,
            num_speculative_tokens=k or None,
            model_name="m",
        ),
        recorder.increases(),
    )
