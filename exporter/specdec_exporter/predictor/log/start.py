"""The last start of a server, as its log tells it. Pure: one event after the other in, one :class:`Start` out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from specdec_exporter.predictor.facts.deployment import Deployment, of_arguments
from specdec_exporter.predictor.log.events import (
    PHASES,
    START_KINDS,
    EngineConfig,
    Event,
    KVCache,
    ModelRunner,
    PhaseName,
    ServerArguments,
    StartPhase,
)
from specdec_exporter.predictor.log.speculator import Speculator, speculator

E = TypeVar("E", bound=Event)
# After these, no engine of the same start prints its first line.
_LAST_PHASES: frozenset[PhaseName] = frozenset({"init_engine", "ready"})

_DAY_SECONDS: Final = 86_400
_WITHOUT_YEAR: Final = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)  # vLLM's own
_SOME_YEAR: Final = 2000  # a leap year
_UNIX_TIME: Final = re.compile(r"\d{9,20}(?:\.\d{1,9})?", re.ASCII)
_MOST_UNIX_SECONDS: Final = 1e11  # larger numbers are milli-, micro- or nanoseconds


class Start(msgspec.Struct, frozen=True):
    """The events of the last start, at most one of each kind and phase, in the log's order."""

    events: tuple[Event, ...] = ()

    def after(self, event: Event) -> Start:
        """Return the start with one more event; events of other kinds change nothing.

        The arguments begin a new start; so does the first line of an engine after one was ready. What runs stays known
        until the new server says otherwise. Of two processes in one phase, the slower one counts.
        """
        if type(event) not in START_KINDS:
            return self
        kept = self.events
        if self._begins_anew(event):
            kept = tuple(each for each in kept if isinstance(each, ServerArguments | EngineConfig))
        if isinstance(event, StartPhase):
            same = [event, *(each for each in self._all(StartPhase) if each.phase == event.phase)]
            event = max(same, key=lambda phase: phase.seconds or 0.0)
        elif isinstance(event, KVCache) and (cache := self.kv_cache) is not None:
            event = _completed(event, cache)
        return Start((*(each for each in kept if _subject(each) != _subject(event)), event))

    def _begins_anew(self, event: Event) -> bool:
        ready = any(phase.phase in _LAST_PHASES for phase in self._all(StartPhase))
        return isinstance(event, ServerArguments) or (isinstance(event, EngineConfig) and ready)

    def _all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def arguments(self) -> ServerArguments | None:
        """The line of arguments."""
        return next(iter(self._all(ServerArguments)), None)

    @property
    def config(self) -> EngineConfig | None:
        """The engine-init line."""
        return next(iter(self._all(EngineConfig)), None)

    @property
    def second_runner(self) -> bool | None:
        """Whether it is model runner V2; ``None`` if no line tells."""
        return next((event.second for event in self._all(ModelRunner)), None)

    @property
    def kv_cache(self) -> KVCache | None:
        """What is known of an engine's KV cache."""
        return next(iter(self._all(KVCache)), None)

    @property
    def kv_cache_tokens(self) -> int | None:
        """Capacity of an engine's KV cache, tokens; where no line names them (V0), requests times their length."""
        cache = self.kv_cache
        if cache is None or cache.tokens is not None:
            return cache.tokens if cache else None
        return round((cache.concurrency or 0.0) * (cache.tokens_per_request or 0)) or None

    @property
    def phase_seconds(self) -> dict[PhaseName, float]:
        """Seconds of each phase that the log tells, in their order."""
        seconds = {phase.phase: phase.seconds for phase in self._all(StartPhase)}
        return {phase: found for phase in PHASES if (found := seconds.get(phase)) is not None}

    @property
    def ready_seconds(self) -> float | None:
        """Seconds from the line of arguments until the server listened, by the log's times.

        Loading Python's modules, some ten seconds before that line, is not in it.
        """
        ready = next((phase for phase in self._all(StartPhase) if phase.phase == "ready"), None)
        return seconds_between(self.arguments.timestamp if self.arguments else None, ready.timestamp if ready else None)

    @property
    def given(self) -> Deployment:
        """What the arguments say."""
        return of_arguments(self.arguments.arguments if self.arguments else {})

    def speculator(self, positions: int = 0) -> Speculator:
        """What drafts; ``positions`` of a curve, 0 without one."""
        return speculator(self.config, self.given, positions)

    @property
    def deployment(self) -> Deployment:
        """The arguments, and over them the values that the engine uses."""
        given = self.arguments.arguments if self.arguments else {}
        config = self.config
        used = {name: value for name, value in (config.settings if config else {}).items() if value is not None}
        deployment = msgspec.structs.replace(
            of_arguments({**given, **used}), arguments=frozenset(given), second_runner=self.second_runner
        )
        said = self.speculator()
        if config is None:
            return msgspec.structs.replace(deployment, speculative=said.on)
        return msgspec.structs.replace(
            deployment,
            speculative=said.on,
            method=said.method,
            draft_model=said.draft_model,
            num_speculative_tokens=said.num_speculative_tokens,
        )


