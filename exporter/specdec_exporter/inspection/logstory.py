"""The analysis of a predictor's log: events in, one :class:`Analysis` out. No I/O, and memory of fixed size.

Each configuration (engine-init line) has an account of its own, because another method or k is another experiment.
Ratios 0..1, timestamps as the log prints them, windows in the log's order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from itertools import pairwise
from operator import add

import msgspec

from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.facts.failures import FailedStart, explained
from specdec_exporter.predictor.log.events import (
    START_KINDS,
    EngineConfig,
    EngineStats,
    Event,
    PredictorWarning,
    ServerReady,
    SpecDecoding,
    StartFailure,
)
from specdec_exporter.predictor.log.start import Start
from specdec_exporter.predictor.versions import KnownPitfall, special_rejection_sampling
from specdec_exporter.speculation.acceptance import Counts, acceptance_ratio
from specdec_exporter.speculation.facts import Evidence, SilenceName, StateName, WarningCount, warning_counts
from specdec_exporter.speculation.figures import Figures, figures, without_length
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.logtotals import LogTotals, engine_label
from specdec_exporter.speculation.policy import Policy, load_policy
from specdec_exporter.speculation.spread import AcceptanceSpread, SpreadCounter
from specdec_exporter.speculation.verdict import Verdict

SERIES_CAPACITY = 512  # even, because neighbours are merged
HISTORY_PARTS = 48  # parts of a sparkline in an 80-column report
# One predictor never has more configurations. Further ones are added to the last account.
MAX_CONFIGURATIONS = 16
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
    a V0 engine started, by its last line. ``rejection_sampling`` is the method if it is synthetic or lossy.
    """

    config: EngineConfig | None
    rejection_sampling: str | None
    starts: int
    since: str | None
    windows: int
    figures: Figures | None
    engines: tuple[tuple[str, Figures], ...]
    num_speculative_tokens: int | None
    lifetime: tuple[int, int] | None
    spread: AcceptanceSpread
    best: NotableWindow | None
    worst: NotableWindow | None
    history: tuple[float | None, ...]
    thirds: tuple[float, float] | None


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """The whole log. ``accounts`` are in the order of appearance; the verdict is on the last one with windows."""

    first_timestamp: str | None
    last_timestamp: str | None
    windows: int
    stats_lines: int
    accounts: tuple[Account, ...]
    judged: Account | None
    total: Figures | None  # over several accounts; without a curve: positions of different methods do not add up
    last_config: EngineConfig | None  # what ran when the log ended
    start: Start  # the last one
    failed_starts: tuple[tuple[str, int], ...]  # by code, in order of appearance
    failed_start: FailedStart | None  # the last one; none if a server ran after it
    warnings: tuple[WarningCount, ...]
    pitfalls: tuple[KnownPitfall, ...]  # of what ran when the log ended
    verdict: Verdict


