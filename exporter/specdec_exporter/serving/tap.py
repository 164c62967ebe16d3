"""``specdec-exporter tap``: what runs while saved responses are read, and its page."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator

import msgspec
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from specdec_exporter import __version__, bounds
from specdec_exporter.config import Settings, TapSettings
from specdec_exporter.errors import ConfigError
from specdec_exporter.formatting import count, decimal, percent, plain
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import RequestParams
from specdec_exporter.predictor.sources.responses import ResponseFollower
from specdec_exporter.serving import families
from specdec_exporter.serving.collector import metrics_of, shown, with_process
from specdec_exporter.serving.logsource import LogSource, open_log_source
from specdec_exporter.serving.runtime import STOP_SECONDS
from specdec_exporter.serving.tapfamilies import TAP, TAP_READER
from specdec_exporter.serving.tapstate import TapState
from specdec_exporter.speculation.requests import KindGroup, RequestGroup

LOG = logging.getLogger("specdec")


class TapStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``/api/v1/status`` of ``tap``: counts since ``started_at``. Ratios are 0..1, timestamps Unix seconds.

    ``problem`` says why nothing can be read; ``log_readable`` is null without a log. ``unreadable_reason`` says why the
    last unreadable line was no response.
    """

    exporter_version: str
    started_at: float
    generated_at: float
    inference_service: str
    header: str | None
    problem: str | None
    log_readable: bool | None
    lines: dict[str, int]
    unreadable_reason: str | None
    dropped: dict[str, int]
    all: RequestGroup
    groups: tuple[KindGroup, ...]


class TapRuntime:
    """The readers of the saved responses and of the predictor's log, if one is given, and the state that they feed."""

    probe = None  # it asks no predictor

    def __init__(self, settings: Settings, tap: TapSettings) -> None:
        self.settings = settings
        self.last_reload_successful: bool = True  # the flags are read once
        self.last_reload_success_timestamp: float = time.time()
        self.left_out: Counter[str] = Counter()
        self._tap = tap
        (self._predictor,) = settings.predictors
        self._log_reader = ReaderCounters()
        self.state = TapState(
            with_header=tap.header is not None,
            log_readable=(lambda: self._log is not None and self._log.healthy) if self._predictor.log_paths else None,
            problem=lambda: self._responses.problem,
        )
        if "-" in self._predictor.log_paths and "-" in tap.paths:
            raise ConfigError("saved responses and --predictor.log-path cannot both be read from stdin ('-')")
        self._responses = ResponseFollower(
            tap.paths, self.state.reader, header=tap.header, start=tap.start, state_path=tap.state
        )
        self._log: LogSource | None = None
        if self._predictor.log_paths:
            self._log = open_log_source(self._predictor, self._log_reader, frozenset({RequestParams}))
        self._stop = asyncio.Event()
        self._first_look: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def about(self) -> dict[str, int]:
        """What is logged when it is ready."""
        return {"inputs": len(self._tap.paths)}

    @property
    def dropped(self) -> dict[str, int]:
        """What was beyond a bound, by what."""
        found = self.left_out + self.state.dropped + self._log_reader.dropped
        return {**dict.fromkeys(bounds.DROPPED, 0), **found}

    async def start(self) -> None:
        """Begin to read."""
        self._first_look = [asyncio.create_task(self._responses.begin())]
        self._tasks = [asyncio.create_task(self._follow_responses(self._first_look[0]))]
        if self._log is not None:
            looks = asyncio.create_task(self._log.begin())
            self._first_look.append(looks)
            self._tasks.append(asyncio.create_task(self._follow_log(self._log, looks)))

    async def _follow_responses(self, first_look: asyncio.Task[None]) -> None:
        await first_look
        await self._responses.follow(self.state.observe_response, self._stop)

    async def _follow_log(self, source: LogSource, first_look: asyncio.Task[None]) -> None:
        await first_look
        await source.follow(self.state.observe_event, self._stop)

    async def begun(self) -> None:
        """Wait until the readers know what was there at the start."""
        if self._first_look:
            await asyncio.wait(self._first_look)

    async def stop(self) -> None:
        """Read to the end; give it up if that takes too long."""
        self._stop.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
                LOG.warning("stopped before everything was read")
        self.state.count_late(ended=True)

    async def refresh(self, timeout_seconds: float) -> None:  # noqa: ARG002  nothing is fetched
        """Count what has waited long enough."""
        self.state.count_late()

    async def reload(self) -> str | None:
        """Do nothing: there is no configuration file."""
        return None

    def status(self) -> TapStatus:
        """Return everything that the page shows, and more."""
        state = self.state
        return TapStatus(
            exporter_version=__version__,
            started_at=self.last_reload_success_timestamp,
            generated_at=time.time(),
            inference_service=self._predictor.name,
            header=self._tap.header,
            problem=state.problem,
            log_readable=state.log_readable,
            lines=state.lines_by_result,
            unreadable_reason=state.junk_reason,
            dropped=self.dropped,
            all=state.all.close(),
            groups=state.groups.closed(),
        )

    def text(self) -> str:
        """Return the page: acceptance by kind of request, in plain text."""
        status = self.status()
        rows = [
            ("by", "group", "requests", "rate", "P10", "P50", "P90", "length"),
            _row("all", "", status.all),
            *(_row(_by(each.by, status.header), each.value, each.group) for each in status.groups),
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join([*_head(status), "", *(_aligned(row, widths) for row in rows), "", _FOOT, ""])


_FOOT = """rate: accepted / draft tokens. P10 to P90: acceptance of requests, each counted once.
Each request is in one group of each grouping. /api/v1/status has all this as JSON."""


def _head(status: TapStatus) -> Iterator[str]:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(status.started_at))
    yield f"specdec-exporter {status.exporter_version}, tap of {plain(status.inference_service)}, since {since}"
    if status.problem:
        yield f"Problem: {plain(status.problem)}"
    if status.log_readable is False:
        yield "Problem: the predictor's log cannot be read, so it tells no temperatures."
    yield "Lines: " + ", ".join(f"{number:,} {result}" for result, number in status.lines.items())
    if status.unreadable_reason:
        yield f"The last unreadable line: {plain(status.unreadable_reason)}"


def _by(by: str, header: str | None) -> str:
    return header or by if by == "header" else by


def _row(by: str, name: str, group: RequestGroup) -> tuple[str, ...]:
    return (
        by,
        plain(name),
        count(group.requests),
        percent(group.acceptance_ratio),
        *(percent(group.percentiles.get(rank)) for rank in ("p10", "p50", "p90")),
        decimal(group.mean_acceptance_length),
    )


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    left, right = row[:2], row[2:]
    cells = [cell.ljust(width) for cell, width in zip(left, widths[:2], strict=True)]
    return "  ".join([*cells, *(cell.rjust(width) for cell, width in zip(right, widths[2:], strict=True))])


class _TapCollector(Collector):
    def __init__(self, runtime: TapRuntime) -> None:
        self._runtime = runtime

    def collect(self) -> Iterator[Metric]:
        runtime = self._runtime
        labels = [runtime.settings.predictors[0].name]
        return metrics_of(
            [
                *shown(TAP, [(labels, runtime.state)]),
                *shown(TAP_READER, [(labels, runtime.state)]),
                *shown(families.EXPORTER, [([], runtime)]),
            ]
        )


def build_registry(runtime: TapRuntime) -> Collector:
    """Return the families of ``tap`` and, unless switched off, those of this process."""
    return with_process(_TapCollector(runtime), runtime.settings.web)