def _subject(event: Event) -> object:
    return event.phase if isinstance(event, StartPhase) else type(event)


def _completed(cache: KVCache, before: KVCache) -> KVCache:
    """Join the two lines of older releases. An engine with less capacity than another one counts."""
    if cache.tokens is not None and before.tokens is not None and before.tokens < cache.tokens:
        cache, before = before, cache
    known = {
        field: value
        for field in ("tokens", "tokens_per_request", "concurrency")
        if (value := getattr(cache, field)) is None and (value := getattr(before, field)) is not None
    }
    return msgspec.structs.replace(cache, **known)


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Return the seconds between two times within a day; ``None`` if one cannot be read, or the clock was set."""
    if earlier is None or later is None:
        return None
    begin, end = _seconds(earlier), _seconds(later)
    if begin is None or end is None or not 0.0 <= end - begin < _DAY_SECONDS:
        return None
    return end - begin


def _seconds(printed: str) -> float | None:
    if _UNIX_TIME.fullmatch(printed):
        time = float(printed)
        while time > _MOST_UNIX_SECONDS:
            time /= 1000
        return time
    dated = f"{_SOME_YEAR}-{printed}" if _WITHOUT_YEAR.fullmatch(printed) else printed.strip().replace(",", ".")
    try:
        moment = datetime.fromisoformat(dated)
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


class StartSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How the predictor was started, as far as its log and metrics tell; ``text`` says it in one line.

    ``phases``: seconds of each part, by name. ``ready_seconds``: from the line of arguments until it listened.
    """

    text: str
    timestamp: str | None
    quantization: str | None
    dtype: str | None
    tensor_parallel_size: int | None
    pipeline_parallel_size: int | None
    max_num_seqs: int | None
    max_model_len: int | None
    kv_cache_dtype: str | None
    kv_cache_tokens: float | None
    phases: dict[PhaseName, float]
    ready_seconds: float | None


_PHASE_WORDS: dict[PhaseName, str] = {
    "load_model": "model loaded in",
    "load_weights": "weights loaded in",
    "compile": "compiled in",
    "capture_graphs": "graphs captured in",
    "init_engine": "engine initialised in",
}


def summarise(start: Start, kv_cache_tokens: float | None = None) -> StartSummary | None:
    """Return the summary; ``None`` if nothing is known. ``kv_cache_tokens``: what the metrics tell, if they do."""
    deployment = start.deployment
    capacity = kv_cache_tokens or start.kv_cache_tokens
    words = [*_deployment_words(start, deployment, capacity), *_phase_words(start)]
    if not words:
        return None
    first = start.arguments or start.config
    return StartSummary(
        text=", ".join(words),
        timestamp=first.timestamp if first else None,
        quantization=deployment.quantization,
        dtype=deployment.dtype,
        tensor_parallel_size=deployment.tensor_parallel_size,
        pipeline_parallel_size=deployment.pipeline_parallel_size,
        max_num_seqs=deployment.max_num_seqs,
        max_model_len=deployment.max_model_len,
        kv_cache_dtype=deployment.kv_cache_dtype,
        kv_cache_tokens=capacity,
        phases=start.phase_seconds,
        ready_seconds=start.ready_seconds,
    )


def _deployment_words(start: Start, deployment: Deployment, capacity: float | None) -> Iterator[str]:
    if deployment.quantization:
        yield f"quantization {deployment.quantization}"
    elif start.config is not None and "quantization" in start.config.settings:
        yield "not quantized"  # vLLM also puts here what the checkpoint itself says
    sizes = (deployment.tensor_parallel_size, deployment.pipeline_parallel_size, deployment.data_parallel_size)
    yield from (f"{short} {size}" for short, size in zip(("TP", "PP", "DP"), sizes, strict=True) if size and size > 1)
    if deployment.max_num_seqs:
        yield f"max_num_seqs {deployment.max_num_seqs}"
    if capacity:
        yield f"KV cache of {capacity:,.0f} tokens"


def _phase_words(start: Start) -> Iterator[str]:
    seconds = start.phase_seconds
    yield from (f"{said} {seconds[phase]:,.1f} s" for phase, said in _PHASE_WORDS.items() if phase in seconds)
    if start.ready_seconds is not None:
        yield f"ready after {start.ready_seconds:,.0f} s"
