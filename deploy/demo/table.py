"""A live table of the exporter's status of all predictors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo.processes import ProcessError, Server
from specdec_exporter.serving.status import PredictorStatus, Status

_EVERY_SECONDS = 2.0
_COLUMNS = ("service", "state", "acceptance", "length", "tokens/step", "curve", "speed-up", "verdict")
_WIDTHS = (9, 13, 11, 7, 12, 16, 9, 0)


class LiveTable:
    """The table, with lines of text above it. If the output is no terminal, the rows are printed as plain lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def say(self, text: str) -> None:
        """Print ``text`` above the table."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    async def follow(self, exporter: Server, stop: asyncio.Event, alive: Callable[[], None]) -> None:
        """Show the figures until ``stop``. Raises :class:`ProcessError` when the exporter does not answer any more."""
        if self._live is None:
            self.say(_row_text(_COLUMNS))
        with self._live or contextlib.nullcontext():
            async with aiohttp.ClientSession(base_url=exporter.url) as session:
                while not stop.is_set():
                    alive()
                    self._show(await _status(session))
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), _EVERY_SECONDS)

    def _show(self, status: Status) -> None:
        if self._live is None:
            self.say("\n".join(_row_text(_row(predictor)) for predictor in status.predictors))
            return
        table = Table()
        for column in _COLUMNS:
            table.add_column(column, no_wrap=column != "verdict")
        for predictor in status.predictors:
            table.add_row(*_row(predictor))
        self._live.update(table, refresh=True)


async def _status(session: aiohttp.ClientSession) -> Status:
    try:
        async with session.get("/api/v1/status") as response:
            return msgspec.json.decode(await response.read(), type=Status)
    except (aiohttp.ClientError, msgspec.DecodeError) as error:
        raise ProcessError(f"the exporter does not answer: {error}") from None


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
    measured = predictor.measured
    return (
        predictor.inference_service,
        predictor.state,
        *numbers,
        f"{measured.speedup.value:.2f}x" if measured else "-",
        f"{predictor.verdict.code}: {predictor.verdict.headline}",
    )


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _row_text(cells: tuple[str, ...]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
