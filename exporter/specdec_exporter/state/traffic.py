"""What one served model had to do lately: finished requests with their seconds, and prompts."""

from __future__ import annotations

from collections import deque
from operator import sub
from typing import NamedTuple

from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot

_FURTHEST = 1.5  # a sample that is so many times as old as the window is from before a pause


class Traffic(NamedTuple):
    """Increases over ``seconds``. ``request_seconds``: of the finished ``requests``, by their end-to-end latency.

    ``prompts`` counts the requests with a first token.
    """

    seconds: float = 0.0
    requests: float = 0.0
    request_seconds: float = 0.0
    prompts: float = 0.0
    prompt_tokens: float = 0.0


class TrafficWindow:
    """The traffic of the last ``seconds``, as a running total of what each engine counted between two answers."""

    def __init__(self, seconds: float) -> None:
        self._window = seconds
        self.spacing = 0.0  # seconds between two samples that are kept, at least
        self._timed = False  # whether the last answer told how long requests took
        self._total = Traffic()
        self._samples: deque[Traffic] = deque()  # totals; their seconds are those of the monotonic clock

    def count(self, before: EngineSnapshot, engine: EngineSnapshot) -> None:
        """Add what an engine counted between two answers."""
        self._timed = engine.request_latency is not None
        grown = (_grown(then, now) for then, now in zip(_counts(before), _counts(engine), strict=True))
        self._total = Traffic(0.0, *map(sum, zip(self._total[1:], grown, strict=True)))

    def sample(self, now: float) -> None:
        """Take note of the total at ``now``, after all engines of an answer."""
        samples = self._samples
        if len(samples) > 1 and now - samples[-2].seconds < self.spacing:
            samples.pop()
        samples.append(self._total._replace(seconds=now))
        while len(samples) > 1 and samples[1].seconds <= now - self._window:
            samples.popleft()
        if samples[0].seconds < now - _FURTHEST * self._window:
            samples.popleft()

    def lately(self, now: float) -> Traffic | None:
        """Return the traffic of the window; ``None`` if it has no two samples, or ended so long ago."""
        if len(self._samples) < 2 or self._samples[-1].seconds <= now - self._window:
            return None
        return Traffic(*map(sub, self._samples[-1], self._samples[0]))

    def load(self, now: float, least_seconds: float) -> tuple[float, float] | None:
        """Return finished requests per second and requests in flight, by Little's law; ``None`` if they are not known.

        Requests in flight are the seconds of the finished ones per second. ``least_seconds``: a shorter time says
        nothing.
        """
        lately = self.lately(now) if self._timed else None
        if lately is None or lately.seconds < least_seconds:
            return None
        return lately.requests / lately.seconds, lately.request_seconds / lately.seconds


def _counts(engine: EngineSnapshot) -> tuple[float | None, ...]:
    latency, first = engine.request_latency, engine.time_to_first_token
    return (
        latency.count if latency else None,
        latency.sum if latency else None,
        first.count if first else None,
        engine.prompt_tokens,
    )


def _grown(before: float | None, now: float | None) -> float:
    return 0.0 if before is None or now is None else max(now - before, 0.0)
