"""Traffic whose acceptance is chosen while it runs, and what it must add to vLLM's counters."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from vllm.language import CYCLE_LENGTH, Language, excerpt
from vllm.play import send
from vllm.predict import Counts
from vllm.scenarios import Phase, Scenario
from vllm.server import Server

_REQUESTS = 8  # in a batch; four at a time
_MAX_TOKENS = 24
_SHORT_MAX_TOKENS = 5


class Traffic:
    """Requests in batches, one after the other. The draft model knows ``share`` of the successors (vllm.language)."""

    def __init__(self, server: Server, language: Language, scenario: Scenario, share: float) -> None:
        self.share = share
        self.max_tokens = _MAX_TOKENS
        self.expected: Counts | None = None  # of all batches that are done
        self._server = server
        self._language = language
        self._scenario = scenario
        self._batches = 0
        self._between = asyncio.Lock()
        self._ended = False

    async def run(self) -> None:
        """Send until :meth:`end`."""
        while not self._ended:
            async with self._between:
                await self.batch()
            await asyncio.sleep(0)

    def shorten(self) -> None:
        """Send short requests from now on: alerts about latency need many of them in a minute."""
        self.max_tokens = _SHORT_MAX_TOKENS

    def end(self) -> None:
        """Let :meth:`run` return after the batch that is under way."""
        self._ended = True

    async def batch(self) -> None:
        """Send one batch to its end."""
        start = 23 * self._batches
        prompts = tuple(excerpt(self.share, start=(start + 7 * index) % CYCLE_LENGTH) for index in range(_REQUESTS))
        phase = Phase(f"batch {self._batches}", prompts, self.max_tokens)
        self._batches += 1
        await asyncio.to_thread(send, self._server, phase, self._language)
        counts = self._scenario.expected(self._language, phase)
        self.expected = counts if self.expected is None else self.expected + counts

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[Counts]:
        """Hold the traffic between two batches; yields what all counters must say then."""
        async with self._between:
            assert self.expected is not None, "nothing was sent yet"
            yield self.expected


@contextlib.asynccontextmanager
async def flowing(traffic: Traffic) -> AsyncIterator[Traffic]:
    """Keep the traffic flowing; it ends with the batch that is under way."""
    task = asyncio.create_task(traffic.run())
    try:
        yield traffic
    finally:
        traffic.end()
        await task
