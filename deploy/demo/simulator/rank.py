"""One engine (data-parallel rank): queue, prefill, and steps that draft, verify and emit tokens."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import math
import random

from demo.simulator.scenario import Conditions
from demo.simulator.settings import SimulatorSettings
from demo.simulator.shapes import Release
from demo.simulator.totals import Totals, Window

NEVER = math.inf


@dataclasses.dataclass(slots=True, eq=False)
class Request:
    """One request, which finishes with ``end`` tokens for ``reason``. Times are simulated seconds."""

    prompt_tokens: int
    end: int
    reason: str
    arrived_at: float
    slow_factor: float = 1.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    generated: int = 0


class Rank:
    """Runs requests in simulated time. The caller tells the current time and its conditions in every call."""

    def __init__(
        self, index: int, settings: SimulatorSettings, release: Release, rng: random.Random, now: float
    ) -> None:
        self.index = index
        self.totals = Totals(release, len(settings.rates), settings.max_model_len)
        self.window = Window(since=now, accepted_per_position=[0] * len(settings.rates))
        self.seen_request = False
        self._settings = settings
        self._v0 = release.generation == "v0"
        self._rng = rng
        self._waiting: collections.deque[Request] = collections.deque()
        self._prefilling: list[tuple[float, int, Request]] = []
        self._decoding: list[Request] = []
        self._step: list[tuple[Request, int]] = []
        self._depth = settings.k
        self._step_ends_at = NEVER
        self._sequence = 0

    @property
    def next_event_at(self) -> float:
        """The simulated second of its next event; infinite when idle."""
        if self._prefilling and self._prefilling[0][0] < self._step_ends_at:
            return self._prefilling[0][0]
        return self._step_ends_at

    @property
    def running(self) -> int:
        """Requests in execution, prefill included."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def kv_cache_usage(self) -> float:
        """Share of the KV cache in use."""
        requests = [request for _, _, request in self._prefilling] + self._decoding
        tokens = sum(request.prompt_tokens + request.generated for request in requests)
        return min(1.0, tokens / self._settings.kv_cache_tokens)

    def submit(self, request: Request, now: float, conditions: Conditions) -> None:
        """Take a request into the queue, and into execution if there is room."""
        self.seen_request = True
        if self._rng.random() < conditions.tail_share:
            request.slow_factor = conditions.tail_factor
        self._waiting.append(request)
        self._admit(now, conditions)

    def run_event(self, now: float, conditions: Conditions) -> int:
        """Run the event due at ``now``, a first token or the end of a step; return the number of finished requests."""
        finished = self._end_step(now, conditions) if self._step_ends_at <= now else self._first_token(now)
        if finished:
            self._admit(now, conditions)
        if self._step_ends_at == NEVER and self._decoding:
            self._start_step(now, conditions)
        return finished

    def take_window(self, now: float) -> Window:
        """Return the counts of drafts since the last call (or start), and begin new ones."""
        window = self.window
        self.window = Window(since=now, accepted_per_position=[0] * len(window.accepted_per_position))
        return window

    def _admit(self, now: float, conditions: Conditions) -> None:
        latency = self._settings.latency
        while self._waiting and self.running < self._settings.max_num_seqs:
            request = self._waiting.popleft()
            seconds = self._rng.lognormvariate(math.log(latency.prefill_seconds), latency.prefill_sigma)
            seconds *= conditions.latency_factor * request.slow_factor
            self._sequence += 1
            heapq.heappush(self._prefilling, (now + seconds, self._sequence, request))

    def _first_token(self, now: float) -> int:
        request = heapq.heappop(self._prefilling)[2]
        totals = self.totals
        totals.prompt_tokens += request.prompt_tokens
        totals.prefix_hits += request.prompt_tokens // 4  # the log says 25 %
        totals.generation_tokens += 1
        totals.v0_generation_steps += 1
        totals.time_to_first_token.observe(now - request.arrived_at)
        request.first_token_at = request.last_token_at = now
        self._decoding.append(request)
        return self._emit(request, 1, now)

    def _start_step(self, now: float, conditions: Conditions) -> None:
        rng, sigma = self._rng, self._settings.latency.step_sigma
        # A slow request takes part in some of the steps only, so it does not delay the others.
        batch = [r for r in self._decoding if r.slow_factor <= 1 or rng.random() * r.slow_factor < 1]
        lengths = [self._draft_length(conditions) for _ in batch]
        self._step = list(zip(batch, lengths, strict=True))
        if self._settings.adaptive_verification:
            self._depth = self._best_depth(lengths, conditions.rates)
        jitter = rng.lognormvariate(0.0, sigma) if sigma else 1.0
        self._step_ends_at = now + self._step_seconds(lengths, self._depth) * jitter * conditions.latency_factor

    def _best_depth(self, lengths: list[int], rates: tuple[float, ...]) -> int:
        """Return how many tokens of each draft to verify, for the most tokens per second.

        vLLM (0.28.0 to 0.33.0) chooses so by its confidence in each token (``adaptive_verification.py``); here it knows
        the rates. It may verify nothing.
        """
        depths = range(len(rates) + 1)
        expected = [sum(1 + sum(rates[: min(length, depth)]) for length in lengths) for depth in depths]
        return max(depths, key=lambda depth: expected[depth] / self._step_seconds(lengths, depth))

    def _step_seconds(self, lengths: list[int], depth: int) -> float:
        latency, longest = self._settings.latency, max(lengths, default=0)
        seconds = latency.step_seconds + latency.draft_token_seconds * longest
        seconds += latency.request_seconds * max(0, len(lengths) - 1)
        verified = sum(min(length, depth) for length in lengths)
        return seconds + latency.batched_token_seconds * max(0, verified - longest)

    def _draft_length(self, conditions: Conditions) -> int:
        settings, rng = self._settings, self._rng
        if not conditions.drafting or not conditions.rates:
            return 0
        if settings.no_draft_share and rng.random() < settings.no_draft_share:
            return 0
        if settings.k > 1 and settings.short_draft_share and not self._v0 and rng.random() < settings.short_draft_share:
            return rng.randint(1, settings.k - 1)
        return settings.k

    def _end_step(self, now: float, conditions: Conditions) -> int:
        step, self._step, self._step_ends_at = self._step, [], NEVER
        totals, finished = self.totals, 0
        for request, draft_length in step:
            accepted = self._verify(draft_length, conditions) if draft_length else 0
            emitted = min(accepted + 1, request.end - request.generated)  # tokens past the end count as accepted
            totals.generation_tokens += emitted
            totals.v0_generation_steps += 1
            totals.inter_token.observe(now - request.last_token_at)
            request.last_token_at = now
            finished += self._emit(request, emitted, now)
        return finished

    def _verify(self, draft_length: int, conditions: Conditions) -> int:
        """Count one draft and return its accepted tokens. One draw decides: rates are unconditional and never rise."""
        rates, draw, accepted = conditions.rates, self._rng.random(), 0
        while accepted < min(draft_length, self._depth) and draw < rates[accepted]:
            accepted += 1
        for counts in (self.totals, self.window):
            counts.drafts += 1
            counts.draft_tokens += draft_length  # what is not verified counts as drafted
            counts.accepted_tokens += accepted
            for position in range(accepted):
                counts.accepted_per_position[position] += 1
        if self._v0:
            self._count_v0(accepted, draft_length, rates)
        return accepted

    def _count_v0(self, accepted: int, draft_length: int, rates: tuple[float, ...]) -> None:
        """Count as V0 does: it judges each draft token alone, so one after a rejected token may count as accepted."""
        independent = accepted
        for position in range(accepted + 1, draft_length):
            before = rates[position - 1]
            independent += before > 0 and self._rng.random() < rates[position] / before
        self.totals.v0_drafts += 1
        self.totals.v0_accepted += independent
        self.totals.v0_emitted += accepted + 1

    def _emit(self, request: Request, tokens: int, now: float) -> bool:
        """Give ``tokens`` to the request; return whether it is finished now."""
        request.generated += tokens
        if over := request.generated >= request.end:
            self._finish(request, now)
        return over

    def _finish(self, request: Request, now: float) -> None:
        totals, decode_seconds = self.totals, request.last_token_at - request.first_token_at
        self._decoding.remove(request)
        totals.finished[request.reason] = totals.finished.get(request.reason, 0) + 1
        totals.request_latency.observe(now - request.arrived_at)
        totals.request_decode.observe(decode_seconds)
        totals.prompt_length.observe(request.prompt_tokens)
        totals.generation_length.observe(request.generated)
        # a request with one token has no decode phase; vLLM observes 0
        totals.request_tpot.observe(decode_seconds / (request.generated - 1) if request.generated > 1 else 0.0)
