"""A predictor that discovery found, and how a provider is doing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a predictor is, and the labels of its series.

    They are those that a scrape of a sidecar would add: ``instance`` is host and port, ``namespace`` and ``pod`` are
    empty where nobody told them.
    """

    url: str
    inference_service: str
    instance: str
    namespace: str = ""
    pod: str = ""

    @property
    def title(self) -> str:
        """What tells it from all others: two targets with one title would have equal series."""
        return f"{self.inference_service}@{self.instance}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its series, empty ones left out."""
        named = {"namespace": self.namespace, "pod": self.pod, "instance": self.instance}
        return {"inference_service": self.inference_service, **{name: text for name, text in named.items() if text}}


@dataclass(slots=True)
class ProviderHealth:
    """How it goes with a provider. ``problem`` says in words why its last attempt failed."""

    problem: str | None = "nothing has been read yet"
    failures: int = 0
    last_success: float | None = None  # Unix time
    targets: int = 0

    def succeeded(self) -> None:
        """Note that the last attempt worked."""
        self.problem, self.last_success = None, time.time()

    def failed(self, problem: str) -> bool:
        """Note a failure; return whether it is another one than the last."""
        new = problem != self.problem
        self.problem, self.failures = problem, self.failures + 1
        return new


class Provider(Protocol):
    """Finds targets until it is cancelled; it raises nothing else."""

    name: str
    health: ProviderHealth

    @property
    def left_out(self) -> int:
        """Targets beyond the bound, at the last look."""

    @property
    def targets(self) -> Sequence[Target]:
        """The targets that are there now."""

    async def run(self) -> None:
        """Look, and say so after each look that may have changed the targets."""
