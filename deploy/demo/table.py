"""What the exporter's status says of the predictors, as rows of text."""

from __future__ import annotations

from datetime import datetime

import aiohttp
import msgspec

from demo.processes import ProcessError, Server
from specdec_exporter.speculation.verdict import WORDS
from specdec_exporter.state.status import PredictorStatus, Status

_COLUMNS = ("time", "service", "state", "acceptance", "length", "tokens/step", "curve", "speed-up", "verdict")
_WIDTHS = (10, 9, 13, 11, 7, 12, 16, 9, 0)


async def rows(exporter: Server, service: str | None = None) -> str:
    """Return a table of all predictors, or the row of one. Raises :class:`ProcessError` if the exporter is silent."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{exporter.url}/api/v1/status") as response:
            status = msgspec.json.decode(await response.read(), type=Status)
    except (aiohttp.ClientError, msgspec.DecodeError) as error:
        raise ProcessError(f"the exporter does not answer: {error}") from None
    shown = [_row(each) for each in status.predictors if service in (None, each.inference_service)]
    return "\n".join(map(_text, shown if service else (_COLUMNS, *shown)))


def _row(predictor: PredictorStatus) -> tuple[str, ...]:
    figures, measured = predictor.window, predictor.measured
    numbers = ("-", "-", "-", "-")
    if figures is not None:
        numbers = (
            _number(figures.acceptance_ratio, ".1%"),
            _number(figures.mean_acceptance_length, ".2f"),
            _number(figures.tokens_per_step, ".2f"),
            " ".join(f"{rate:.2f}" for rate in figures.per_position),
        )
    return (
        f"{datetime.now().astimezone():%H:%M:%S}",
        predictor.inference_service,
        predictor.state,
        *numbers,
        f"{measured.speedup.value:.2f}x" if measured and measured.speedup else "-",
        f"{WORDS[predictor.verdict.code].title.lower()}: {predictor.verdict.headline}",
    )


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _text(cells: tuple[str, ...]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
