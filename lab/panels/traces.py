"""What Prometheus would have scraped: simulated predictors, each read by an exporter of its own, minute by minute.

The simulator's bytes and log lines go through the exporter's own parsers, state and collector; only the clocks are
turned by hand, and the labels of the target are added as a scrape adds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence

from demo.simulator.engine import Engine
from demo.simulator.exposition import render_metrics
from demo.simulator.log import log_lines
from demo.simulator.settings import SimulatorSettings
from panels.recorded import write
from specdec_exporter.config import PredictorSettings, Settings, WebSettings
from specdec_exporter.predictor.log.events import Malformed, PredictorWarning
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.state.observing import observe_event, observe_failure, observe_version
from specdec_exporter.state.record import PredictorState
from support.builders import Clock
from support.loglines import parse_line

SCRAPE_SECONDS = 60
HISTORY_SCRAPE_SECONDS = 300
HOUR = 3600

END = 1_790_006_400  # on the hour, and close to where the simulator's own clock begins
START = END - 220 * 60  # simulated from here on, scraped every minute
HISTORY_HOURS = 27  # before that, for services that have a past: their first hour again and again

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]
Samples = dict[Series, list[tuple[int, float]]]  # Unix seconds, ascending


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One pod: what it runs, and what its target's labels are.

    ``baseline``: what runs without speculation, in a file that has its step times by load. ``warnings``: simulated
    seconds at which the log has one. ``revision``: a label that a canary has.
    """

    service: str
    pod: str
    settings: SimulatorSettings
    cluster: str = "eu-1"
    namespace: str = "prod"
    revision: str = ""
    reads_log: bool = True
    history: bool = False
    baseline: SimulatorSettings | None = None
    warnings: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def target(self) -> dict[str, str]:
        """The labels that a scrape adds."""
        address = f"10.0.0.{sum(self.pod.encode()) % 250 + 1}:10409"
        given = {
            "cluster": self.cluster,
            "namespace": self.namespace,
            "pod": self.pod,
            "instance": address,
            "revision": self.revision,
        }
        return {name: value for name, value in given.items() if value} | {"job": "predictors"}


class Scraper:
    """One exporter beside one simulated predictor, and the samples of its scrapes."""

    def __init__(self, replica: Replica, runtime: ExporterRuntime, begin: int) -> None:
        self._replica = replica
        self._begin = begin
        self._engine = Engine(replica.settings, start_unix=begin)
        self._clock = Clock(0.0)
        self._collector = SpecdecCollector(runtime)
        runtime.last_reload_success_timestamp = begin
        self._predictor = runtime.predictors[0]
        state = self._state
        state.clock, state.born = self._clock.monotonic, 0.0
        state.wall_clock = lambda: begin + self._clock.now
        observe_version(state, replica.settings.vllm_version)
        self.samples: Samples = {}
        self._target = tuple(replica.target.items())
        self._series: dict[tuple[str, Labels], list[tuple[int, float]]] = {}

    @property
    def _state(self) -> PredictorState:
        return self._predictor.state

    def scrape(self, seconds: int) -> None:
        """Let so much time pass and scrape."""
        self._engine.advance(seconds)
        self._clock.advance(seconds)
        now = self._begin + int(self._clock.now)
        self._read_log(now)
        if self._engine.conditions.metrics_broken or not self._engine.serving:
            observe_failure(self._state, "no metrics")
            self._predictor.fetcher.failures["http_status" if self._engine.serving else "connect"] += 1
        else:
            content_type = self._engine.release.content_type
            self._predictor.observe(parse_exposition(render_metrics(self._engine), content_type))
        self._predictor.metrics_health.success = self._state.up
        self._predictor.metrics_health.duration_seconds = 0.004 + 0.001 * math.sin(now / 600)
        families = list(self._collector.collect())
        for family in families:
            for sample in family.samples:
                self._add(sample.name, tuple(sample.labels.items()), now, sample.value)
        self._add("up", (), now, 1.0)
        self._add("scrape_duration_seconds", (), now, 0.02)
        self._add("process_start_time_seconds", (), now, float(self._begin - 90))
        self._add("process_resident_memory_bytes", (), now, 40.0 * 2**20)

    def _read_log(self, now: int) -> None:
        reader = self._state.reader
        if reader is None:
            return
        reader.round_seconds = 0.002
        for line in log_lines(self._engine):
            event = parse_line(line.encode())
            reader.lines += 1
            reader.bytes += len(line) + 1
            reader.last_line_timestamp = float(now)
            assert not isinstance(event, Malformed), line
            if event is not None:
                reader.matched_lines += 1
                observe_event(self._state, event)
        for code, at in self._replica.warnings.items():
            if now - SCRAPE_SECONDS < self._begin + at <= now:
                observe_event(self._state, PredictorWarning(warning=code))

    def _add(self, name: str, own: Labels, at: int, value: float) -> None:
        """Note a sample. Empty labels are none, as in Prometheus."""
        if (known := self._series.get((name, own))) is None:
            labels = sorted((label, text) for label, text in (*own, *self._target) if text)
            known = self._series[name, own] = self.samples.setdefault((name, tuple(labels)), [])
        known.append((at, value))


