"""``specdec-exporter serve``: the life of the process, from its start to the last read of the log."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from aiohttp import web

from specdec_exporter import __version__
from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.config import Settings, parse_listen_address
from specdec_exporter.errors import ConfigError, SpecdecError
from specdec_exporter.predictor.metrics.fetch import without_credentials
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.logs import configure
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.web.admission import Admission, limited_runner
from specdec_exporter.web.server import Endpoints, one_line_errors

LOG = logging.getLogger("specdec")

# With predictorruntime.STOP_SECONDS, shutdown must end within 5 s, because the grace period is the operator's setting.
SHUTDOWN_REQUESTS_SECONDS = 2.0
# A file system that hangs may delay readiness no longer than this.
FIRST_LOOK_SECONDS = 5.0


def run(settings: Settings, load: Callable[[], Settings], remarks: Iterable[str] = ()) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    ``load`` reads the configuration again. ``remarks`` on it are logged.
    """
    configure(settings.log)
    LOG.info(_begins(settings))
    for remark in remarks:
        LOG.warning(remark)
    return asyncio.run(_live(settings, load))


def _begins(settings: Settings) -> str:
    """Say what is served, and where, to somebody who typed the bare command."""
    urls = [without_credentials(predictor.url) for predictor in settings.predictors]
    addresses = settings.web.listen_addresses
    everywhere = any(parse_listen_address(address)[0] in (None, "0.0.0.0", "::") for address in addresses)
    served = f"metrics and a status page of {urls[0] if len(urls) == 1 else f'{len(urls)} predictors'}"
    where = f"{', '.join(addresses)}{', every interface' if everywhere else ''}"
    return f"begins to serve {served} on {where}; other commands and flags: specdec-exporter --help"


async def _live(settings: Settings, load: Callable[[], Settings]) -> int:
    stop = _stop_signal()
    runtime = ExporterRuntime(settings, load)
    reloads: set[asyncio.Task[str | None]] = set()

    def reload() -> None:
        task = asyncio.create_task(runtime.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    try:
        site = _site(runtime)
        await runtime.start()
        runner = await _bind(site, runtime.settings.web.listen_addresses)
    except BaseException:
        await runtime.stop()
        raise
    reading = asyncio.create_task(runtime.keep_reading())
    await _first_look(runtime, stop)
    if not stop.is_set():
        site.endpoints.ready = True
        LOG.info("ready", extra={"version": __version__, "predictors": len(runtime.predictors)})
    await stop.wait()
    site.endpoints.ready = False
    reading.cancel()
    await _shut_down(runtime, runner)
    return 0


async def _first_look(runtime: ExporterRuntime, stop: asyncio.Event) -> None:
    """Wait until all logs have been looked at, but neither for long nor after ``stop``."""
    waiting = {asyncio.create_task(runtime.begun()), asyncio.create_task(stop.wait())}
    _, left = await asyncio.wait(waiting, timeout=FIRST_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets. Without a handler, Python as process 1 ignores SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop


async def check(settings: Settings) -> None:
    """Raise one error with all mistakes for which ``serve`` would refuse these settings.

    The check may run elsewhere, so free ports and the Kubernetes API do not matter.
    """
    mistakes: list[str] = []
    with _noted(mistakes):
        _site(ExporterRuntime(settings, lambda: settings))
    for predictor in settings.predictors:
        if predictor.baseline is not None:
            with _noted(mistakes):
                PinnedBaseline(predictor.baseline)
        here = msgspec.structs.replace(predictor, baseline=None)
        if predictor.log_source == "kubernetes":
            here = msgspec.structs.replace(here, log_source="file", log_paths=())
        alone = ExporterRuntime(msgspec.structs.replace(settings, predictors=(here,)), lambda: settings)
        with _noted(mistakes):
            alone.prepare()
        await alone.stop()
    if mistakes:
        raise ConfigError(*mistakes)


@contextmanager
def _noted(mistakes: list[str]) -> Iterator[None]:
    """Add what is raised to ``mistakes``."""
    try:
        yield
    except SpecdecError as error:
        mistakes += error.args


class _Site(NamedTuple):
    """What is served, and how."""

    endpoints: Endpoints
    app: web.Application
    tls: ssl.SSLContext | None


def _site(runtime: ExporterRuntime) -> _Site:
    """Return what the settings make of the endpoints. Raises :class:`ConfigError`."""
    app = web.Application(middlewares=[one_line_errors])
    tls = None
    if runtime.settings.web.config_file:
        from specdec_exporter.web import basicauth, webconfig  # noqa: PLC0415  bcrypt only where asked for

        protection = webconfig.WebConfigFile(runtime.settings.web.config_file)
        basicauth.protect(app, protection.current)
        tls = protection.ssl_context()
    app.middlewares.append(Admission(runtime.left_out).middleware)  # who has no password yet takes no place of others
    endpoints = Endpoints(runtime, SpecdecCollector(runtime).collect)
    app.add_routes(endpoints.routes())
    return _Site(endpoints, app, tls)


async def _bind(site: _Site, addresses: Sequence[str]) -> web.AppRunner:
    runner = limited_runner(site.app, SHUTDOWN_REQUESTS_SECONDS)
    await runner.setup()
    for address in addresses:
        host, port = parse_listen_address(address)
        try:
            await web.TCPSite(runner, host, port, ssl_context=site.tls).start()
        except OSError as error:
            await runner.cleanup()
            raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error
    for host, port, *_ in runner.addresses:
        LOG.info("listening", extra={"address": f"{host}:{port}", "tls": site.tls is not None})
    return runner


async def _shut_down(runtime: ExporterRuntime, runner: web.AppRunner) -> None:
    started = time.monotonic()
    LOG.info("stopping")
    await runner.cleanup()
    await runtime.stop()
    LOG.info("stopped", extra={"seconds": round(time.monotonic() - started, 2)})
