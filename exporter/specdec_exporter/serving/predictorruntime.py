"""One running predictor: its state, and the fetcher and the log reader that feed it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from dataclasses import dataclass

import aiohttp
import msgspec

from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.config import PredictorSettings
from specdec_exporter.errors import FetchError
from specdec_exporter.predictor.log.counters import ReaderCounters, on_trust
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, without_credentials
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.serving.complaints import Complaints
from specdec_exporter.serving.logsource import LogSource, open_log_source
from specdec_exporter.serving.predictorstatus import noted
from specdec_exporter.serving.problems import Problem, problems
from specdec_exporter.serving.state import PredictorState
from specdec_exporter.serving.status import BaselineStatus, PredictorStatus

LOG = logging.getLogger("specdec")

STOP_SECONDS = 2.5  # for reading a log to its end; a process has 5 s to end
_NOTES = {"too_many_engines": "engines are left out", "several_processes": "several processes answer"}


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
        self._reading: asyncio.Task[None] | None = None  # a read that nobody may be waiting for
        self._read_at: float | None = None  # monotonic: when the last read ended
        self._complaints = Complaints(settings.name)
        self._noted: frozenset[str] = frozenset()
        self._said_untrusted = False
        self._asking_version = asyncio.Lock()
        self.pinned: PinnedBaseline | None = None
        self._refusal: str | None = None
        self._observed: Snapshot | None = None  # the last
        self._seen: Snapshot | None = None  # the last with an engine

    @property
    def health(self) -> dict[str, CollectorHealth]:
        """Health by source: ``metrics``, and ``log`` if one is read."""
        found = {"metrics": self.metrics_health}
        if self._source is not None and self.state.reader is not None:
            found["log"] = CollectorHealth(self._source.problem is None, self.state.reader.round_seconds)
        return found

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
            for reason in on_trust(reader):
                LOG.warning("lines of the log do not count", extra={"predictor": self.state.name, "reason": reason})

    async def stop(self) -> None:
        """Give up the read under way. Read the log to its end and close it; give it up if that takes too long."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        self._stop.set()
        if self._task is None:
            return
        _, late = await asyncio.wait({self._task}, timeout=STOP_SECONDS)
        for task in late:
            task.cancel()
            LOG.warning("stopped before the end of the log was read", extra={"predictor": self.state.name})

    @property
    def age_seconds(self) -> float | None:
        """How long ago the last read ended, well or not; ``None`` before the first."""
        return None if self._read_at is None else time.monotonic() - self._read_at

    @property
    def due_seconds(self) -> float:
        """When to read the predictor unless somebody asks before: seconds from now, 0 or less for at once."""
        if self._reading is not None and not self._reading.done():
            return self.settings.interval
        return 0.0 if self.age_seconds is None else self.settings.interval - self.age_seconds

    def read(self) -> asyncio.Task[None]:
        """Begin to read the predictor, unless a read is under way. Nobody needs to wait for it."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        try:
            await self.refresh(math.inf)
        except Exception:
            self._read_at = time.monotonic()
            LOG.exception("reading a predictor failed", extra={"predictor": self.state.name})

    async def refresh(self, timeout_seconds: float) -> None:
        """Fetch the predictor's metrics within ``timeout_seconds`` and record success or failure."""
        self._say_untrusted()
        started = time.monotonic()
        timeout_seconds = min(timeout_seconds, self.settings.timeout)
        try:
            snapshot = await self.fetcher.fetch(timeout_seconds)
        except FetchError as error:
            self.state.observe_failure(str(error), lost=error.reason == "connect")
            self._complaints.failed(error)
            self._ended(started, success=False)
            return
        if snapshot is not self._observed or self.state.snapshot is None:  # scrapers at once share a fetch
            self.observe(snapshot)
        self._complaints.succeeded()
        self._ended(started, success=True)
        left = timeout_seconds - (time.monotonic() - started)
        if not self.state.version_asked and left > 0:
            await self._ask_version(left)

    def _ended(self, started: float, *, success: bool) -> None:
        self._read_at = time.monotonic()
        self.metrics_health = CollectorHealth(success, self._read_at - started)

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
        notes = {note.code: note for note in noted(self.state)}
        for code in notes.keys() - self._noted:
            about = {"predictor": self.state.name, "reason": notes[code].meaning, "action": notes[code].action}
            LOG.warning(_NOTES[code], extra=about)
        self._noted = frozenset(notes)

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

    @property
    def load_ratio(self) -> float | None:
        """The load of the baseline's model now / that of the recording; ``None`` if either is not known."""
        model = self.pinned.fit.model_name if self.pinned else None
        load = None if model is None else self.state.load(model)
        return self.pinned.load_ratio(*load) if self.pinned and load else None

    def problems(self) -> dict[Problem, float]:
        """Return 1 for each problem with the predictor's figures now."""
        return dict.fromkeys(problems(self.state, self.pinned, time.time()), 1.0)

    def status(self) -> PredictorStatus:
        """Return the predictor's status."""
        known, age = self.state.status(), self.age_seconds
        log, problem = known.log, self._source.problem if self._source else None
        return msgspec.structs.replace(
            known,
            age_seconds=age,
            old=age is not None and age > 2 * self.settings.interval,
            baseline=_baseline_status(self.pinned) if self.pinned else None,
            log=msgspec.structs.replace(log, problem=problem) if log else None,
        )


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
