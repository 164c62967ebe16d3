"""An exposition with the counters that vLLM may get, written with prometheus_client as vLLM writes its own.

The families that 0.33.0 has are those of its ``v1/spec_decode/metrics.py``: names, help, labels, and zeros from the
start. The others have the names of their proposals (vllm-project/vllm#58340, #44487).
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

LABELS = {"model_name": "tiny", "engine": "0"}


class Server:
    """One engine with k speculative tokens; ``proposed``: whether it has the new families."""

    def __init__(self, k: int, *, proposed: bool = True) -> None:
        self._registry = CollectorRegistry()
        self._k = k
        self._drafts = self._counter("num_drafts", "Number of spec decoding drafts.")
        self._drafted = self._counter("num_draft_tokens", "Number of draft tokens.")
        self._accepted = self._counter("num_accepted_tokens", "Number of accepted tokens.")
        self._accepted_at = self._by_position("num_accepted_tokens_per_pos", "Accepted tokens per draft position.")
        self._proposed = proposed
        if proposed:
            self._verified = self._counter("num_verified_draft_tokens", "Number of verified draft tokens.")
            self._drafted_at = self._by_position("num_draft_tokens_per_pos", "Draft tokens per draft position.")
            self._rates = Histogram(
                "vllm:request_spec_decode_acceptance_rate",
                "Acceptance rates of requests.",
                list(LABELS),
                buckets=[0.25, 0.5, 0.75, 1.0],
                registry=self._registry,
            ).labels(**LABELS)

    def _counter(self, name: str, documentation: str) -> Counter:
        name = f"vllm:spec_decode_{name}"
        return Counter(name, documentation, list(LABELS), registry=self._registry).labels(**LABELS)

    def _by_position(self, name: str, documentation: str) -> list[Counter]:
        labels = [*LABELS, "position"]
        counter = Counter(f"vllm:spec_decode_{name}", documentation, labels, registry=self._registry)
        return [counter.labels(**LABELS, position=str(position)) for position in range(self._k)]

    def serve(self, drafts: Iterable[tuple[int, int, int]]) -> Server:
        """Count drafts as the scheduler does: tokens drafted, of them verified, of them accepted."""
        for drafted, verified, accepted in drafts:
            self._drafts.inc()
            self._drafted.inc(drafted)
            self._accepted.inc(accepted)
            for position in range(accepted):
                self._accepted_at[position].inc()
            if self._proposed:
                self._verified.inc(verified)
                for position in range(drafted):
                    self._drafted_at[position].inc()
        return self

    def finish(self, *rates: float) -> Server:
        """Count finished requests by their acceptance rates."""
        for rate in rates:
            self._rates.observe(rate)
        return self

    @property
    def body(self) -> bytes:
        """What ``/metrics`` answers."""
        return generate_latest(self._registry)
