"""What a predictor's log says as a whole: events in, one :class:`Analysis` out. No I/O, and memory of fixed size.

A new configuration (an engine-init line that differs from the one before) starts a new account, since a restart with
another method or k is another experiment. Ratios 0..1, timestamps as the log prints them, windows in the log's order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from itertools import pairwise
from operator import add

import msgspec

from specdec_exporter.histogram import HistogramCounter
from specdec_exporter.predictor.log.events import EngineConfig, EngineStats, Event, PredictorWarning, SpecDecoding
from specdec_exporter.predictor.versions import KnownPitfall
from specdec_exporter.speculation.acceptance import Counts, acceptance_ratio
from specdec_exporter.speculation.facts import Evidence, SilenceName, StateName, WarningCount, warning_counts
from specdec_exporter.speculation.figures import Figures, figures, without_length
from specdec_exporter.speculation.logtotals import LogTotals, engine_label
from specdec_exporter.speculation.policy import Policy, load_policy
from specdec_exporter.speculation.verdict import Verdict, judge, recommend

# Divisible by two, as merging neighbours needs.
SERIES_CAPACITY = 512
HISTORY_PARTS = 48  # of a sparkline, in an 80-column report
# A log of more distinct configurations than this is not one predictor's; the rest is added to the last account.
MAX_CONFIGURATIONS = 16
TREND_MIN_WINDOWS = 6


class NotableWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One window with enough drafts to be worth pointing at."""

    timestamp: str | None
    engine: str
    acceptance_ratio: float
    draft_tokens: float


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says of one configuration.

    ``figures`` is ``None`` without a window. Percentiles, best and worst are over windows with at least the policy's
    minimum of drafts (``judged_windows`` of them). ``history`` has one ratio for equal shares of the windows, ``None``
    where nothing was drafted. ``thirds`` is the acceptance of the first and the last third. ``lifetime`` is what the
    last line of a V0 engine says: accepted and draft tokens since it started.
    """

    config: EngineConfig | None
    starts: int
    since: str | None
    windows: int
    figures: Figures | None
    engines: tuple[tuple[str, Figures], ...]
    num_speculative_tokens: int | None
    lifetime: tuple[int, int] | None
    judged_windows: int
    percentiles: tuple[float, float, float] | None
    best: NotableWindow | None
    worst: NotableWindow | None
    history: tuple[float | None, ...]
    thirds: tuple[float, float] | None
    recommended_num_speculative_tokens: int | None


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """The whole log. ``accounts`` are in the order of first appearance; the verdict is on the last that has windows."""

    first_timestamp: str | None
    last_timestamp: str | None
    windows: int
    stats_lines: int
    accounts: tuple[Account, ...]
    judged: Account | None
    total: Figures | None  # over several accounts; no curve, since positions of different methods do not add up
    last_config: EngineConfig | None  # what ran when the log ended
    warnings: tuple[WarningCount, ...]
    pitfalls: tuple[KnownPitfall, ...]  # of what ran when the log ended
    verdict: Verdict


class WindowSeries:
    """Accepted and draft tokens of windows in order, as at most ``SERIES_CAPACITY`` sums over equally many windows."""

    def __init__(self) -> None:
        self._accepted: list[float] = []
        self._drafted: list[float] = []
        self._windows_per_sum = 1
        self._room_in_last = 0

    def add(self, accepted_tokens: float, draft_tokens: float) -> None:
        """Append one window; neighbours are merged when there is no room left."""
        if self._room_in_last:
            self._room_in_last -= 1
            self._accepted[-1] += accepted_tokens
            self._drafted[-1] += draft_tokens
            return
        if len(self._accepted) == SERIES_CAPACITY:
            self._accepted = list(map(add, self._accepted[::2], self._accepted[1::2]))
            self._drafted = list(map(add, self._drafted[::2], self._drafted[1::2]))
            self._windows_per_sum *= 2
        self._accepted.append(accepted_tokens)
        self._drafted.append(draft_tokens)
        self._room_in_last = self._windows_per_sum - 1

    def ratios(self, parts: int) -> tuple[float | None, ...]:
        """Acceptance of ``parts`` equal shares of the series (fewer where it is shorter), tokens summed first."""
        length = len(self._accepted)
        parts = min(parts, length)
        edges = [part * length // parts for part in range(parts + 1)] if parts else []
        return tuple(
            acceptance_ratio(sum(self._accepted[start:end]), sum(self._drafted[start:end]))
            for start, end in pairwise(edges)
        )


def ratio_counter() -> HistogramCounter:
    """Return a counter of acceptance ratios; see :func:`to_thousandth`."""
    return HistogramCounter(tuple(thousandths / 1000 for thousandths in range(1001)))


def to_thousandth(ratio: float) -> float:
    """Return the ratio as it is counted; one above 1, which differences of lifetime totals can give, counts as 1."""
    return min(round(ratio * 1000) / 1000, 1.0)


class _OpenAccount:
    """An :class:`Account` while it is being summed."""

    def __init__(self, config: EngineConfig | None, min_drafts: int) -> None:
        self.config = config
        self.starts = 0
        self.since = config.timestamp if config else None
        self.totals = LogTotals()
        self.windows = 0
        self.cumulative = False
        self._min_drafts = min_drafts
        self._series = WindowSeries()
        self._ratios = ratio_counter()
        self._best: tuple[float, SpecDecoding, float] | None = None
        self._worst: tuple[float, SpecDecoding, float] | None = None

    def started(self) -> None:
        self.starts += 1
        self.totals.predictor_started()

    def add(self, event: SpecDecoding) -> None:
        self.windows += 1
        if event.cumulative is True:
            self.cumulative = True
        k = event.num_speculative_tokens or self._num_speculative_tokens
        window = self.totals.add(event, engine_label(event.engine), k)
        if window is None:
            return
        drafts, drafted, accepted = window
        self._series.add(accepted, drafted)
        # A line without positions and k (0.8.3, 0.8.4) gives no drafts: the configured k has to do.
        drafts = drafts or drafted // ((self.config and self.config.num_speculative_tokens) or 1)
        if drafts < self._min_drafts or not drafted:
            return
        ratio = accepted / drafted
        self._ratios.observe(to_thousandth(ratio))
        if self._worst is None or ratio < self._worst[0]:
            self._worst = (ratio, event, drafted)
        if self._best is None or ratio > self._best[0]:
            self._best = (ratio, event, drafted)

    @property
    def _num_speculative_tokens(self) -> int | None:
        """K by the init line, else by the lines so far."""
        k = self.config.num_speculative_tokens if self.config else None
        return (
            k or max((totals.num_speculative_tokens or 0 for totals in self.totals.engines.values()), default=0) or None
        )

    def close(self, policy: Policy) -> Account:
        engines = {label: totals for label, totals in sorted(self.totals.engines.items()) if totals.windows}
        k = self._num_speculative_tokens
        lifetimes = [totals.lifetime for totals in engines.values() if totals.lifetime] if self.cumulative else []
        lifetime = (sum(accepted for accepted, _ in lifetimes), sum(drafted for _, drafted in lifetimes))
        each = {label: _log_figures(totals.counts(), k) for label, totals in engines.items()}
        counts = reduce(add, (totals.counts() for totals in engines.values()), Counts())
        if lifetimes and not counts.draft_tokens:  # one lifetime line alone: nothing to difference it from
            counts = Counts(accepted_tokens=lifetime[0], draft_tokens=lifetime[1])
        summed = _log_figures(counts, k) if engines else None
        if self.cumulative:
            summed = without_length(summed) if summed else None
            each = {label: without_length(one) for label, one in each.items()}
        ratios = self._ratios.histogram
        return Account(
            config=self.config,
            starts=self.starts,
            since=self.since,
            windows=self.windows,
            figures=summed,
            engines=tuple(each.items()),
            num_speculative_tokens=k,
            lifetime=lifetime if lifetimes else None,
            judged_windows=self._ratios.count,
            percentiles=(ratios.percentile(10), ratios.percentile(50), ratios.percentile(90)) if ratios.count else None,
            best=_notable(self._best),
            worst=_notable(self._worst),
            history=self._series.ratios(HISTORY_PARTS),
            thirds=self._thirds(),
            recommended_num_speculative_tokens=recommend(summed, k, policy.for_method(method_of(self.config))),
        )

    def _thirds(self) -> tuple[float, float] | None:
        if self.windows < TREND_MIN_WINDOWS:
            return None
        first, *_, last = self._series.ratios(3) or (None, None)
        return None if first is None or last is None else (first, last)


class LogStory:
    """The events of one log, or of several files that continue each other, in order."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or load_policy()
        self._accounts: dict[tuple[object, ...], _OpenAccount] = {}
        self._current = self._open((), None)
        self._first: str | None = None
        self._last: str | None = None
        self._stats_lines = 0
        self._busy_stats_lines = 0
        self._warnings: Counter[str] = Counter()

    @property
    def windows(self) -> int:
        """Spec-decode lines so far."""
        return sum(account.windows for account in self._accounts.values())

    def add(self, events: Iterable[Event]) -> None:
        """Take in events as they come."""
        for event in events:
            if (timestamp := event.timestamp) is not None:
                self._last = timestamp
                if self._first is None:
                    self._first = timestamp
            kind = type(event)
            if kind is SpecDecoding:
                self._current.add(event)  # type: ignore[arg-type]
            elif kind is EngineStats:
                self._stats_lines += 1
                self._busy_stats_lines += bool(event.generation_throughput)  # type: ignore[union-attr]
            elif isinstance(event, EngineConfig):
                self._configured(event)
            elif isinstance(event, PredictorWarning):
                self._warnings[event.warning] += 1

    def analysis(self) -> Analysis:
        """Return what was read so far."""
        accounts = tuple(
            account.close(self._policy) for account in self._accounts.values() if account.config or account.windows
        )
        judged = next((account for account in reversed(accounts) if account.windows), None)
        counts = [account.figures for account in accounts if account.figures]
        evidence = self._evidence(judged)
        return Analysis(
            first_timestamp=self._first,
            last_timestamp=self._last,
            windows=self.windows,
            stats_lines=self._stats_lines,
            accounts=accounts,
            judged=judged,
            total=_sum_figures(counts) if len(counts) > 1 else None,
            last_config=self._current.config,
            warnings=warning_counts(self._warnings),
            pitfalls=evidence.pitfalls(),
            verdict=judge(_about(judged, evidence) if judged else evidence, self._policy).verdict,
        )

    def _open(self, key: tuple[object, ...], config: EngineConfig | None) -> _OpenAccount:
        account = self._accounts[key] = _OpenAccount(config, self._policy.min_drafts)
        return account

    def _configured(self, config: EngineConfig) -> None:
        key = (
            config.vllm_version,
            config.engine_generation,
            config.model,
            config.method,
            config.draft_model,
            config.num_speculative_tokens,
            config.speculative,
        )
        known = self._accounts.get(key)
        if known is None and len(self._accounts) < MAX_CONFIGURATIONS:
            known = self._open(key, config)
        self._current = known or self._current
        self._current.started()

    def _evidence(self, judged: Account | None) -> Evidence:
        """Return what is known of what ran when the log ended."""
        config = self._current.config
        return Evidence(
            state="drafting" if judged else self._silence(config),
            vllm_version=config.vllm_version if config else None,
            engine_generation=config.engine_generation if config else None,
            method=method_of(config),
            engines=len(judged.engines) if judged else 1,
            log_windows=self.windows,
            warnings=frozenset(self._warnings),
        )

    def _silence(self, config: EngineConfig | None) -> StateName | SilenceName:
        """Say why there is no spec-decode line, by what the log does show. ``config`` is the last that was logged."""
        if config is not None and config.speculative is False:
            return "speculation_off"
        if "stats_logging_disabled" in self._warnings:
            return "api_servers"
        if self._busy_stats_lines:
            return "not_drafting" if config is not None else "no_engine_config"
        if self._stats_lines:
            return "idle"
        return "no_stats_lines" if config is not None else "nothing_known"


