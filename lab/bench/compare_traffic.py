"""Requests as a service gets them: when, how long, how easy to draft. Drawn from a seed."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import NamedTuple

LONGEST_TOKENS = 16384
BUSY, CALM = 2.0, 0.5  # times the mean rate; calm spells last twice as long, so the mean holds
_CONCENTRATION = 8.0  # of the beta distribution of requests' acceptance


class Request(NamedTuple):
    """``arrival`` in seconds, lengths in tokens. ``acceptance``: that of a draft token after accepted ones.

    ``cached``: the tokens of the prompt that the prefix cache holds, so nobody reads them.
    """

    arrival: float
    prompt: int
    answer: int
    acceptance: float
    cached: int = 0

    @property
    def computed(self) -> int:
        """Tokens of the prompt that are read."""
        return self.prompt - self.cached


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Lengths are lognormal: mean in tokens, and standard deviation of the logarithm. Acceptance is a beta.

    Requests arrive by chance, ``per_second`` on average; ``constant``: at a fixed interval; unless ``clients`` send the
    next one when they have an answer. With bursts of ``burst_seconds`` on average, the rate switches between
    :data:`BUSY` and :data:`CALM`. ``cached``: the share of each prompt that the prefix cache holds.
    """

    per_second: float = 4.0
    constant: bool = False
    clients: int = 0
    burst_seconds: float = 0.0
    prompt_tokens: float = 800.0
    prompt_sigma: float = 0.8
    answer_tokens: float = 100.0
    answer_sigma: float = 0.7
    acceptance: float = 0.6
    cached: float = 0.0

    def arrivals(self, rng: random.Random, until: float) -> list[Request]:
        """Return the requests from second 0 to ``until``, in their order; of clients only the first ones."""
        if self.clients:
            return [self.request(rng, 0.0) for _ in range(self.clients)]
        if self.constant:
            return [self.request(rng, n / self.per_second) for n in range(1, math.ceil(until * self.per_second) + 1)]
        found, now, busy = [], 0.0, rng.random() < 1.0 / 3.0
        change = math.inf
        if self.burst_seconds:
            change = rng.expovariate(1.0 / (self.burst_seconds if busy else 2.0 * self.burst_seconds))
        while now < until:
            rate = self.per_second * ((BUSY if busy else CALM) if self.burst_seconds else 1.0)
            following = now + rng.expovariate(rate)
            if following > change:
                now, busy = change, not busy
                change = now + rng.expovariate(1.0 / (self.burst_seconds if busy else 2.0 * self.burst_seconds))
                continue
            now = following
            found.append(self.request(rng, now))
        return found

    def request(self, rng: random.Random, at: float) -> Request:
        """Draw a request that arrives at a time."""
        mean, prompt = self.acceptance, _tokens(self.prompt_tokens, self.prompt_sigma, rng.gauss(0.0, 1.0), 1)
        return Request(
            at,
            prompt,
            _tokens(self.answer_tokens, self.answer_sigma, rng.gauss(0.0, 1.0), 2),  # one has no time per output token
            rng.betavariate(_CONCENTRATION * mean, _CONCENTRATION * (1.0 - mean)),
            min(round(self.cached * prompt), prompt - 1),  # the last token is always read
        )


def tokens_per_step(acceptance: float, k: int) -> float:
    """Tokens that a step gives a request on average: the accepted draft tokens, and one more."""
    return math.fsum(acceptance**n for n in range(k + 1))


def _tokens(mean: float, sigma: float, normal: float, least: int) -> int:
    return min(max(round(mean * math.exp(sigma * normal - sigma * sigma / 2.0)), least), LONGEST_TOKENS)
