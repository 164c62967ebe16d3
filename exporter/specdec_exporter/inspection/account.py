"""The account of one configuration in a log: windows in, an :class:`Account` out. No I/O, and memory of fixed size."""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise
from operator import add

import msgspec

from specdec_exporter.inspection.spread import AcceptanceSpread, SpreadCounter
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.log.events import EngineConfig, SpecDecoding
from specdec_exporter.predictor.log.speculator import Speculator, speculator
from specdec_exporter.predictor.log.start import Start
from specdec_exporter.predictor.log.totals import LogTotals, engine_label
from specdec_exporter.speculation.acceptance import Counts, acceptance_ratio
from specdec_exporter.speculation.blocks import Blocks
from specdec_exporter.speculation.figures import Figures, figures, logged_counts_of, without_length

SERIES_CAPACITY = 512  # even, because neighbours are merged
HISTORY_PARTS = 48  # parts of a sparkline in an 80-column report
TREND_MIN_WINDOWS = 6
PERCENTILES = (10, 50, 90)


class NotableWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The best or the worst window with enough drafts."""

    timestamp: str | None
    engine: str
    acceptance_ratio: float
    draft_tokens: float


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration in the log.

    ``figures`` is ``None`` without a window. ``spread``, best and worst cover the windows with the policy's minimum
    of drafts. ``history`` has the acceptance of equal shares of the windows, ``None`` without drafts.
    ``thirds`` has the acceptance of the first and the last third. ``lifetime`` has the accepted and draft tokens since
    a V0 engine started, by its last line. ``deployment`` is what its start says, and ``speculator`` what drafts, by its
    start and its lines. ``requests_running`` is the mean number on an engine, over its draft tokens; ``None`` if no
    line tells it. Where vLLM verifies only part of each draft, a window has no acceptance.
    """

    config: EngineConfig | None
    deployment: Deployment
    speculator: Speculator
    starts: int
    since: str | None
    windows: int
    figures: Figures | None
    engines: tuple[tuple[str, Figures], ...]
    requests_running: float | None
    lifetime: tuple[int, int] | None
    spread: AcceptanceSpread
    best: NotableWindow | None
    worst: NotableWindow | None
    history: tuple[float | None, ...]
    thirds: tuple[float, float] | None


class Tokens(msgspec.Struct, frozen=True):
    """The accepted and the draft tokens of windows."""

    accepted: float
    drafted: float

    def __add__(self, other: Tokens) -> Tokens:
        """Sum."""
        return Tokens(self.accepted + other.accepted, self.drafted + other.drafted)