@contextlib.asynccontextmanager
async def _scraper(replica: Replica, begin: int) -> AsyncIterator[Scraper]:
    # The exporter follows an empty log; the lines are handed to it here, at simulated times.
    with (
        tempfile.NamedTemporaryFile(prefix=f"{replica.pod}-", suffix=".log") as log,
        tempfile.NamedTemporaryFile(prefix=f"{replica.pod}-", suffix=".yaml") as baseline,
    ):
        if replica.baseline is not None:
            write(baseline.name, replica.baseline)
        predictor = PredictorSettings(
            name=replica.service,
            log_paths=(log.name,) if replica.reads_log else (),
            baseline=baseline.name if replica.baseline is not None else None,
        )
        configured = Settings(web=WebSettings(disable_exporter_metrics=True), predictors=(predictor,))
        runtime = ExporterRuntime(configured, lambda: configured)
        await runtime.start()
        try:
            async with asyncio.timeout(10):
                while (health := runtime.predictors[0].health.get("log")) and not health.success:
                    await asyncio.sleep(0.01)
            yield Scraper(replica, runtime, begin)
        finally:
            await runtime.stop()


async def scraped(replica: Replica) -> Samples:
    """The samples of one replica since :data:`START`, and of its history where it has one."""
    async with _scraper(replica, START) as scraper:
        for _ in range(0, END - START, SCRAPE_SECONDS):
            scraper.scrape(SCRAPE_SECONDS)
    found = scraper.samples
    if replica.history:
        found = _with_history(found)
    return found


async def _scrape_all(replicas: Sequence[Replica]) -> Samples:
    together: Samples = {}
    for replica in replicas:
        found = await scraped(replica)
        assert not together.keys() & found.keys(), f"{replica.pod}: its target's labels are not its own"
        together |= found
    return together


def collect(replicas: Sequence[Replica]) -> Samples:
    """The samples of all replicas."""
    return asyncio.run(_scrape_all(replicas))


def _with_history(samples: Samples) -> Samples:
    """Put the first hour before itself, over and over; counters go on rising."""
    extended: Samples = {}
    for (name, labels), values in samples.items():
        first = {at - START: value for at, value in values if at <= START + HOUR}
        if len(first) < HOUR // SCRAPE_SECONDS:
            extended[name, labels] = values
            continue
        counted = name.endswith(("_total", "_bucket", "_count", "_sum"))
        growth = first[HOUR] if counted else 0.0
        past = [
            (START - (HISTORY_HOURS - hour) * HOUR + offset, hour * growth + first[offset])
            for hour in range(HISTORY_HOURS)
            for offset in range(HISTORY_SCRAPE_SECONDS, HOUR + 1, HISTORY_SCRAPE_SECONDS)
        ]
        extended[name, labels] = [*past, *((at, HISTORY_HOURS * growth + value) for at, value in values)]
    return extended
