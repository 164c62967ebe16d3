"""The running exporter: each predictor with its fetcher and log reader, and reloading of the configuration."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import msgspec

from specdec_exporter import __version__, bounds
from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.config import PredictorSettings, Settings
from specdec_exporter.errors import FetchError, SpecdecError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session, without_credentials
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.serving.logsource import LogSource, open_log_source
from specdec_exporter.serving.state import PredictorState
from specdec_exporter.serving.status import BaselineStatus, PredictorStatus, Status

LOG = logging.getLogger("specdec")

STOP_SECONDS = 2.5  # for reading a log to its end; a process has 5 s to end


@dataclass(slots=True)
class CollectorHealth:
    """The outcome of the last round of one source."""

    success: bool = True
    duration_seconds: float = 0.0


class PredictorRuntime:
    """One predictor: its state, and the fetcher and the log reader that feed it."""

    def __init__(
        self,
        settings: PredictorSettings,
        window_seconds: float,
        session: aiohttp.ClientSession,
        large_body: asyncio.Lock,
    ) -> None:
        self.settings = settings
        reader = ReaderCounters() if settings.log_paths or settings.log_source == "kubernetes" else None
        self.state: PredictorState = PredictorState(
            settings.name, without_credentials(settings.url), window_seconds=window_seconds, reader=reader
        )
        self.metrics_health = CollectorHealth(success=False)
        self.fetcher = MetricsFetcher(session, settings.url, access=settings, large_body=large_body)
        self._source: LogSource | None = open_log_source(settings, reader) if reader else None
        self._stop = asyncio.Event()
        self._first_look: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._left_out = False
        self._said_untrusted = False
        self._asking_version = asyncio.Lock()
        self.pinned: PinnedBaseline | None = None
        self._refusal: str | None = None
        self._observed: Snapshot | None = None  # the last
        self._seen: Snapshot | None = None  # the last with an engine

    @property
    def log_health(self) -> CollectorHealth | None:
        """Health of the log reader; ``None`` when no log is read."""
        if self._source is None or self.state.reader is None:
            return None
        return CollectorHealth(self._source.healthy, self.state.reader.round_seconds)

    def start(self) -> None:
        """Begin to follow the log."""
        if self._source is not None:
            self._first_look = asyncio.create_task(self._source.begin())
            self._task = asyncio.create_task(self._follow(self._source, self._first_look))

    async def _follow(self, source: LogSource, first_look: asyncio.Task[None]) -> None:
        await first_look
        await source.follow(self.state.observe_event, self._stop)

    async def begun(self) -> None:
        """Wait until the reader knows what the log held at the start."""
        if self._first_look is not None:
            await asyncio.wait({self._first_look})

    def _say_untrusted(self) -> None:
        """Log once that lines which look like statistics do not count."""
        reader = self.state.reader
        if reader is not None and reader.dropped["untrusted_lines"] and not self._said_untrusted:
            self._said_untrusted = True
            reason = (
                "they name none of vLLM's loggers, so a user's text may have written them; if your log format prints "
                "no logger and no file, set --predictor.log-trust=any"
            )
            LOG.warning("lines of the log do not count", extra={"predictor": self.state.name, "reason": reason})

    async def stop(self) -> None:
        """Read the log to its end and close it; give it up if that takes too long."""
        self._stop.set()
        if self._task is None:
            return
        _, late = await asyncio.wait({self._task}, timeout=STOP_SECONDS)
        for task in late:
            task.cancel()
            LOG.warning("stopped before the end of the log was read", extra={"predictor": self.state.name})

    async def refresh(self, timeout_seconds: float) -> None:
        """Fetch the predictor's metrics within ``timeout_seconds`` and record success or failure."""
        self._say_untrusted()
        started = time.monotonic()
        timeout_seconds = min(timeout_seconds, self.settings.timeout)
        try:
            snapshot = await self.fetcher.fetch(timeout_seconds)
        except FetchError as error:
            self.state.observe_failure(str(error), lost=error.reason == "connect")
            self._say_once(error)
            self.metrics_health = CollectorHealth(success=False, duration_seconds=time.monotonic() - started)
            return
        if snapshot is not self._observed or self.state.snapshot is None:  # scrapers at once share a fetch
            self.observe(snapshot)
        self._say_once(None)
        self.metrics_health = CollectorHealth(success=True, duration_seconds=time.monotonic() - started)
        left = timeout_seconds - (time.monotonic() - started)
        if not self.state.version_asked and left > 0:
            await self._ask_version(left)

    async def _ask_version(self, timeout_seconds: float) -> None:
        """Ask once; callers at the same time wait for that answer, each within its own ``timeout_seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._asking_version.acquire()
            try:
                if not self.state.version_asked:
                    self.state.observe_version(await self.fetcher.version(timeout_seconds))
                    self._look_at_baseline()
            finally:
                self._asking_version.release()

    def observe(self, snapshot: Snapshot) -> None:
        """Take in a snapshot of the predictor's metrics."""
        self.state.observe_snapshot(snapshot)
        self._observed = snapshot
        if snapshot.engines:
            self._seen = snapshot
        self._look_at_baseline()
        found = self.state.too_many_engines
        if found and not self._left_out:
            LOG.warning("engines are left out", extra={"predictor": self.state.name, "reason": found})
        self._left_out = found is not None

    def pin(self, pinned: PinnedBaseline | None) -> None:
        """Use this baseline from now on, or none."""
        self.pinned, self._refusal = pinned, None
        self.state.forget_verdict()
        self._look_at_baseline()

    def _look_at_baseline(self) -> None:
        """Check that the baseline fits what runs; log each change once."""
        if self.pinned is None or self._seen is None:
            self.state.observe_baseline(None)
            return
        self.pinned.observe(self._seen, self.state.running.vllm_version)
        self.state.observe_baseline(self.pinned.decoding)
        refusal = self.pinned.fit.refusal or ""
        if refusal == self._refusal:
            return
        self._refusal = refusal
        about = {"predictor": self.state.name, "path": self.pinned.path}
        if refusal:
            LOG.warning("baseline is not served", extra={**about, "reason": refusal})
        else:
            LOG.info("baseline is served", extra={**about, "baseline": self.pinned.baseline.name})

    def status(self) -> PredictorStatus:
        """Return the predictor's status."""
        baseline = _baseline_status(self.pinned) if self.pinned else None
        return msgspec.structs.replace(self.state.status(), baseline=baseline)

    def _say_once(self, error: FetchError | None) -> None:
        """Log a failure or a recovery once, not at every scrape."""
        failure = error.reason if error else None
        if failure == self._failure:
            return
        self._failure = failure
        if error:
            about = {"predictor": self.state.name, "reason": str(error)}
            LOG.warning("predictor's metrics cannot be read", extra=about)
        else:
            LOG.info("predictor's metrics are readable again", extra={"predictor": self.state.name})


