"""A predictor that is being restarted: wait until it is back, runs what was asked for, and finishes requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from specdec_exporter.baseline.live import engine_config
from specdec_exporter.baseline.recording import discontinuity
from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.errors import BaselineError, FetchError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.predictor.versions import canonical_method

_POLL_SECONDS = 0.5

Say = Callable[[str], None]


class Asked(msgspec.Struct, frozen=True):
    """What the predictor must run. ``k`` is 0 without speculation; ``None``: not asked for."""

    k: int | None
    method: str | None = None
    draft_model: str | None = None


async def glance(
    url: str,
    timeout_seconds: float,
    access: Access = SYSTEM_TRUST,
) -> Snapshot | None:
    """Return the predictor's metrics before a restart, ``None`` if it does not answer."""
    async with open_session() as session:
        try:
            return await MetricsFetcher(session, url, access=access).fetch(timeout_seconds)
        except FetchError:
            return None


async def wait_until_ready(
    url: str,
    before: Snapshot | None,
    asked: Asked,
    *,
    access: Access = SYSTEM_TRUST,
    log_paths: Sequence[str],
    warm_up_seconds: float,
    limit_seconds: float,
    timeout_seconds: float,
    say: Say,
    returned: Callable[[], None] = lambda: None,
) -> None:
    """Wait until another process than that of ``before`` has warmed up and finished a request.

    Without ``before`` any process will do. ``returned`` is called as soon as it answers, and may start the requests.
    ``limit_seconds`` is the longest wait for the process, and then for the request; ``timeout_seconds`` is for each
    fetch. ``access`` has the predictor's TLS and token. Its log tells method and draft model. Raises
    :class:`BaselineError` if the predictor does not come back, runs something else, restarts again, or finishes no
    request.
    """
    async with open_session() as session:
        watch = _Watch(MetricsFetcher(session, url, access=access), timeout_seconds, limit_seconds, say)
        first = await watch.returned(before)
        _check_metrics(first, asked.k, served=False)
        if log_paths:
            await asyncio.to_thread(_check_log, log_paths, asked)
        returned()
        if warm_up_seconds:
            say(f"The predictor answers. Warm-up for {warm_up_seconds:g} s.")
            await asyncio.sleep(warm_up_seconds)
        _check_metrics(await watch.served(first), asked.k, served=True)


class _Watch:
    def __init__(self, fetcher: MetricsFetcher, timeout_seconds: float, limit_seconds: float, say: Say) -> None:
        self._fetcher = fetcher
        self._timeout = timeout_seconds
        self._limit = limit_seconds
        self._say = say

    async def returned(self, before: Snapshot | None) -> Snapshot:
        """Return the first metrics of the new process."""
        until = time.monotonic() + self._limit
        gone = before is None
        told = False
        while True:
            try:
                snapshot = await self._fetcher.fetch(self._timeout)
            except FetchError as error:
                problem = f"it does not answer: {error}"
                gone = gone or error.reason == "connect"
            else:
                if not snapshot.stats_present:
                    problem = "its metrics have no engine statistics: start vLLM without --disable-log-stats"
                elif before is None or discontinuity(before, snapshot) or (gone and not _same_start(before, snapshot)):
                    return snapshot
                else:
                    problem = "the same process as before still answers"
                    if not told:
                        self._say("The same process as before still answers. Waiting for its restart.")
                        told = True
            if time.monotonic() > until:
                raise BaselineError(f"the predictor has not come back within {self._limit:g} s: {problem}")
            await asyncio.sleep(min(_POLL_SECONDS, self._limit))

    async def served(self, first: Snapshot) -> Snapshot:
        """Return the first metrics with a finished request that ``first`` does not have."""
        until = time.monotonic() + self._limit
        told = False
        while True:
            try:
                snapshot = await self._fetcher.fetch(self._timeout)
            except FetchError as error:
                problem = f"the predictor has stopped answering: {error}"
            else:
                if broken := discontinuity(first, snapshot):
                    raise BaselineError(f"the predictor restarted again before the recording ({broken})")
                if _finished(snapshot) > _finished(first):
                    return snapshot
                problem = f"no request has finished within {self._limit:g} s after the warm-up: send requests to it"
            if time.monotonic() > until:
                raise BaselineError(problem)
            if not told:
                self._say("Waiting for requests to finish.")
                told = True
            await asyncio.sleep(min(_POLL_SECONDS, self._limit))


def _same_start(before: Snapshot, now: Snapshot) -> bool:
    """Whether both show one start time. Without start times (Rust frontend), only a refused connection tells."""
    return now.process_start_time_seconds is not None and (
        now.process_start_time_seconds == before.process_start_time_seconds
    )


def _finished(snapshot: Snapshot) -> float:
    return sum(sum((engine.requests_finished or {}).values()) for engine in snapshot.engines)


def _check_metrics(snapshot: Snapshot, k: int | None, *, served: bool) -> None:
    """Raise :class:`BaselineError` if the metrics contradict ``k``. A predictor that ``served`` shows its drafts."""
    if k is None:
        return
    positions = max((len(engine.accepted_tokens_per_position or ()) for engine in snapshot.engines), default=0)
    drafts = any(engine.draft_tokens is not None for engine in snapshot.engines)
    runs = "with speculation" if drafts else "without speculation"
    if positions:  # releases before 0.8.5 show none
        runs = f"with k = {positions}"
    if (positions and positions != k) or (drafts and not k) or (served and k and not drafts):
        raise BaselineError(f"the predictor runs {runs}: restart it {f'with k = {k}' if k else 'without speculation'}")


def _check_log(log_paths: Sequence[str], asked: Asked) -> None:
    """Raise :class:`BaselineError` if the last start in the log was with something else."""
    config = engine_config(log_paths)
    if config is None or asked.k is None:
        return
    found = config.num_speculative_tokens or 0
    if found != asked.k:
        raise BaselineError(f"the predictor's log says k = {found}, asked was k = {asked.k}: is it its own log?")
    for what, says, wanted in (
        ("method", config.method, asked.method),
        ("draft model", config.draft_model, asked.draft_model),
    ):
        if asked.k and says and wanted and _comparable(says) != _comparable(wanted):
            raise BaselineError(
                f"the predictor's log says that its {what} is {plain(says)}: restart it with {plain(wanted)}"
            )


def _comparable(name: str) -> str:
    """A method by its name in policies, a model without the folder that it lies in."""
    return canonical_method(name.rstrip("/").rpartition("/")[2].casefold())