class WindowSeries:
    """Accepted and draft tokens of windows in order: at most ``SERIES_CAPACITY`` sums over equal numbers of windows."""

    def __init__(self) -> None:
        self._accepted: list[float] = []
        self._drafted: list[float] = []
        self._windows_per_sum = 1
        self._room_in_last = 0

    def add(self, accepted_tokens: float, draft_tokens: float) -> None:
        """Append one window; a full series merges its neighbours first."""
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
        """Return the acceptance of ``parts`` equal shares of the series (fewer if it is shorter)."""
        length = len(self._accepted)
        parts = min(parts, length)
        edges = [part * length // parts for part in range(parts + 1)] if parts else []
        return tuple(
            acceptance_ratio(sum(self._accepted[start:end]), sum(self._drafted[start:end]))
            for start, end in pairwise(edges)
        )


class _OpenAccount:
    """An :class:`Account` while it is being summed."""

    def __init__(self, config: EngineConfig | None, rejection_sampling: str | None, min_drafts: int) -> None:
        self.config = config
        self.rejection_sampling = rejection_sampling
        self.starts = 0
        self.since = config.timestamp if config else None
        self.totals = LogTotals()
        self.windows = 0
        self.cumulative = False
        self._min_drafts = min_drafts
        self._series = WindowSeries()
        self._spread = SpreadCounter()
        self._best: NotableWindow | None = None
        self._worst: NotableWindow | None = None

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
        # A line without positions and k (0.8.3, 0.8.4) gives no drafts; the configured k helps.
        drafts = drafts or drafted // ((self.config and self.config.num_speculative_tokens) or 1)
        if drafts < self._min_drafts or not drafted:
            return
        ratio = accepted / drafted
        self._spread.add(ratio, drafts)
        if self._worst is None or ratio < self._worst.acceptance_ratio:
            self._worst = _notable(event, ratio, drafted)
        if self._best is None or ratio > self._best.acceptance_ratio:
            self._best = _notable(event, ratio, drafted)

    @property
    def _num_speculative_tokens(self) -> int | None:
        """K from the init line, else from the lines so far."""
        if self.config and self.config.num_speculative_tokens:
            return self.config.num_speculative_tokens
        return max((totals.num_speculative_tokens or 0 for totals in self.totals.engines.values()), default=0) or None

    def close(self) -> Account:
        engines = {label: totals for label, totals in sorted(self.totals.engines.items()) if totals.windows}
        k = self._num_speculative_tokens
        lifetimes = [totals.lifetime for totals in engines.values() if totals.lifetime] if self.cumulative else []
        lifetime = (sum(accepted for accepted, _ in lifetimes), sum(drafted for _, drafted in lifetimes))
        each = {label: _log_figures(totals.counts(), k) for label, totals in engines.items()}
        counts = reduce(add, (totals.counts() for totals in engines.values()), Counts())
        if lifetimes and not counts.draft_tokens:  # a single lifetime line gives no difference
            counts = Counts(accepted_tokens=lifetime[0], draft_tokens=lifetime[1])
        summed = _log_figures(counts, k) if engines else None
        if self.cumulative:
            summed = without_length(summed) if summed else None
            each = {label: without_length(one) for label, one in each.items()}
        return Account(
            config=self.config,
            rejection_sampling=self.rejection_sampling,
            starts=self.starts,
            since=self.since,
            windows=self.windows,
            figures=summed,
            engines=tuple(each.items()),
            num_speculative_tokens=k,
            lifetime=lifetime if lifetimes else None,
            spread=self._spread.spread(
                PERCENTILES,
                summed.acceptance_ratio if summed else None,
                summed.per_position if summed else (),
                summed.mean_draft_length if summed else None,
            ),
            best=self._best,
            worst=self._worst,
            history=self._series.ratios(HISTORY_PARTS),
            thirds=self._thirds(),
        )

    def _thirds(self) -> tuple[float, float] | None:
        if self.windows < TREND_MIN_WINDOWS:
            return None
        first, *_, last = self._series.ratios(3) or (None, None)
        return None if first is None or last is None else (first, last)


class LogStory:
    """The events of one log in order; several files may continue each other."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or load_policy()
        self._accounts: dict[tuple[object, ...], _OpenAccount] = {}
        self._start = Start()
        self._current = self._open((), None)
        self._first: str | None = None
        self._last: str | None = None
        self._stats_lines = 0
        self._busy_stats_lines = 0
        self._warnings: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._failed: StartFailure | None = None

    @property
    def windows(self) -> int:
        """Spec-decode lines so far."""
        return sum(account.windows for account in self._accounts.values())

    def add_start(self, events: Iterable[Event]) -> None:
        """Take in what the predictor printed at its start, long before the events that are judged."""
        for event in events:
            self._start = self._start.after(event)
            if isinstance(event, EngineConfig):
                self._configured(event)

    def add(self, events: Iterable[Event]) -> None:
        """Take in events as they come."""
        for event in events:
            if (timestamp := event.timestamp) is not None:
                self._last = timestamp
                if self._first is None:
                    self._first = timestamp
            if isinstance(event, SpecDecoding):
                self._failed = None
                self._current.add(event)
            elif isinstance(event, EngineStats):
                self._failed = None
                self._stats_lines += 1
                self._busy_stats_lines += bool(event.generation_throughput)
            elif type(event) in START_KINDS:
                self._start = self._start.after(event)
                if isinstance(event, EngineConfig):
                    self._configured(event)
                    self._current.started()
            elif isinstance(event, PredictorWarning):
                self._warnings[event.warning] += 1
            elif isinstance(event, StartFailure):
                self._failures[event.failure] += 1
                self._failed = event
            elif isinstance(event, ServerReady):
                self._failed = None

    def analysis(self) -> Analysis:
        """Return what was read so far."""
        accounts = tuple(account.close() for account in self._accounts.values() if account.config or account.windows)
        judged = next((account for account in reversed(accounts) if account.windows and _speculates(account)), None)
        counts = [account.figures for account in accounts if account.figures]
        evidence = self._evidence(judged)
        last = self._failed
        failed = explained(last.failure, last.message, last.timestamp) if last else None
        verdict = judge(_about(judged, evidence) if judged else evidence, self._policy).verdict
        return Analysis(
            first_timestamp=self._first,
            last_timestamp=self._last,
            windows=self.windows,
            stats_lines=self._stats_lines,
            accounts=accounts,
            judged=judged,
            total=_sum_figures(counts) if len(counts) > 1 else None,
            last_config=self._current.config,
            start=self._start,
            failed_starts=tuple(self._failures.items()),
            failed_start=failed,
            warnings=warning_counts(self._warnings),
            pitfalls=evidence.pitfalls(),
            verdict=_not_started(failed) if failed else verdict,
        )

    def deployment(self) -> Deployment:
        """Return what the log shows of what ran at its end."""
        config = self._current.config
        judged = any(account.windows for account in self._accounts.values())
        found = self._evidence(None).known()
        shown = (
            {
                "model": config.model,
                "draft_model": config.draft_model,
                "num_speculative_tokens": config.num_speculative_tokens,
                "speculative": None if config.speculative is msgspec.UNSET else config.speculative,
            }
            if config
            else {}
        )
        shown |= {"drafting": True} if judged else {}
        return msgspec.structs.replace(found, **{field: value for field, value in shown.items() if value is not None})

    def _open(self, key: tuple[object, ...], config: EngineConfig | None) -> _OpenAccount:
        account = self._accounts[key] = _OpenAccount(config, self._rejection_sampling, self._policy.min_drafts)
        return account

    @property
    def _rejection_sampling(self) -> str | None:
        arguments = self._start.arguments
        return special_rejection_sampling(arguments.rejection_sample_method if arguments else None)

    def _configured(self, config: EngineConfig) -> None:
        key = (
            config.vllm_version,
            config.engine_generation,
            config.model,
            config.method,
            config.draft_model,
            config.num_speculative_tokens,
            config.speculative,
            self._rejection_sampling,
        )
        known = self._accounts.get(key)
        if known is None and len(self._accounts) < MAX_CONFIGURATIONS:
            known = self._open(key, config)
        self._current = known or self._current

    def _evidence(self, judged: Account | None) -> Evidence:
        """Return the evidence on what ran when the log ended."""
        config = self._current.config
        return Evidence(
            state="drafting" if judged else self._silence(config),
            vllm_version=config.vllm_version if config else None,
            engine_generation=config.engine_generation if config else None,
            method=method_of(config),
            rejection_sampling=self._rejection_sampling,
            engines=len(judged.engines) if judged else 1,
            log_windows=self.windows,
            warnings=frozenset(self._warnings),
            deployment=self._start.deployment,
        )

    def _silence(self, config: EngineConfig | None) -> StateName | SilenceName:
        """Return why the log has no spec-decode line. ``config`` is the last one in the log."""
        if config is not None and config.speculative is False:
            return "speculation_off"
        if "stats_logging_disabled" in self._warnings:
            return "api_servers"
        if self._busy_stats_lines:
            return "not_drafting" if config is not None else "no_engine_config"
        if self._stats_lines:
            return "idle"
        return "no_stats_lines" if config is not None else "nothing_known"


def _not_started(failed: FailedStart) -> Verdict:
    return Verdict(
        code="unknown",
        headline="The server did not start",
        reasons=(f"{failed.code}: {failed.cause}", failed.message),
        action=failed.action,
    )


def _about(account: Account, evidence: Evidence) -> Evidence:
    """Replace the configuration by the judged one, which may not be the last."""
    return msgspec.structs.replace(
        evidence,
        figures=account.figures,
        method=method_of(account.config),
        num_speculative_tokens=account.num_speculative_tokens,
        rejection_sampling=account.rejection_sampling,
    )


def _speculates(account: Account) -> bool:
    """Whether the windows are of drafts. ``extract_hidden_states`` prints lines too, but drafts nothing."""
    return account.config is None or account.config.speculative is not False


def method_of(config: EngineConfig | None) -> str | None:
    """Return the speculation method as the log names it."""
    return config.method if config else None


def _log_figures(counts: Counts, num_speculative_tokens: int | None) -> Figures:
    """Return the figures of log lines; without length and curve if some drafts could not be reconstructed."""
    most = (counts.drafts or 0.0) * (num_speculative_tokens or math.inf)
    if not counts.drafts or (counts.draft_tokens or 0.0) > most:
        counts = Counts(draft_tokens=counts.draft_tokens, accepted_tokens=counts.accepted_tokens)
    return figures(counts, num_speculative_tokens, "log", None)


def _sum_figures(parts: list[Figures]) -> Figures:
    """Sum tokens and drafts over configurations, without positions."""
    counts = [Counts(part.drafts, part.draft_tokens, part.accepted_tokens) for part in parts]
    return _log_figures(reduce(add, counts), None)


def _notable(event: SpecDecoding, ratio: float, drafted: float) -> NotableWindow:
    return NotableWindow(
        timestamp=event.timestamp, engine=engine_label(event.engine), acceptance_ratio=ratio, draft_tokens=drafted
    )
