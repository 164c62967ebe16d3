"""The query API of a Prometheus, or of a server that has the same: an expression -> series."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import aiohttp
import msgspec
from yarl import URL

from specdec_exporter.errors import BaselineError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.metrics.fetch import no_connection

_MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Series(NamedTuple):
    """One series of an answer: its labels and its value."""

    labels: Mapping[str, str]
    value: float


class Steps(NamedTuple):
    """One series of an answer in steps: its labels, and its values by the Unix time at which each step ends."""

    labels: Mapping[str, str]
    values: Mapping[float, float]


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str] = (0.0, "NaN")  # of a query at one moment
    values: tuple[tuple[float, str], ...] = ()  # of a query in steps


class _Data(msgspec.Struct):
    result: list[_Sample]


class _Answer(msgspec.Struct):
    data: _Data | None = None
    error: str = ""


class Prometheus:
    """Queries to one Prometheus, or a server with the same API, at one moment or in steps until then."""

    def __init__(self, session: aiohttp.ClientSession, url: str, at: datetime, timeout_seconds: float) -> None:
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._at = at.timestamp()
        try:
            base = URL(url)
        except ValueError:
            base = URL()
        if base.scheme not in ("http", "https") or not base.host:
            raise BaselineError(f"expected the URL of a Prometheus such as http://127.0.0.1:9090, found {url!r}")
        self._api = base.with_query(None) / "api" / "v1"
        self._shown = str(base.with_user(None).with_query(None))

    async def query(self, expression: str) -> list[Series]:
        """Return the vector of ``expression`` without useless values. Raises :class:`BaselineError`."""
        samples = await self._ask("query", {"query": expression, "time": f"{self._at:.3f}"})
        values = ((sample.metric, _usable(sample.value[1])) for sample in samples)
        return [Series(labels, value) for labels, value in values if value is not None]

    async def query_steps(self, expression: str, steps: int, step_seconds: float) -> list[Steps]:
        """Return ``expression`` at the end of each of the last ``steps``. Raises :class:`BaselineError`."""
        first = self._at - (steps - 1) * step_seconds
        times = {"start": f"{first:.3f}", "end": f"{self._at:.3f}", "step": f"{step_seconds:.3f}"}
        samples = await self._ask("query_range", {"query": expression, **times})
        return [
            Steps(sample.metric, {time: value for time, text in sample.values if (value := _usable(text)) is not None})
            for sample in samples
        ]

    async def _ask(self, endpoint: str, form: dict[str, str]) -> list[_Sample]:
        expression = form["query"]
        try:
            async with self._session.post(self._api / endpoint, data=form, timeout=self._timeout) as response:
                body = await response.content.read(_MAX_ANSWER_BYTES + 1)
                while len(body) <= _MAX_ANSWER_BYTES and (more := await response.content.read(_MAX_ANSWER_BYTES)):
                    body += more
        except TimeoutError as error:
            raise BaselineError(
                f"{self._shown} did not answer {expression} within {self._timeout.total:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise BaselineError(f"{self._shown} cannot be queried: {no_connection(error)[1]}") from error
        if len(body) > _MAX_ANSWER_BYTES:
            raise BaselineError(f"{self._shown} answered {expression} with more than {_MAX_ANSWER_BYTES} bytes")
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BaselineError(
                f"{self._shown} answered {response.status} without a Prometheus result: expected the base URL of its "
                "API, without /api/v1"
            ) from error
        if answer.data is None:
            raise BaselineError(f"{self._shown} refused {expression}: {plain(answer.error)}")
        return answer.data.result


def _usable(text: str) -> float | None:
    """Return a sample's value; ``None`` where it is no finite number of at least 0, as all that is asked for is."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
