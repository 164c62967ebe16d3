"""The lines that tell how far a server's start is, the capacity of its KV cache, and its model runner. Pure.

From the sources of 18 releases, 0.6.6 to 0.33.0::

    Loading weights took 94.71 seconds
    Model loading took 14.9889 GiB memory and 97.514862 seconds               up to 0.11.0 without "memory"
    Loading model weights took 14.9888 GB                                     0.6.6, 0.7.3
    Dynamo bytecode transform time: 8.30 s                                    from 0.32.0 after "[model's tag] "
    torch.compile took 31.05 s in total                                       up to 0.17.0 "takes"
    Graph capturing finished in 21 secs, took 0.52 GiB
    init engine (profile, create kv cache, warmup model) took 63.20 s (compilation: 31.05 s)  up to 0.17.0 "seconds"
    GPU KV cache size: 699,008 tokens
    Maximum concurrency for 1,024 tokens per request: 682.62x                 from 0.32.0 on the line above
    Starting vLLM server on http://0.0.0.0:8080                               up to 0.17.0 "vLLM API server"
    Using V2 Model Runner                                                     since 0.16.0
    Model Runner V2 does not yet support LoRA; using the V1 model runner ...  since 0.23.0; 0.22.0 "Model runner v2"
    Model Runner V2 requires Triton; using the V1 model runner instead.       likewise
    Defaulting to V1 model runner on ROCm for model architectures: ...        0.29.0 to 0.31.0
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from specdec_exporter.predictor.log.events import KVCache, ModelRunner, PhaseName, StartPhase
from specdec_exporter.predictor.log.message import Message

_SECONDS: Final = r"(?P<seconds>\d{1,9}(?:\.\d{1,9})?)"
_GIB: Final = r"(?P<gib>\d{1,9}(?:\.\d{1,9})?)"
_PATTERNS: Final[Mapping[PhaseName, str]] = {
    "load_weights": rf"Loading weights took {_SECONDS} seconds",
    "load_model": rf"Model loading took {_GIB} GiB (?:memory )?and {_SECONDS} seconds"
    rf"|Loading model weights took {_GIB.replace('gib', 'gb')} Gi?B",
    "transform": rf"Dynamo bytecode transform time: {_SECONDS} s",
    "compile": r"torch\.compile (?:and initial profiling/warmup run together )?(?:takes|took) "
    rf"{_SECONDS} s in total",
    "profile": rf"Initial profiling/warmup run took {_SECONDS} s",
    "capture_graphs": rf"Graph capturing finished in {_SECONDS} secs, took {_GIB} GiB",
    "init_engine": r"init engine \(profile, create kv cache, warmup model\) took "
    rf"{_SECONDS} s(?:econds)?(?: \(compilation: .{{1,200}}\))?",
    "ready": r"Starting vLLM (?:API )?server (?:\d{1,6} )?on https?://\S{1,300}",
}
_PHASES: Final = {phase: re.compile(pattern, re.ASCII) for phase, pattern in _PATTERNS.items()}
_TAG: Final = re.compile(r"\[[\w.-]{1,100}\] ", re.ASCII)  # of the compiled model
_COUNT: Final = r"\d{1,3}(?:,\d{3}){1,4}|\d{1,15}"
_CONCURRENCY: Final = rf"Maximum concurrency for (?P<each>{_COUNT}) tokens per request: (?P<many>\d{{1,12}}\.\d\d)x"
_KV_CACHE: Final = re.compile(
    rf"[\w+ ]{{2,30}} KV cache size: (?P<tokens>{_COUNT}) tokens(?:, {_CONCURRENCY})?"
    rf"|{_CONCURRENCY.replace('<', '<only_')}",
    re.ASCII,
)


def _without_names(pattern: str) -> str:
    return re.sub(r"\?P<\w+>", "?:", pattern)


# These messages, as parts of a larger pattern.
PHASE_BEGINS: Final = _without_names(rf"(?:{_TAG.pattern})?(?:{'|'.join(_PATTERNS.values())})")
KV_CACHE_BEGINS: Final = _without_names(_KV_CACHE.pattern)
_SECOND_RUNNER: Final = "Using V2 Model Runner"
RUNNER_BEGINS: Final = (
    rf"{_SECOND_RUNNER}|Model [Rr]unner [Vv]2 (?:does not yet support .{{1,300}}|requires Triton); using the "
    "|Defaulting to V1 model runner on "
)


def read_kv_cache(message: Message) -> KVCache | None:
    """Read the capacity of a KV cache; ``None`` for a message that breaks off."""
    if (capacity := _KV_CACHE.fullmatch(message.text)) is None:
        return None
    each, many = capacity["each"] or capacity["only_each"], capacity["many"] or capacity["only_many"]
    return KVCache(
        tokens=_whole(capacity["tokens"]),
        tokens_per_request=_whole(each),
        concurrency=None if many is None else float(many),
        **message.place,
    )


def read_runner(message: Message) -> ModelRunner:
    """Read which model runner is used."""
    return ModelRunner(second=message.text.startswith(_SECOND_RUNNER), **message.place)


def read_phase(message: Message) -> StartPhase | None:
    """Read a part of the start; ``None`` for any other, and for one that breaks off."""
    text = message.text[tag.end() :] if (tag := _TAG.match(message.text)) is not None else message.text
    for phase, pattern in _PHASES.items():
        if (ended := pattern.fullmatch(text)) is not None:
            figures = ended.groupdict()
            return StartPhase(
                phase=phase,
                seconds=_number(figures.get("seconds")),
                memory_gib=_number(figures.get("gib") or figures.get("gb")),
                **message.place,
            )
    return None


def _whole(printed: str | None) -> int | None:
    return None if printed is None else int(printed.replace(",", ""))


def _number(printed: str | None) -> float | None:
    return None if printed is None else float(printed)
