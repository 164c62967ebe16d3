"""``python -m specdec_exporter.simulator.demo``: a simulated predictor, the exporter beside it, and what it says, live.

After a minute the draft model goes bad for a minute; the verdict should say so, and say when it is over.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator

import aiohttp
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from specdec_exporter.errors import SpecdecError
from specdec_exporter.simulator.scenario import Collapse
from specdec_exporter.simulator.server import run
from specdec_exporter.simulator.settings import SimulatorSettings
from specdec_exporter.simulator.units import Seconds
from specdec_exporter.status import PredictorStatus, Status

SPEED = 10.0
COLLAPSE_AT_SECONDS = 60.0  # real seconds, as are all times of the demo
COLLAPSE_SECONDS = 60.0
_EXPORTER_WINDOW = "30s"  # short, so that the collapse shows, and goes, while one watches
_READY_WITHIN_SECONDS = 20.0
_EVERY_SECONDS = 2.0


class DemoError(SpecdecError):
    """The demo cannot go on: the exporter did not start, or ended."""


async def demo(seconds: float | None, stop: asyncio.Event) -> None:
    """Run until ``stop`` or for ``seconds``. Raises :class:`DemoError` when the exporter is not ready or dies."""
    with tempfile.TemporaryDirectory(prefix="specdec-demo-") as directory:
        log_path = pathlib.Path(directory, "predictor.log")
        async with _predictor(log_path) as predictor_url, _exporter(predictor_url, log_path) as (exporter, url):
            sys.stdout.write(
                "A demo: the predictor below is a simulation, no model runs.\n"
                f"  predictor (simulated)  {predictor_url}/metrics\n"
                f"  status page            {url}/\n"
                f"  metrics                {url}/metrics\n"
                f"  API                    {url}/api/v1/status\n"
                f"At {COLLAPSE_AT_SECONDS:.0f} s the draft model goes bad for {COLLAPSE_SECONDS:.0f} s. "
                f"Ctrl-C ends it.\n"
            )
            sys.stdout.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await _watch(url, exporter, stop)


@contextlib.asynccontextmanager
async def _predictor(log_path: pathlib.Path) -> AsyncIterator[str]:
    settings = SimulatorSettings(
        speed=SPEED,
        acceptance=0.72,
        k=3,
        listen_address="127.0.0.1:0",
        log_path=str(log_path),
        incidents=(
            Collapse(
                at=Seconds(COLLAPSE_AT_SECONDS * SPEED),
                duration=Seconds(COLLAPSE_SECONDS * SPEED),
                acceptance=0.22,
            ),
        ),
    )
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(settings, ready=port.set_result, stop=stop))
    try:
        await asyncio.wait((task, port), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task  # raises what kept it from starting
        yield f"http://127.0.0.1:{port.result()}"
    finally:
        stop.set()
        await task


@contextlib.asynccontextmanager
async def _exporter(
    predictor_url: str, log_path: pathlib.Path
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    address = f"127.0.0.1:{_free_port()}"
    command = (
        *(sys.executable, "-m", "specdec_exporter", "serve"),
        f"--predictor.url={predictor_url}",
        f"--predictor.log-path={log_path}",
        f"--web.listen-address={address}",
        "--predictor.name=demo",
        f"--window={_EXPORTER_WINDOW}",
        "--log.level=warn",
    )
    process = await asyncio.create_subprocess_exec(*command, start_new_session=True)  # Ctrl-C is ours to handle
    try:
        await _until_ready(f"http://{address}", process)
        yield process, f"http://{address}"
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 5)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _until_ready(url: str, process: asyncio.subprocess.Process) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(int(_READY_WITHIN_SECONDS / 0.1)):
            _check_alive(process)
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/-/ready") as response:
                    if response.ok:
                        return
            await asyncio.sleep(0.1)
    raise DemoError(f"the exporter was not ready within {_READY_WITHIN_SECONDS:.0f} s")


async def _watch(url: str, process: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    console = Console()
    async with aiohttp.ClientSession(base_url=url) as session:
        with Live(console=console) if console.is_terminal else contextlib.nullcontext() as live:
            if live is None:
                sys.stdout.write(_row_text(_COLUMNS) + "\n")
            while not stop.is_set():
                _check_alive(process)
                status = await _status(session)
                if live is not None:
                    live.update(_table(status))
                else:
                    sys.stdout.writelines(_row_text(_row(predictor)) + "\n" for predictor in status.predictors)
                    sys.stdout.flush()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _EVERY_SECONDS)


async def _status(session: aiohttp.ClientSession) -> Status:
    """What the exporter says now; scraped first, as a Prometheus would, since it looks at the predictor then."""
    try:
        async with session.get("/metrics") as response:
            await response.read()
        async with session.get("/api/v1/status") as response:
            return msgspec.json.decode(await response.read(), type=Status)
    except (aiohttp.ClientError, msgspec.DecodeError) as error:
        raise DemoError(f"the exporter does not answer: {error}") from None


_COLUMNS = ("service", "state", "acceptance", "length", "tokens/step", "curve", "verdict")
_WIDTHS = (9, 13, 11, 7, 12, 20, 0)


def _row(predictor: PredictorStatus) -> tuple[str, ...]:
    figures = predictor.window
    if figures is None:
        numbers = ("-", "-", "-", "-")
    else:
        numbers = (
            _number(figures.acceptance_ratio, ".1%"),
            _number(figures.mean_acceptance_length, ".2f"),
            _number(figures.tokens_per_step, ".2f"),
            " ".join(f"{rate:.2f}" for rate in figures.per_position),
        )
    return (
        predictor.inference_service,
        predictor.state,
        *numbers,
        f"{predictor.verdict.code}: {predictor.verdict.headline}",
    )


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _row_text(cells: tuple[str, ...]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _table(status: Status) -> Table:
    table = Table()
    for column in _COLUMNS:
        table.add_column(column, no_wrap=column != "verdict")
    for predictor in status.predictors:
        table.add_row(*_row(predictor))
    return table


def _check_alive(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        raise DemoError(f"the exporter ended with exit code {process.returncode}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _main(seconds: float | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await demo(seconds, stop)


def main() -> int:
    """Exit code 0 when it ended as asked, 1 when it could not go on."""
    parser = argparse.ArgumentParser(prog="python -m specdec_exporter.simulator.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, help="end by itself after so many seconds")
    arguments = parser.parse_args()
    try:
        asyncio.run(_main(arguments.seconds))
    except SpecdecError as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
