"""Requests as a service gets them: when, how long, how alike. Drawn from a seed, by arithmetic of the bench's own."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from typing import NamedTuple

LONGEST_TOKENS = 8192
_READING_SECONDS = 20.0  # between an answer and the next question of a conversation

_NOTHING = (0.0, 0.0, 0.0)


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
    The requests of a conversation, ``turns`` on average, share the part ``alike`` of the variance of length and ease.
    The share ``long_share`` of the requests has prompts four times as long; it swings by the hour of the day, and every
    recording begins at an hour of its own.
    """

    per_second: float = 4.0
    clients: int = 0
    prompt_tokens: float = 800.0
    prompt_sigma: float = 1.0
    answer_tokens: float = 100.0
    answer_sigma: float = 0.7
    turns: float = 1.0
    alike: float = 0.0
    long_share: float = 0.0

    def arrivals(self, rng: random.Random, until: float) -> list[Request]:
        """Return the requests from second 0 to ``until``, in their order; of clients only the first ones."""
        if self.clients:
            return [self.next_of_client(rng, 0.0) for _ in range(self.clients)]
        return sorted(self._by_chance(rng, until))

    def next_of_client(self, rng: random.Random, now: float) -> Request:
        """Return what a client sends next."""
        return self._draw(rng, now, _NOTHING, self.long_share)

    def _by_chance(self, rng: random.Random, until: float) -> Iterator[Request]:
        phase = 2.0 * math.pi * rng.random()
        now = -10.0 * self.turns * _READING_SECONDS if self.turns > 1.0 else 0.0  # conversations that go on already
        while (now := now + rng.expovariate(self.per_second / self.turns)) < until:
            shared = (rng.gauss(0.0, 1.0), rng.gauss(0.0, 1.0), rng.gauss(0.0, 1.0)) if self.alike else _NOTHING
            at = now
            while at < until:
                if at >= 0.0:
                    swing = 1.0 + 0.5 * math.sin(phase + 2.0 * math.pi * at / 86400.0)
                    yield self._draw(rng, at, shared, self.long_share * swing)
                if rng.random() * self.turns < 1.0:
                    break
                at += rng.expovariate(1.0 / _READING_SECONDS)

    def _draw(self, rng: random.Random, at: float, shared: tuple[float, float, float], long_share: float) -> Request:
        common, own = math.sqrt(self.alike), math.sqrt(1.0 - self.alike)
        prompt, answer, ease = (common * part + own * rng.gauss(0.0, 1.0) for part in shared)
        mean = self.prompt_tokens * (4.0 if long_share and rng.random() < long_share else 1.0)
        return Request(
            at,
            _tokens(mean, self.prompt_sigma, prompt, 1),
            _tokens(self.answer_tokens, self.answer_sigma, answer, 2),  # one token has no time per output token
            ease,
        )


def _tokens(mean: float, sigma: float, normal: float, least: int) -> int:
    return min(max(round(mean * math.exp(sigma * normal - sigma * sigma / 2.0)), least), LONGEST_TOKENS)
