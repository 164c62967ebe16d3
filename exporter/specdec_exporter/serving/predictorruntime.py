"""One running predictor: its state, and the fetcher and the log reader that feed it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from dataclasses import dataclass
from functools import partial

import aiohttp

from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.config import PredictorSettings
from specdec_exporter.errors import FetchError
from specdec_exporter.predictor.log.counters import ReaderCounters, on_trust
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, without_credentials
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.serving.complaints import Complaints
from specdec_exporter.serving.logsource import LogSource, open_log_source
from specdec_exporter.state.observing import observe_event, observe_failure, observe_snapshot, observe_version, pin
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import noted, status_of
from specdec_exporter.state.status import PredictorStatus

LOG = logging.getLogger("specdec")

STOP_SECONDS = 2.5  # for reading a log to its end; a process has 5 s to end
_NOTES = {
    "too_many_engines": "engines are left out",
    "several_processes": "several processes answer",
    "unusable_counters": "counters cannot be used",
}


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
        self.state = PredictorState(
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
        self._refusal: str | None = None  # of the baseline, as it was logged
        self._observed: Snapshot | None = None  # the last

    @property
    def health(self) -> dict[str, CollectorHealth]:
        """Health by source: ``metrics``, and ``log`` if one is read."""
        health = {"metrics": self.metrics_health}
        if self._source is not None and self.state.reader is not None:
            health["log"] = CollectorHealth(self._source.problem is None, self.state.reader.round_seconds)
        return health

    def start(self) -> None:
        """Begin to follow the log."""
        if self._source is not None:
            self._first_look = asyncio.create_task(self._source.begin())
            self._task = asyncio.create_task(self._follow(self._source, self._first_look))

    async def _follow(self, source: LogSource, first_look: asyncio.Task[None]) -> None:
        await first_look
        await source.follow(partial(observe_event, self.state), self._stop)

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
        await self.fetcher.stop()
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
            observe_failure(self.state, str(error), lost=error.reason == "connect")
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
                    observe_version(self.state, await self.fetcher.version(timeout_seconds, self.state.engine))
                    self._say_refusal()
            finally:
                self._asking_version.release()

    def observe(self, snapshot: Snapshot) -> None:
        """Take in a snapshot of the predictor's metrics."""
        observe_snapshot(self.state, snapshot)
        self._observed = snapshot
        self._say_refusal()
        notes = {note.code: note for note in noted(self.state)}
        for code in notes.keys() - self._noted:
            about = {"predictor": self.state.name, "reason": notes[code].meaning, "action": notes[code].action}
            LOG.warning(_NOTES[code], extra=about)
        self._noted = frozenset(notes)

    def pin(self, pinned: PinnedBaseline | None) -> None:
        """Use this baseline from now on, or none."""
        pin(self.state, pinned)
        self._refusal = None
        self._say_refusal()

    def _say_refusal(self) -> None:
        """Log once whether the baseline fits what runs, and each change of that."""
        pinned = self.state.pinned
        if pinned is None or self.state.seen is None or (refusal := self.state.fit.refusal or "") == self._refusal:
            return
        self._refusal = refusal
        about = {"predictor": self.state.name, "path": pinned.path}
        if refusal:
            LOG.warning("baseline is not served", extra={**about, "reason": refusal})
        else:
            LOG.info("baseline is served", extra={**about, "baseline": pinned.baseline.name})

    def status(self) -> PredictorStatus:
        """Return the predictor's status."""
        age = self.age_seconds
        return status_of(
            self.state,
            age_seconds=age,
            old=age is not None and age > 2 * self.settings.interval,
            log_problem=self._source.problem if self._source else None,
        )
