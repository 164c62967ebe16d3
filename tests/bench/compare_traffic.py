"""Requests as a service gets them: when, how long, how alike. Drawn from a seed, by arithmetic of the bench's own."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import NamedTuple

LONGEST_TOKENS = 8192


class Request(NamedTuple):
    """``arrival`` in seconds, lengths in tokens. ``ease``, standard normal: how fast it is by itself."""

    arrival: float
    prompt: int
    answer: int
    ease: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Lengths are lognormal: mean in tokens, and standard deviation of the logarithm.

    Requests arrive by chance, ``per_second`` on average, unless ``clients`` send the next one when they have an answer.
    """

    per_second: float = 4.0
    clients: int = 0
    prompt_tokens: float = 800.0
    prompt_sigma: float = 1.0
    answer_tokens: float = 100.0
    answer_sigma: float = 0.7

    def arrivals(self, rng: random.Random, until: float) -> list[Request]:
        """Return the requests from second 0 to ``until``, in their order; of clients only the first ones."""
        if self.clients:
            return [self.request(rng, 0.0) for _ in range(self.clients)]
        found, now = [], 0.0
        while (now := now + rng.expovariate(self.per_second)) < until:
            found.append(self.request(rng, now))
        return found

    def request(self, rng: random.Random, at: float) -> Request:
        """Draw a request that arrives at a time."""
        return Request(
            at,
            _tokens(self.prompt_tokens, self.prompt_sigma, rng.gauss(0.0, 1.0), 1),
            _tokens(self.answer_tokens, self.answer_sigma, rng.gauss(0.0, 1.0), 2),  # one has no time per output token
            rng.gauss(0.0, 1.0),
        )


def _tokens(mean: float, sigma: float, normal: float, least: int) -> int:
    return min(max(round(mean * math.exp(sigma * normal - sigma * sigma / 2.0)), least), LONGEST_TOKENS)
