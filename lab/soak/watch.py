"""What a running exporter takes: memory, descriptors, threads, CPU; and how long its answers take."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import AsyncIterator

from bench.processes import cpu_seconds, cpu_when_quiet, descriptors, memory, threads

GROWTH_MIB = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Rest:
    """A process that has nothing to do. ``rss`` is in MiB."""

    rss: float
    descriptors: int
    threads: int

    @classmethod
    async def of(cls, pid: int) -> Rest:
        """Wait until the process is quiet, then look."""
        await cpu_when_quiet(pid)
        return cls(memory(pid).now, descriptors(pid), threads(pid))


@dataclasses.dataclass(slots=True)
class Watch:
    """A soak: its amount in words, what was measured, and the limits that did not hold."""

    pid: int
    more_descriptors: int = 0  # at the end than at the start: rotated files stay open while they exist
    amount: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    start: Rest = dataclasses.field(default_factory=lambda: Rest(0.0, 0, 0))
    end: Rest = dataclasses.field(default_factory=lambda: Rest(0.0, 0, 0))
    peak: float = 0.0
    latencies: list[float] = dataclasses.field(default_factory=list)
    broken: list[str] = dataclasses.field(default_factory=list)

    def check(self, holds: bool, otherwise: str) -> None:
        """Note ``otherwise`` unless the limit holds; each only once."""
        if not holds and otherwise not in self.broken:
            self.broken.append(otherwise)

    def equal(self, what: str, found: float, expected: float) -> None:
        self.check(found == expected, f"{what}: expected {expected:,.0f}, found {found:,.0f}")

    @contextlib.asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        """Compare the process at rest before and after what is done inside. Call it after the warm-up."""
        self.start = await Rest.of(self.pid)
        began, cpu = time.monotonic(), cpu_seconds(self.pid)
        yield
        self.seconds, self.cpu_seconds = time.monotonic() - began, cpu_seconds(self.pid) - cpu
        self.end = await Rest.of(self.pid)
        self.peak = memory(self.pid).peak
        growth = self.end.rss - self.start.rss
        self.check(growth <= GROWTH_MIB, f"RSS grew by {growth:.1f} MiB; expected at most {GROWTH_MIB:g}")
        more = self.end.descriptors - self.start.descriptors
        self.check(more <= self.more_descriptors, f"{more} more descriptors; expected {self.more_descriptors} at most")
        self.equal("threads", self.end.threads, self.start.threads)

    def row(self) -> tuple[str, ...]:
        """The cells under :data:`HEADER`."""
        return (
            self.amount,
            f"{self.seconds / 60:.1f} min",
            f"{self.start.rss:.1f}, {self.end.rss:.1f}, {self.peak:.1f}",
            f"{self.start.descriptors}, {self.end.descriptors}",
            f"{self.start.threads}, {self.end.threads}",
            _percentiles(self.latencies),
            f"{self.cpu_seconds / self.seconds:.0%}",
        )


def _percentiles(seconds: list[float]) -> str:
    if len(seconds) < 2:
        return "-"
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"{1000 * cuts[49]:.0f}, {1000 * cuts[98]:.0f}, {1000 * max(seconds):.0f}"


HEADER = (
    "Amount",
    "Time",
    "RSS at start, end, peak (MiB)",
    "Descriptors at start, end",
    "Threads at start, end",
    "Scrape P50, P99, max (ms)",
    "CPU of one core",
)