class ExporterRuntime:
    """All predictors and their configuration."""

    def __init__(self, settings: Settings, load: Callable[[], Settings]) -> None:
        self.settings = settings
        self.last_reload_successful: bool = True
        self.last_reload_success_timestamp: float = time.time()
        self.left_out: Counter[str] = Counter()  # by what, beside what today's predictors left out
        self._load = load
        self._session: aiohttp.ClientSession | None = None
        self._large_body = asyncio.Lock()
        self._predictors: dict[str, PredictorRuntime] = {}
        self._reloading = asyncio.Lock()

    @property
    def predictors(self) -> list[PredictorRuntime]:
        """The predictors in the configuration's order."""
        return list(self._predictors.values())

    def prepare(self) -> None:
        """Build everything and start nothing. Raises the error with which :meth:`start` would refuse the settings."""
        self._session = open_session()
        self._build(self.settings)

    @property
    def dropped(self) -> dict[str, int]:
        """What was beyond a bound, by what."""
        total = sum((predictor.state.dropped for predictor in self.predictors), self.left_out)
        return {**dict.fromkeys(bounds.DROPPED, 0), **total}

    async def start(self) -> None:
        """Start all predictors. Raises :class:`ConfigError` or :class:`BaselineError` for settings that cannot work."""
        self._session = open_session()
        await self._apply(self.settings)

    async def begun(self) -> None:
        """Wait until every log reader knows what its log held at the start."""
        await asyncio.gather(*(predictor.begun() for predictor in self.predictors))

    async def stop(self) -> None:
        """Let every reader finish, then close the session."""
        await asyncio.gather(*(predictor.stop() for predictor in self.predictors))
        if self._session is not None:
            await self._session.close()

    async def refresh(self, timeout_seconds: float) -> None:
        """Fetch all predictors' metrics at once, each within ``timeout_seconds``."""
        await asyncio.gather(*(predictor.refresh(timeout_seconds) for predictor in self.predictors))

    async def reload(self) -> str | None:
        """Load the configuration again; return what is wrong with it. After an error the old one stays in force.

        Predictors with unchanged settings keep running. Listen addresses cannot change at run time. Reloads take turns.
        """
        async with self._reloading:
            return await self._reload()

    async def _reload(self) -> str | None:
        try:
            settings = self._load()
            await self._apply(settings)
        except SpecdecError as error:
            self.last_reload_successful = False
            LOG.exception("configuration not reloaded; the old one stays in force")
            return str(error)
        if (settings.web, settings.log) != (self.settings.web, self.settings.log):
            LOG.warning("changes under web: and log: take effect at the next start")
        self.settings = settings
        self.last_reload_successful = True
        self.last_reload_success_timestamp = time.time()
        LOG.info("configuration loaded", extra={"predictors": len(self.predictors)})
        return None

    def _build(self, settings: Settings) -> tuple[dict[str, PredictorRuntime], dict[str, PinnedBaseline]]:
        """Return the predictors and the baselines by name: those that run on, and new ones."""
        assert self._session is not None  # noqa: S101  start() comes first
        pinned = read_pinned(settings)
        same_window = settings.window == self.settings.window
        wanted: dict[str, PredictorRuntime] = {}
        for predictor in settings.predictors:
            current = self._predictors.get(predictor.name)
            if current is not None and _same_but_baseline(current.settings, predictor) and same_window:
                wanted[predictor.name] = current
            else:
                wanted[predictor.name] = PredictorRuntime(predictor, settings.window, self._session, self._large_body)
        return wanted, pinned

    async def _apply(self, settings: Settings) -> None:
        """Run the predictors of ``settings``. New ones are built first, so that an error changes nothing."""
        wanted, pinned = self._build(settings)
        replaced, self._predictors = self._predictors, wanted
        self._share_engines()
        for name, old in replaced.items():
            if wanted.get(name) is not old:
                self.left_out += old.state.dropped
        await asyncio.gather(*(old.stop() for name, old in replaced.items() if wanted.get(name) is not old))
        for name, predictor in wanted.items():
            if replaced.get(name) is not predictor:
                predictor.start()
            predictor.pin(pinned.get(name))

    def _share_engines(self) -> None:
        """Give every predictor its share of the engines of the process."""
        number = len(self._predictors)
        for predictor in self.predictors:
            predictor.fetcher.most_engines = max(bounds.FEWEST_ENGINES, bounds.ENGINES // number)
            predictor.state.log.most_engines = max(bounds.FEWEST_ENGINES, bounds.LOG_ENGINES // number)

    def status(self) -> Status:
        """Return the status of all predictors."""
        return Status(
            exporter_version=__version__,
            generated_at=time.time(),
            window_seconds=float(self.settings.window),
            predictors=tuple(predictor.status() for predictor in self.predictors),
        )


def read_pinned(settings: Settings) -> dict[str, PinnedBaseline]:
    """Read the baselines; return them by predictor name. Raises :class:`BaselineError`."""
    paths = {predictor.name: predictor.baseline for predictor in settings.predictors if predictor.baseline}
    return {name: PinnedBaseline(path) for name, path in paths.items()}


def _baseline_status(pinned: PinnedBaseline) -> BaselineStatus:
    baseline = pinned.baseline
    return BaselineStatus(
        name=baseline.name,
        recorded_at=baseline.recorded_at,
        recorded_timestamp=baseline.recorded_timestamp,
        duration_seconds=baseline.duration_seconds,
        interrupted=baseline.interrupted,
        model_name=baseline.model_name,
        vllm_version=baseline.vllm_version,
        served=pinned.fit.refusal is None,
        refusal=pinned.fit.refusal,
        remarks=pinned.remarks,
        acceptance_ratio=pinned.acceptance_ratio,
        mean_acceptance_length=pinned.mean_acceptance_length,
        mean_latency_seconds={sli: histogram.mean for sli, histogram in baseline.histograms()},
    )


def _same_but_baseline(one: PredictorSettings, other: PredictorSettings) -> bool:
    return msgspec.structs.replace(one, baseline=other.baseline) == other
