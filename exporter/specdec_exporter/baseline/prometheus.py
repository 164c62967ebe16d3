"""``baseline record --prometheus``: a baseline of one service from a range in Prometheus.

Each figure is one ``increase()`` query, which corrects the counter resets of each series. The series are summed here,
so that a mix of services, models or buckets is refused and not added up. Intervals and blocks are ``increase()``
queries in steps; Prometheus sums those of blocks over engines.
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from specdec_exporter.baseline.file import HISTOGRAMS, LENGTHS, MAX_BLOCKS, RECORDED, Baseline, Block, Context, as_utc
from specdec_exporter.baseline.intervals import Moment
from specdec_exporter.baseline.prometheusapi import Prometheus, Series
from specdec_exporter.baseline.recording import Increases, of_v0, refuse_without_latencies, total_of, with_increases
from specdec_exporter.errors import BaselineError
from specdec_exporter.formatting import plain
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import ENGINES, VLLM
from specdec_exporter.predictor.metrics.families import length_meanings, meanings
from specdec_exporter.predictor.metrics.fetch import open_session
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.yamlfile import number_of

# A baseline needs one combination of these labels. Two jobs are two services, or one service that is scraped twice.
IDENTITY = ("cluster", "namespace", "job", "inference_service", "model_name")
_SELECTOR = re.compile(r'\s*\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)\}\s*')
_LONGEST_DRAFT = 10_000  # tokens; a larger k is no k
_STEPS = 500  # samples of the range, to find the part with data
# An interval: shorter ones would hold too few scrapes. More of them would only make the query longer.
_MIN_INTERVAL_SECONDS = 60.0
_MIN_SCRAPES_PER_INTERVAL = 4
_MAX_INTERVALS = 1000
_MAX_ROWS = 100_000  # intervals x engines; each query answers with as many numbers
_SCRAPES_SEEN_SECONDS = 600.0  # the span in which scrapes are counted

# Labels of specdec_predictor_info that are facts of a baseline.
_FACTS = ("inference_engine", "vllm_version", "method", "draft_model")
# Count -> field of a snapshot, and the part of a histogram.
_COUNTERS = (
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "generation_tokens",
    "prompt_tokens",
    "cached_prompt_tokens",
    "preemptions",
)
_COUNTS = {
    **{name: (name, "") for name in _COUNTERS},
    "first_tokens": ("time_to_first_token", "count"),
    "steps": ("step_latency", "count"),
    "step_seconds": ("step_latency", "sum"),
}


async def record_range(
    url: str,
    *,
    selector: str,
    range_seconds: float,
    end: datetime | None = None,
    name: str | None = None,
    context: Context | None = None,
    timeout_seconds: float = 60.0,
) -> Baseline:
    """Record the service that ``selector`` (``{...}``) matches in the Prometheus at ``url``.

    The range is the ``range_seconds`` before ``end`` (now). It reads the exporter's families, or the predictor's if
    there are none. Raises :class:`BaselineError` if several services or models match, or no request finished.
    """
    end = end or datetime.now(UTC)
    matchers = _matchers(selector)
    context = context or Context()
    async with open_session() as session:
        source = _Range(Prometheus(session, url, end, timeout_seconds), matchers, range_seconds, end.timestamp())
        await source.find_service()
        facts, k = await source.facts()
        code = facts.get("inference_engine", VLLM.code)
        if code not in ENGINES:
            raise BaselineError(f"expected an inference engine of {', '.join(ENGINES)}, found {code[:40]!r}")
        refuse_without_latencies(ENGINES[code])
        seconds = await source.covered_seconds()
        increases = await source.increases(seconds)
    if context.runtime is None and (version := facts.get("vllm_version")):
        context = msgspec.structs.replace(context, runtime=f"vLLM {version}")
    model_name = source.identity.get("model_name")
    return with_increases(
        Baseline(
            name=name or source.identity.get("inference_service") or model_name or "baseline",
            recorded_at=as_utc(end),
            duration_seconds=round(seconds, 3),
            context=context,
            num_speculative_tokens=k or len(increases.counts.accepted_per_position) or None,
            model_name=model_name,
            **facts,
        ),
        increases,
    )


def _matchers(selector: str) -> str:
    """``{a="b"}`` -> ``a="b"``; Prometheus checks the matchers."""
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        raise BaselineError(f'expected a selector such as {{inference_service="chat"}}, found {selector!r}')
    return match[1].strip().strip(",")


class _Range:
    """One service over one range."""

    def __init__(self, prometheus: Prometheus, matchers: str, seconds: float, end: float) -> None:
        self._prometheus = prometheus
        self._matchers = matchers
        self._seconds = seconds
        self._end = end
        self._span = _window(seconds)
        self._names: Callable[[str, str], Sequence[str]] = _exported_names
        self.identity: dict[str, str] = {}
        self._engines = 1  # that ever were in the range
        self.v0 = False

    async def find_service(self) -> None:
        """Choose the families to read, and make sure that they belong to one service and one model."""
        field, matching = "generation_tokens", list[Series]()
        candidates: list[Callable[[str, str], Sequence[str]]] = [_exported_names]
        candidates += [functools.partial(_predictor_names, prefix) for prefix in VLLM.prefixes]
        for self._names in candidates:
            if matching := await self._increase(field):
                break
        if not matching:
            raise BaselineError(
                f"no series of a predictor matches {{{self._matchers}}} in the range: expected "
                f"{_exported_names(field)[0]} or {_predictor_names(VLLM.prefixes[0], field)[0]}"
            )
        services = sorted({tuple((key, series.labels.get(key, "")) for key in IDENTITY) for series in matching})
        if len(services) > 1:
            shown = "; ".join(
                "{" + ", ".join(f'{k}="{plain(v)}"' for k, v in service if v) + "}" for service in services[:8]
            )
            raise BaselineError(f"{len(services)} services or models match, expected one: {shown}. Narrow --selector")
        self._engines = len(matching)
        self.identity = {key: plain(value) for key, value in services[0] if value}
        # V1 labels every series with the engine.
        self.v0 = self._names is not _exported_names and not all("engine" in series.labels for series in matching)

    async def increases(self, covered_seconds: float) -> Increases:
        """Return what happened in the range; its last ``covered_seconds`` become blocks."""
        scalars: dict[str, Any] = {name: await self._total(*place) for name, place in _COUNTS.items()}
        positions: dict[int, float] = defaultdict(float)
        for series in await self._increase("accepted_tokens_per_position"):
            if (position := _position_of(series.labels)) is not None:
                positions[position] += series.value
        increases = Increases(
            histograms={
                field: histogram
                for field, source in RECORDED.items()
                if (histogram := await self._histogram(source, field)) is not None
            },
            counts=Counts(
                accepted_per_position=tuple(positions.get(i, 0.0) for i in range(max(positions, default=-1) + 1)),
                **scalars,
            ),
            requests_finished=await self._total("requests_finished"),
        )
        interval_seconds = await self._interval_seconds()
        increases = increases._replace(
            blocks=await self._blocks(increases.histograms, covered_seconds, interval_seconds)
        )
        return (
            of_v0(increases)
            if self.v0
            else increases._replace(moments=await self._moments(interval_seconds, covered_seconds))
        )

    async def _blocks(
        self, whole: Mapping[str, Histogram], covered_seconds: float, least_seconds: float
    ) -> tuple[Block, ...]:
        """Return blocks of equal length, each of some scrapes. Time in which nothing was scraped is in none."""
        number = min(MAX_BLOCKS, int(covered_seconds / least_seconds))
        if not number:
            return ()
        seconds = math.floor(covered_seconds * 1000 / number) / 1000
        steps = _Steps(number, seconds, seconds)
        counts = {name: (await self._in_steps(*place, steps)).get(None, {}) for name, place in _COUNTS.items()}
        sources = {sli: source for sli, source in HISTOGRAMS.items() if sli in whole}
        sums = {sli: (await self._in_steps(source, "sum", steps)).get(None, {}) for sli, source in sources.items()}
        buckets = {sli: await self._in_steps(source, "bucket", steps) for sli, source in sources.items()}
        blocks = []
        for time in sorted(counts["generation_tokens"]):
            histograms: dict[str, Any] = {
                sli: Histogram(
                    whole[sli].bounds,
                    tuple(counts_by_bound.get(bound, {}).get(time, 0.0) for bound in whole[sli].bounds),
                    sums[sli].get(time, 0.0),
                )
                for sli, counts_by_bound in buckets.items()
            }
            blocks.append(Block(seconds=seconds, counts=_counts_at(counts, time), **histograms))
        return tuple(blocks)

    async def _moments(self, seconds: float, covered_seconds: float) -> tuple[Moment, ...]:
        """Return the intervals of each engine, evenly in the range, without those in which it started.

        A start shows as a series that was not there within the warm-up before, or as a counter that fell.
        """
        number = min(_MAX_INTERVALS, int(self._seconds / seconds), max(_MAX_ROWS // self._engines, MAX_BLOCKS))
        if not number:
            return ()
        before = seconds + load_policy().cost.warm_up_seconds
        (tokens,) = self._names("generation_tokens", "")
        series = f"{tokens}{{{self._matchers}}}"
        ran = f"resets({series}{_window(before)}) == 0 and {series} and {series} offset {_milliseconds(before)}"
        steps = _Steps(number, self._seconds / number, seconds, f" and ({ran})")
        counts = {name: await self._by_engine(*place, steps) for name, place in _COUNTS.items()}
        engines = counts["generation_tokens"]
        times = sorted({time for values in engines.values() for time in values})
        # The range may begin before there is data, and data may end before the range does.
        begin = min(self._end - covered_seconds, times[0] - seconds) if times else 0.0
        return tuple(
            tuple(
                Load(
                    seconds,
                    _counts_at({name: by_engine.get(engine, {}) for name, by_engine in counts.items()}, time),
                    time - begin,
                )
                for engine in sorted(engines)
                if time in engines[engine]
            )
            for time in times
        )

    async def _interval_seconds(self) -> float:
        """Return the length of an interval, which holds some scrapes."""
        span = min(self._seconds, _SCRAPES_SEEN_SECONDS)
        name = self._names("generation_tokens", "")[0]
        counted = f"count_over_time({name}{{{self._matchers}}}{_window(span)})"
        most = await self._prometheus.query(f"max(max_over_time({counted}[{self._span[1:-1]}:{_milliseconds(span)}]))")
        scrape_seconds = span / most[0].value if most and most[0].value > 0 else 0.0
        return max(_MIN_INTERVAL_SECONDS, _MIN_SCRAPES_PER_INTERVAL * scrape_seconds)

    async def _in_steps(self, field: str, part: str, steps: _Steps) -> dict[float | None, Mapping[float, float]]:
        """Return the increases of a figure over all engines by the bounds of its buckets, if it has any."""
        increases = await self._increases(field, part, steps, "sum by (le) ({})")
        return {_bound_of(series.labels): series.values for series in increases}

    async def _by_engine(self, field: str, part: str, steps: _Steps) -> dict[_Engine, Mapping[float, float]]:
        """Return the increases of a figure without buckets by the labels of each engine."""
        return {_engine_of(series.labels): series.values for series in await self._increases(field, part, steps, "{}")}

    async def _increases(self, field: str, part: str, steps: _Steps, summed: str) -> list[Series]:
        for name in self._names(field, part):
            increase = f"increase({name}{{{self._matchers}}}{_window(steps.seconds)}){steps.only}"
            if answer := await self._prometheus.query_steps(summed.format(increase), steps.number, steps.apart):
                return answer
        return []

    async def covered_seconds(self) -> float:
        """Return the length of the part with data: the service may have started later, or stopped earlier."""
        step = max(1, round(self._seconds * 1000 / _STEPS))
        name = self._names("generation_tokens", "")[0]
        times = f"timestamp({name}{{{self._matchers}}})[{self._span[1:-1]}:{step}ms]"
        first = await self._prometheus.query(f"min(min_over_time({times}))")
        last = await self._prometheus.query(f"max(max_over_time({times}))")
        if not first or not last:
            return self._seconds
        covered = last[0].value - first[0].value
        # increase() extrapolates a little beyond the first and the last sample.
        return self._seconds if covered > self._seconds * (1 - 4 / _STEPS) else max(covered, 1.0)

    async def facts(self) -> tuple[dict[str, Any], int | None]:
        """Return facts of a baseline, and k; where the exporter recorded none or several, the fact is missing."""
        info = await self._prometheus.query(self._over("last_over_time", "specdec_predictor_info"))
        ks = await self._prometheus.query(self._over("max_over_time", "specdec_num_speculative_tokens"))
        k = _only(series.value for series in ks if series.value < _LONGEST_DRAFT)
        self.v0 = self.v0 or any(series.labels.get("engine_generation") == "v0" for series in info)
        told = {name: _only(series.labels.get(name) for series in info) for name in _FACTS}
        return {name: value for name, value in told.items() if value}, int(k) if k else None

    def _over(self, function: str, name: str) -> str:
        return f"{function}({name}{{{self._matchers}}}{self._span})"

    async def _increase(self, field: str, part: str = "") -> list[Series]:
        for name in self._names(field, part):
            if answer := await self._prometheus.query(self._over("increase", name)):
                return answer
        return []

    async def _total(self, field: str, part: str = "") -> float | None:
        series = await self._increase(field, part)
        return sum(engine.value for engine in series) if series else None

    async def _histogram(self, source: str, field: str) -> Histogram | None:
        buckets: dict[_Engine, dict[float, float]] = defaultdict(dict)
        for series in await self._increase(source, "bucket"):
            if (bound := _bound_of(series.labels)) is not None:
                buckets[_engine_of(series.labels)][bound] = series.value
        sums = {_engine_of(series.labels): series.value for series in await self._increase(source, "sum")}
        histograms = []
        for engine, counts in buckets.items():
            if math.inf in counts:
                bounds = tuple(sorted(counts))
                within = tuple(counts[bound] for bound in bounds)
                histograms.append(Histogram(bounds, within, sums.get(engine, 0.0)))
        return total_of(field, histograms)


class _Steps(NamedTuple):
    """Spans of ``seconds`` that end so many seconds ``apart``; ``only`` picks the series that count in each."""

    number: int
    apart: float
    seconds: float
    only: str = ""


_Engine = tuple[tuple[str, str], ...]  # all labels of its series but the bucket's, sorted: the target is among them


def _engine_of(labels: Mapping[str, str]) -> _Engine:
    return tuple(sorted((key, value) for key, value in labels.items() if key != "le"))


def _counts_at(columns: Mapping[str, Mapping[float, float]], time: float) -> Counts:
    known: dict[str, Any] = {name: values[time] for name, values in columns.items() if time in values}
    return Counts(**known)


def _bound_of(labels: Mapping[str, str]) -> float | None:
    bound = labels.get("le", "")
    return math.inf if bound == "+Inf" else number_of(bound)


def _position_of(labels: Mapping[str, str]) -> int | None:
    position = labels.get("position", "")
    return int(position) if position.isdecimal() and len(position) < 4 else None


def _milliseconds(seconds: float) -> str:
    """Return a duration of PromQL."""
    return f"{max(1, round(seconds * 1000))}ms"


def _window(seconds: float) -> str:
    return f"[{_milliseconds(seconds)}]"


def _exported_names(field: str, part: str = "") -> Sequence[str]:
    """Return the exporter's name for a figure or for a part of a histogram (``bucket``, ``sum``, ``count``)."""
    if field in LENGTHS:  # it serves no lengths of requests
        return ()
    return (f"specdec_{field}_seconds_{part}" if part else f"specdec_{field}_total",)


def _predictor_names(prefix: str, field: str, part: str = "") -> Sequence[str]:
    """Return the predictor's names for it, the newest first."""
    ranks = {
        name: meaning.rank
        for name, own in (meanings(VLLM.code) | length_meanings(VLLM.code)).items()
        for meaning in (own, own.also)
        if meaning and meaning.field == field and name.startswith(prefix) and name.endswith(f"_{part or 'total'}")
    }
    return sorted(ranks, key=ranks.__getitem__)


def _only(values: Iterable[Any]) -> Any:
    """Return the value if there is exactly one."""
    distinct = {value for value in values if value}
    return distinct.pop() if len(distinct) == 1 else None