def _about(account: Account, evidence: Evidence) -> Evidence:
    """Return the evidence on the configuration that is judged, which may not be the last one."""
    return msgspec.structs.replace(
        evidence,
        figures=account.figures,
        method=method_of(account.config),
        num_speculative_tokens=account.num_speculative_tokens,
    )


def method_of(config: EngineConfig | None) -> str | None:
    """Return the speculation method as the log names it."""
    return config.method if config else None


def _log_figures(counts: Counts, num_speculative_tokens: int | None) -> Figures:
    """Return the figures of log lines; without length and curve where not all drafts could be reconstructed."""
    most = (counts.drafts or 0.0) * (num_speculative_tokens or math.inf)
    if not counts.drafts or (counts.draft_tokens or 0.0) > most:
        counts = Counts(draft_tokens=counts.draft_tokens, accepted_tokens=counts.accepted_tokens)
    return figures(counts, num_speculative_tokens, "log", None)


def _sum_figures(parts: list[Figures]) -> Figures:
    """Sum tokens and drafts over configurations, without positions."""
    return _log_figures(
        reduce(
            add,
            (
                Counts(drafts=part.drafts, draft_tokens=part.draft_tokens, accepted_tokens=part.accepted_tokens)
                for part in parts
            ),
        ),
        None,
    )


def _notable(found: tuple[float, SpecDecoding, float] | None) -> NotableWindow | None:
    if found is None:
        return None
    ratio, event, drafted = found
    return NotableWindow(
        timestamp=event.timestamp, engine=engine_label(event.engine), acceptance_ratio=ratio, draft_tokens=drafted
    )
