"""A simulated predictor's log lines, in the wording and with the prefix of its release."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator

import msgspec

from demo.simulator.engine import Engine, EngineStats, LogRecord, SpecStats, Started
from demo.simulator.settings import SimulatorSettings

NOTICE = "specdec-exporter simulator: no vLLM and no model run here; every figure below is simulated"
_API_PID, _ENGINE_PID = 4242, 4300
_NO_DRAFT_MODEL = ("ngram", "suffix", "extract_hidden_states", "custom_class")


def log_lines(engine: Engine) -> list[str]:
    """Return the lines (without line ends) that the predictor wrote since the last call."""
    return [line for record in engine.take_records() for line in _lines(engine, record)]


def _lines(engine: Engine, record: LogRecord) -> Iterator[str]:
    match record:
        case Started(at=at):
            yield from _startup(engine, at)
        case EngineStats():
            message = engine.release.stats_line.format_map(msgspec.structs.asdict(record))
            yield _prefix(engine, record.at, source=("loggers.py", 335)) + message
        case SpecStats():
            yield _prefix(engine, record.at, source=("metrics.py", 120)) + _spec_message(engine, record)


def _spec_message(engine: Engine, spec: SpecStats) -> str:
    """Return the text of the periodic spec-decode line. Without drafts its ratios are ``nan``, as in vLLM."""
    line, k, counts = engine.release.spec_line, engine.settings.k, spec.counts
    drafts, drafted, accepted = counts.drafts, counts.draft_tokens, counts.accepted_tokens
    seconds = max(spec.at - counts.since, 1.0)
    rate = accepted / drafted if drafted else math.nan
    return line.text.format(
        rate=rate,
        percent=rate * 100,
        length=line.bonus_included + accepted / drafts if drafts else math.nan,
        accepted=accepted,
        drafted=drafted,
        emitted=spec.emitted_tokens,
        efficiency=spec.emitted_tokens / (drafts * (k + 1)) if drafts else math.nan,
        k=k,
        positions=", ".join(f"{count / drafts:.3f}" for count in counts.accepted_per_position),
        accepted_throughput=accepted / seconds,
        drafted_throughput=drafted / seconds,
    )


def _startup(engine: Engine, at: float) -> Iterator[str]:
    settings = engine.settings
    yield NOTICE
    arguments: dict[str, object] = {"model": settings.model, "served_model_name": [settings.model_name]}
    if settings.speculates:
        arguments["speculative_config"] = {
            "method": settings.method,
            **({"model": draft} if (draft := _draft_model(settings)) else {}),
            "num_speculative_tokens": settings.k,
            **({"enable_adaptive_verification": True} if settings.adaptive_verification else {}),
        }
    yield f"{_prefix(engine, at, source=('api_utils.py', 286))}non-default args: {arguments}"
    for index in range(settings.engines):
        process = "EngineCore" if settings.engines == 1 else f"EngineCore_DP{index}"
        prefix = _prefix(engine, at, source=("core.py", 133), process=process, pid=_ENGINE_PID + index)
        yield prefix + init_message(engine)


def init_message(engine: Engine) -> str:
    """Return the engine-init line: the only line with method, draft model and k."""
    release, settings = engine.release, engine.settings
    speculative = "None"
    if settings.speculates:
        draft = _draft_model(settings)
        speculative = release.speculative_config.format(
            method=settings.method,
            draft_repr=repr(draft),
            draft_or_method=draft if draft is not None else f"[{settings.method}]",
            k=settings.k,
        )
    begin = release.init_line.format(engine=release.generation.upper(), version=release.text)
    return (
        f"{begin}model={settings.model!r}, speculative_config={speculative}, tokenizer={settings.model!r}, "
        f"max_seq_len={settings.max_model_len}, data_parallel_size={settings.engines}, quantization=None, "
        f"seed={settings.seed}, served_model_name={settings.model_name}, enable_prefix_caching=True"
    )


def _draft_model(settings: SimulatorSettings) -> str | None:
    """Return the draft model of the engine-init line: none for lookup methods, the target model for mtp."""
    if settings.method in _NO_DRAFT_MODEL:
        return None
    return settings.model if settings.method == "mtp" else settings.draft_model


def _prefix(
    engine: Engine, at: float, *, source: tuple[str, int], process: str = "APIServer", pid: int = _API_PID
) -> str:
    moment = dt.datetime.fromtimestamp(engine.start_unix + at, tz=dt.UTC)
    return engine.release.prefix.format(
        process=process, pid=pid, level="INFO", time=f"{moment:%m-%d %H:%M:%S}", file=source[0], line=source[1]
    )