class WindowSeries(Blocks[Tokens]):
    """The tokens of windows in order: sums over equal numbers of windows."""

    def ratios(self, parts: int) -> tuple[float | None, ...]:
        """Return the acceptance of ``parts`` equal shares of the series (fewer if it is shorter)."""
        length = len(self.sums)
        parts = min(parts, length)
        edges = [part * length // parts for part in range(parts + 1)] if parts else []
        shares = [reduce(add, self.sums[start:end]) for start, end in pairwise(edges)]
        return tuple(acceptance_ratio(share.accepted, share.drafted) for share in shares)


class OpenAccount:
    """An :class:`Account` while it is being summed."""

    def __init__(self, start: Start, min_drafts: int) -> None:
        self.tell(start)
        self.starts = 0
        self.since = start.config.timestamp if start.config else None
        self.totals = LogTotals()
        self.windows = 0
        self.cumulative = False
        self._min_drafts = min_drafts
        self._series = WindowSeries(SERIES_CAPACITY)
        self._spread = SpreadCounter()
        self._best: NotableWindow | None = None
        self._worst: NotableWindow | None = None

    def tell(self, start: Start) -> None:
        """Take in what a start says of the configuration."""
        self.config, self.deployment, self._given = start.config, start.deployment, start.given

    def started(self, server: str | None) -> None:
        """Count a start of the predictor, or of the one of this name."""
        self.starts += 1
        if server is None:
            self.totals.predictor_started()
        else:
            self.totals.engine(_label_of(server, "0")).lifetime = (0, 0)

    def add(self, event: SpecDecoding) -> None:
        """Take in one window."""
        self.windows += 1
        cumulative = event.cumulative is True
        self.cumulative |= cumulative
        k = event.num_speculative_tokens or self.speculator().num_speculative_tokens
        label = engine_label(event.engine)
        if cumulative and event.server:
            label = _label_of(event.server, label)
        window = self.totals.add(event, label, k)
        if window is None or self.deployment.adaptive_verification:
            return
        drafts, drafted, accepted = window
        self._series.add(Tokens(accepted, drafted))
        # A line without positions and k (0.8.3, 0.8.4) gives no drafts; the configured k helps.
        drafts = drafts or drafted // (k or 1)
        if drafts < self._min_drafts or not drafted:
            return
        ratio = accepted / drafted
        self._spread.add(ratio, drafts)
        if self._worst is None or ratio < self._worst.acceptance_ratio:
            self._worst = _notable(event, ratio, drafted)
        if self._best is None or ratio > self._best.acceptance_ratio:
            self._best = _notable(event, ratio, drafted)

    def speculator(self) -> Speculator:
        """What drafts, by the start and the lines so far."""
        return speculator(self.config, self._given, self.totals.num_positions)

    def close(self) -> Account:
        """Return what was summed so far."""
        totals = {label: totals for label, totals in sorted(self.totals.engines.items()) if totals.windows}
        engines = {label: self._figures(logged_counts_of(one)) for label, one in totals.items()}
        lifetime = self._lifetime()
        counts = reduce(add, (logged_counts_of(one) for one in totals.values()), Counts())
        if lifetime and not counts.draft_tokens:  # a single lifetime line gives no difference
            counts = Counts(accepted_tokens=lifetime[0], draft_tokens=lifetime[1])
        summed = self._figures(counts, self.totals.requests_running) if totals else None
        return Account(
            config=self.config,
            deployment=self.deployment,
            speculator=self.speculator(),
            starts=self.starts,
            since=self.since,
            windows=self.windows,
            figures=summed,
            engines=tuple(engines.items()),
            requests_running=self.totals.requests_running,
            lifetime=lifetime,
            spread=self._spread.spread(PERCENTILES),
            best=self._best,
            worst=self._worst,
            history=self._series.ratios(HISTORY_PARTS),
            thirds=self._thirds(),
        )

    def _figures(self, counts: Counts, requests_running: float | None = None) -> Figures:
        k, adaptive = self.speculator().num_speculative_tokens, self.deployment.adaptive_verification
        summed = msgspec.structs.replace(log_figures(counts, k, adaptive), concurrency=requests_running)
        return without_length(summed) if self.cumulative else summed

    def _lifetime(self) -> tuple[int, int] | None:
        """Return accepted and draft tokens since the V0 engines started."""
        lifetimes = [totals.lifetime for totals in self.totals.engines.values() if totals.windows and totals.lifetime]
        if not self.cumulative or not lifetimes:
            return None
        return sum(accepted for accepted, _ in lifetimes), sum(drafted for _, drafted in lifetimes)

    def _thirds(self) -> tuple[float, float] | None:
        if self.windows < TREND_MIN_WINDOWS:
            return None
        first, *_, last = self._series.ratios(3) or (None, None)
        return None if first is None or last is None else (first, last)


def _label_of(server: str, label: str) -> str:
    """Label an engine of one of several V0 servers: lifetime totals are each one's own."""
    return f"{server} {label}"


def log_figures(counts: Counts, num_speculative_tokens: int | None, adaptive_verification: bool | None) -> Figures:
    """Return the figures of log lines; without length and curve if some drafts could not be reconstructed."""
    most = (counts.drafts or 0.0) * (num_speculative_tokens or math.inf)
    if not counts.drafts or (counts.draft_tokens or 0.0) > most:
        counts = Counts(draft_tokens=counts.draft_tokens, accepted_tokens=counts.accepted_tokens)
    return figures(counts, num_speculative_tokens, "log", None, adaptive_verification=adaptive_verification)


def _notable(event: SpecDecoding, ratio: float, drafted: float) -> NotableWindow:
    return NotableWindow(
        timestamp=event.timestamp, engine=engine_label(event.engine), acceptance_ratio=ratio, draft_tokens=drafted
    )
