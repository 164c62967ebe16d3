"""The running exporter: its predictors, and reloading of the configuration."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

import aiohttp
import msgspec

from specdec_exporter import __version__, bounds
from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.config import PredictorSettings, Settings
from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.metrics.fetch import open_session
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.state.status import Status

LOG = logging.getLogger("specdec")

FRESH_SECONDS = 1.0  # known figures that are no older are not read again for a look
LOOK_SECONDS = 0.2  # a look waits no longer for a read
_NAP_SECONDS = 1.0  # then a reload has been noticed


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
        reads_logs = any("log" in predictor.health for predictor in self.predictors)
        return {**dict.fromkeys(bounds.DROPPED + (bounds.DROPPED_OF_LOGS if reads_logs else ()), 0), **total}

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

    async def refresh(self, timeout_seconds: float) -> list[PredictorRuntime]:
        """Fetch all predictors' metrics at once, each within ``timeout_seconds``; return those that were fetched.

        A reload may replace them meanwhile. The new ones know nothing yet.
        """
        predictors = self.predictors
        await asyncio.gather(*(predictor.refresh(timeout_seconds) for predictor in predictors))
        return predictors

    async def look(self) -> None:
        """Begin to read the predictors that were not read lately, and wait a moment for what they answer."""
        ages = [(predictor, predictor.age_seconds) for predictor in self.predictors]
        reads = [predictor.read() for predictor, age in ages if age is None or age > FRESH_SECONDS]
        if reads:
            await asyncio.wait(reads, timeout=LOOK_SECONDS)

    async def keep_reading(self) -> None:
        """Read each predictor that nobody has asked for its interval; the first time at once. Cancel it to stop."""
        while True:
            for predictor in self.predictors:
                if predictor.due_seconds <= 0:
                    predictor.read()
            await asyncio.sleep(min(_NAP_SECONDS, *(predictor.due_seconds for predictor in self.predictors)))

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
        pinned = {
            predictor.name: PinnedBaseline(predictor.baseline)
            for predictor in settings.predictors
            if predictor.baseline
        }
        same_window = settings.window == self.settings.window
        wanted: dict[str, PredictorRuntime] = {}
        for predictor in settings.predictors:
            current = self._predictors.get(predictor.name)
            if current is not None and same_window and _may_run_on(current.settings, predictor):
                wanted[predictor.name] = current
            else:
                wanted[predictor.name] = PredictorRuntime(predictor, settings.window, self._session, self._large_body)
        return wanted, pinned

    async def _apply(self, settings: Settings) -> None:
        """Run the predictors of ``settings``. New ones are built first, so that an error changes nothing."""
        wanted, pinned = self._build(settings)
        replaced, self._predictors = self._predictors, wanted
        self._share_engines()
        for own in settings.predictors:
            wanted[own.name].settings = own
            wanted[own.name].pin(pinned.get(own.name))  # before a scrape can see it
        for name, old in replaced.items():
            if wanted.get(name) is not old:
                self.left_out += old.state.dropped
        await asyncio.gather(*(old.stop() for name, old in replaced.items() if wanted.get(name) is not old))
        for name, predictor in wanted.items():
            if replaced.get(name) is not predictor:
                predictor.start()

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


def _may_run_on(one: PredictorSettings, other: PredictorSettings) -> bool:
    """Whether a predictor goes on, with its history, when its settings change from ``one`` to ``other``."""
    same = msgspec.structs.replace(one, timeout=other.timeout, interval=other.interval, baseline=other.baseline)
    return same == other
