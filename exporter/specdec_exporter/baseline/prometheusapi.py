"""The query API of a Prometheus, or of a server that has the same: an expression -> series."""

from __future__ import annotations

import contextlib
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
    """One series of an answer: its labels, and its values by their Unix time. Useless values are left out."""

    labels: Mapping[str, str]
    values: Mapping[float, float]

    @property
    def value(self) -> float:
        """The first value; the only one of a query at one moment."""
        return next(iter(self.values.values()))


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str] = (0.0, "NaN")  # of a query at one moment
    values: tuple[tuple[float, str], ...] = ()  # of a query in steps

    @property
    def usable(self) -> dict[float, float]:
        """The values that are finite numbers of at least 0, as all that is asked for is."""
        values = {}
        for time, text in (self.value, *self.values):
            with contextlib.suppress(ValueError):
                if 0 <= float(text) < math.inf:
                    values[time] = float(text)
        return values


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
        """Return the vector of ``expression``. Raises :class:`BaselineError`."""
        return await self._ask("query", {"query": expression, "time": f"{self._at:.3f}"})

    async def query_steps(self, expression: str, steps: int, step_seconds: float) -> list[Series]:
        """Return ``expression`` at the end of each of the last ``steps``. Raises :class:`BaselineError`."""
        first = self._at - (steps - 1) * step_seconds
        times = {"start": f"{first:.3f}", "end": f"{self._at:.3f}", "step": f"{step_seconds:.3f}"}
        return await self._ask("query_range", {"query": expression, **times})

    async def _ask(self, endpoint: str, form: dict[str, str]) -> list[Series]:
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
        series = (Series(sample.metric, sample.usable) for sample in answer.data.result)
        return [answered for answered in series if answered.values]
