"""What tests build predictors from: one engine that drafts, a clock that tests turn."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from prometheus_client.exposition import generate_latest

from specdec_exporter.config import PredictorSettings, Settings
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.log.events import EngineConfig, ServerArguments, SpecDecoding
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.serving.runtime import ExporterRuntime

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = FIXTURES / "captures"
T = TypeVar("T")


def numbers(found: object) -> Iterator[float]:
    """Every number with a point in a document: structs, mappings and lists inside each other."""
    if isinstance(found, float):
        yield found
    elif isinstance(found, msgspec.Struct):
        yield from numbers(msgspec.structs.astuple(found))
    elif isinstance(found, dict | list | tuple):
        for each in found.values() if isinstance(found, dict) else found:
            yield from numbers(each)


def known(value: T | None) -> T:
    """Return a value that must not be ``None``."""
    assert value is not None
    return value


@dataclasses.dataclass
class Clock:
    """A monotonic clock and a wall clock that move together, by hand; ``ahead`` sets the wall clock."""

    now: float = 1000.0
    ahead: float = 1_790_000_000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.ahead + self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def latency(count: float, mean: float = 0.04) -> Histogram:
    return Histogram(bounds=(0.05, 0.1, float("inf")), counts=(count, count, count), sum=count * mean)


def engine(
    steps: float = 0,
    positions: tuple[float, ...] = (0.0, 0.0, 0.0),
    *,
    k: int = 3,
    requests: float = 0,
    running: float = 0,
    name: str = "0",
    model: str = "tiny",
) -> EngineSnapshot:
    """An engine that drafted k tokens in each of ``steps`` request-steps and accepted ``positions`` of them."""
    accepted = sum(positions)
    return EngineSnapshot(
        model_name=model,
        engine=name,
        drafts=steps,
        draft_tokens=steps * k,
        accepted_tokens=accepted,
        accepted_tokens_per_position=dict(enumerate(positions)),
        generation_tokens=steps + accepted + requests,
        prompt_tokens=requests * 8,
        preemptions=0.0,
        requests_finished={"stop": requests},
        requests_running=running,
        requests_waiting=0.0,
        kv_cache_usage_ratio=0.25,
        time_to_first_token=latency(requests),
        time_per_output_token=latency(requests),
        step_latency=latency(steps),
        request_latency=latency(requests),
        request_decode=latency(requests),
    )


def arguments(**speculative: object) -> ServerArguments:
    """The line of arguments of a server with these keys of ``--speculative-config``."""
    return ServerArguments(arguments={"speculative_config": speculative})


def config(**changes: object) -> EngineConfig:
    """The engine-init line of a server that drafts."""
    usual = EngineConfig(
        speculative=True,
        vllm_version="0.32.0",
        engine_generation="v1",
        method="draft_model",
        draft_model="/models/draft",
        num_speculative_tokens=3,
        model="/models/target",
        served_model_name="tiny",
    )
    return msgspec.structs.replace(usual, **changes)


def window(
    per_position: Sequence[int], drafts: int, timestamp: str | None = None, engine: str | None = None
) -> SpecDecoding:
    """The event of a line as vLLM 0.10.2 and later print it."""
    accepted, drafted = sum(per_position), drafts * len(per_position)
    return SpecDecoding(
        timestamp=timestamp,
        engine=engine,
        accepted_tokens=accepted,
        draft_tokens=drafted,
        acceptance_ratio=accepted / drafted,
        mean_acceptance_length=round(1 + accepted / drafts, 2),
        bonus_included=True,
        per_position=tuple(round(count / drafts, 3) for count in per_position),
        num_speculative_tokens=len(per_position),
    )


def saved_response(histogram: Sequence[int], **fields: object) -> dict[str, Any]:
    """A response of vLLM as a gateway saves it; ``histogram``: drafts by their number of accepted tokens."""
    drafts, k = sum(histogram), len(histogram) - 1
    record = {"acceptance_histogram": histogram, "num_draft_tokens": drafts * k, "num_spec_tokens": k}
    usual = {"id": "cmpl-1", "model": "llama", "choices": [], "metrics": {"speculative_decoding": record}}
    return {**usual, **fields}


def snapshot(*engines: EngineSnapshot) -> Snapshot:
    return Snapshot(engines=engines, engine_generation="v1", stats_present=True)


@contextlib.asynccontextmanager
async def started(*predictors: PredictorSettings, **others: Any) -> AsyncIterator[ExporterRuntime]:
    """What an exporter runs, in this process, with these predictors and other settings."""
    settings = Settings(predictors=predictors, **others)
    runtime = ExporterRuntime(settings, lambda: settings)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()


async def exposed(settings: PredictorSettings, prepare: Callable[[PredictorRuntime], None]) -> list[str]:
    """The lines that an exporter serves of one predictor after ``prepare``."""
    async with started(settings) as runtime:
        prepare(runtime.predictors[0])
        return generate_latest(SpecdecCollector(runtime)).decode().splitlines(keepends=True)
