"""The analysis of a predictor's log: events in, one :class:`Analysis` out. No I/O, and memory of fixed size.

Each configuration (engine-init line) has an account of its own, because another method or k is another experiment.
Ratios 0..1, timestamps as the log prints them, windows in the log's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add

import msgspec

from specdec_exporter.inspection.account import Account, OpenAccount, log_figures
from specdec_exporter.inspection.silence import (
    API_SERVERS,
    EMPTY,
    NO_ENGINE_CONFIG,
    NO_STATS_LINES,
    NOTHING_KNOWN,
    STATISTICS_OFF,
    lines_left_out,
)
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.facts.failures import FailedStart, explained
from specdec_exporter.predictor.log.counters import ReaderCounters
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
from specdec_exporter.predictor.log.speculator import Speculator
from specdec_exporter.predictor.log.start import Start
from specdec_exporter.predictor.versions import KnownPitfall, WarningCount, warning_counts
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.evidence import Evidence, StateName
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import Policy, load_policy
from specdec_exporter.speculation.verdict import Verdict

# One predictor never has more configurations. Further ones are added to the last account.
MAX_CONFIGURATIONS = 16
# Pods or services that write into one log. The lines of further ones are read as those of one more.
MAX_SERVERS = 64


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


class _Server(msgspec.Struct):
    """What one server runs, and its latest start."""

    account: OpenAccount
    start: Start = msgspec.field(default_factory=Start)


class LogStory:
    """The events of one log in order; several files may continue each other.

    Where the lines name their servers, each window belongs to what its own server runs.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or load_policy()
        self._accounts: dict[tuple[object, ...], OpenAccount] = {}
        self._nameless = OpenAccount(Start(), self._policy.min_drafts)
        self._accounts[()] = self._nameless
        self._servers: dict[str | None, _Server] = {}
        self._latest = self._server(None)
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

    def add(self, events: Iterable[Event]) -> None:
        """Take in events as they come."""
        for event in events:
            if (timestamp := event.timestamp) is not None:
                self._last = timestamp
                if self._first is None:
                    self._first = timestamp
            if isinstance(event, SpecDecoding):
                self._failed = None
                self._latest = self._server(event.server)
                self._latest.account.add(event)
            elif isinstance(event, EngineStats):
                self._failed = None
                self._stats_lines += 1
                self._busy_stats_lines += bool(event.generation_throughput)
            elif type(event) in START_KINDS:
                self._latest = server = self._server(event.server)
                server.start = server.start.after(event)
                if isinstance(event, EngineConfig):
                    self._configured(server, event)
                elif server.account.config is None and not server.account.windows:
                    server.account.tell(server.start)
            elif isinstance(event, PredictorWarning):
                self._warnings[event.warning] += 1
            elif isinstance(event, StartFailure):
                self._failures[event.failure] += 1
                self._failed = event
            elif isinstance(event, ServerReady):
                self._failed = None

    def analysis(self, counters: ReaderCounters | None = None) -> Analysis:
        """Return what was read so far. ``counters`` are those of the reader, if one has read a log to its end."""
        accounts = tuple(account.close() for account in self._accounts.values() if account.config or account.windows)
        judged = next((account for account in reversed(accounts) if account.windows and _speculates(account)), None)
        evidence = self._evidence(judged)
        last = self._failed
        failed = explained(last.failure, last.message, last.timestamp) if last else None
        silence = None if judged else self._silence_of(counters)
        verdict = silence or judge(_about(judged, evidence) if judged else evidence, self._policy).verdict
        return Analysis(
            first_timestamp=self._first,
            last_timestamp=self._last,
            windows=self.windows,
            stats_lines=self._stats_lines,
            accounts=accounts,
            judged=judged,
            total=_sum_figures(accounts),
            last_config=self._latest.account.config,
            start=self._latest.start,
            failed_starts=tuple(self._failures.items()),
            failed_start=failed,
            warnings=warning_counts(self._warnings),
            pitfalls=evidence.pitfalls(),
            verdict=_not_started(failed) if failed else verdict,
        )

    def deployment(self) -> Deployment:
        """Return what the log shows of what ran at its end."""
        config, said = self._latest.account.config, self._speculator()
        judged = any(account.windows for account in self._accounts.values())
        known = self._evidence(None).known()
        shown = {
            "model": config.model if config else None,
            "draft_model": said.draft_model,
            "speculative": self._is_on(),
            "drafting": True if judged else None,
        }
        return msgspec.structs.replace(known, **{field: value for field, value in shown.items() if value is not None})

    def _speculator(self) -> Speculator:
        """Return what drafts at the log's end. The arguments of a start are known before its engine's line."""
        return self._latest.start.speculator(self._latest.account.totals.num_positions)

    def _server(self, name: str | None) -> _Server:
        known = self._servers.get(name if len(self._servers) < MAX_SERVERS or name in self._servers else None)
        return known or self._servers.setdefault(name, _Server(self._nameless))

    def _configured(self, server: _Server, config: EngineConfig) -> None:
        deployment = server.start.deployment
        key = (
            config.vllm_version,
            config.engine_generation,
            config.model,
            config.method,
            config.draft_model,
            config.num_speculative_tokens,
            config.speculative,
            deployment.rejection_sampling,
            bool(deployment.adaptive_verification),
        )
        known = self._accounts.get(key)
        if known is None and len(self._accounts) < MAX_CONFIGURATIONS:
            known = self._accounts[key] = OpenAccount(server.start, self._policy.min_drafts)
        server.account = known or server.account
        server.account.started(config.server)

    def _evidence(self, judged: Account | None) -> Evidence:
        """Return the evidence on what ran when the log ended."""
        config, said = self._latest.account.config, self._speculator()
        return Evidence(
            state="drafting" if judged else self._state(),
            vllm_version=config.vllm_version if config else None,
            engine_generation=config.engine_generation if config else None,
            method=said.method,
            num_speculative_tokens=said.num_speculative_tokens,
            engines=len(judged.engines) if judged else 1,
            log_windows=self.windows,
            warnings=frozenset(self._warnings),
            deployment=self._latest.start.deployment,
        )

    def _is_on(self) -> bool | None:
        """Whether speculation is on at the log's end; ``None`` if not known. Old lines have no positions."""
        is_on = self._speculator().on
        return True if is_on is None and self._latest.account.windows else is_on

    def _state(self) -> StateName:
        """Return what a log without spec-decode lines shows of the predictor; "unreachable" if nothing."""
        if self._silence() is not None:
            return "unreachable"
        if self._is_on() is False:
            return "speculation_off"
        return "not_drafting" if self._busy_stats_lines else "idle"

    def _silence_of(self, counters: ReaderCounters | None) -> Verdict | None:
        """Return the verdict on a log without a line about drafts that counts, if it tells nothing else."""
        if counters is not None and not counters.bytes:
            return EMPTY
        if counters is not None and counters.uncounted and self._is_on() is not False:
            return lines_left_out(counters.uncounted)
        return self._silence()

    def _silence(self) -> Verdict | None:
        """Return the verdict on a log that does not even tell whether anything was drafted."""
        if (is_on := self._is_on()) is False:
            return None
        if "disable_log_stats" in self._latest.start.given.arguments and not self._stats_lines:
            return STATISTICS_OFF
        if "stats_logging_disabled" in self._warnings:
            return API_SERVERS
        if self._busy_stats_lines:
            return None if is_on else NO_ENGINE_CONFIG
        if self._stats_lines:
            return None
        return NO_STATS_LINES if is_on else NOTHING_KNOWN


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
        method=account.speculator.method,
        num_speculative_tokens=account.speculator.num_speculative_tokens,
        deployment=account.deployment,
    )


def _speculates(account: Account) -> bool:
    """Whether the windows are of drafts. ``extract_hidden_states`` prints lines too, but drafts nothing."""
    return account.speculator.on is not False


def _sum_figures(accounts: Sequence[Account]) -> Figures | None:
    """Sum tokens and drafts over configurations, without positions; ``None`` for a single one."""
    parts = [account.figures for account in accounts if account.figures]
    if len(parts) < 2:
        return None
    counts = [Counts(part.drafts, part.draft_tokens, part.accepted_tokens) for part in parts]
    partly = any(account.deployment.adaptive_verification for account in accounts if account.figures)
    return log_figures(reduce(add, counts), None, partly)
