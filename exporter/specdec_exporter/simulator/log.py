"""A simulated predictor's log lines, in the wording and with the prefix of its release."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator

from specdec_exporter.simulator.engine import Accessed, Engine, EngineStats, LogRecord, SpecStats, Started
from specdec_exporter.simulator.settings import SimulatorSettings
from specdec_exporter.simulator.shapes import RUST_PREFIX, Release, SpecLine

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
            source = ("log_stats.rs", 273) if engine.release.frontend == "rust" else ("loggers.py", 335)
            yield _prefix(engine, record.at, source=source) + stats_message(engine.release, record)
        case SpecStats() if line := engine.release.spec_line:
            source = ("log_stats.rs", 302) if engine.release.frontend == "rust" else ("metrics.py", 120)
            yield _prefix(engine, record.at, source=source) + spec_message(line, record, engine.settings.k)
        case Accessed() if engine.release.frontend == "python":  # the Rust front end logs no requests
            yield f'{_uvicorn(engine)}{record.client} - "{record.request_line}" {record.status}'


def stats_message(release: Release, stats: EngineStats) -> str:
    """Return the text of the periodic engine line."""
    return release.stats_line.format(
        engine=stats.engine,
        prompt=stats.prompt_throughput,
        generation=stats.generation_throughput,
        running=stats.running,
        waiting=stats.waiting,
        kv=stats.kv_cache_usage * 100,
        prefix=stats.prefix_cache_hit_ratio * 100,
    )


def spec_message(line: SpecLine, spec: SpecStats, k: int) -> str:
    """Return the text of the periodic spec-decode line. Without drafts its ratios are ``nan``, as in vLLM."""
    drafts, drafted, accepted = spec.drafts, spec.draft_tokens, spec.accepted_tokens
    rate = accepted / drafted if drafted else math.nan
    bonus = 1 if line.bonus_included else 0
    return line.text.format(
        rate=rate,
        percent=rate * 100,
        length=bonus + accepted / drafts if drafts else math.nan,
        accepted=accepted,
        drafted=drafted,
        emitted=spec.emitted_tokens,
        efficiency=spec.emitted_tokens / (drafts * (k + 1)) if drafts else math.nan,
        k=k,
        positions=", ".join(f"{count / drafts if drafts else math.nan:.3f}" for count in spec.accepted_per_position),
        accepted_throughput=accepted / spec.seconds if spec.seconds else 0.0,
        drafted_throughput=drafted / spec.seconds if spec.seconds else 0.0,
    )


def _startup(engine: Engine, at: float) -> Iterator[str]:
    release, settings = engine.release, engine.settings
    yield NOTICE
    api = _prefix(engine, at, source=("api_server.py", 1395))
    if release.version < (0, 20, 0):
        yield f"{api}vLLM API server version {release.text}"
    arguments: dict[str, object] = {"model": settings.model, "served_model_name": [settings.model_name]}
    if settings.speculates:
        arguments["speculative_config"] = {
            "method": settings.method,
            **({"model": draft} if (draft := _draft_model(settings)) else {}),
            "num_speculative_tokens": settings.k,
        }
    main = "MainProcess" if release.frontend == "rust" else None
    yield f"{_prefix(engine, at, process=main, source=('api_utils.py', 286))}non-default args: {arguments}"
    for index in range(settings.engines):
        process = "EngineCore" if settings.engines == 1 else f"EngineCore_DP{index}"
        core = _prefix(engine, at, process=process, pid=_ENGINE_PID + index, source=("core.py", 133))
        yield core + init_message(engine)
        if settings.speculates:
            pid, source = _ENGINE_PID + 100 + index, ("__init__.py", 211)
            worker = _prefix(engine, at, process="Worker", pid=pid, level="WARNING", source=source)
            for warning in release.startup_warnings:
                if not warning.methods or settings.method in warning.methods:
                    yield worker + warning.text
        if release.generation == "v1":
            cache = _prefix(engine, at, process=process, pid=_ENGINE_PID + index, source=("kv_cache_utils.py", 2327))
            yield f"{cache}GPU KV cache size: {settings.kv_cache_tokens:,} tokens"
    if settings.api_servers > 1:
        for index in range(settings.api_servers):
            source, process = ("loggers.py", 1386), f"ApiServer_{index}"
            prefix = _prefix(engine, at, process=process, pid=_API_PID + index, level="WARNING", source=source)
            yield (
                f"{prefix}AsyncLLM created with api_server_count more than 1; "
                "disabling stats logging to avoid incomplete stats."
            )
    if release.frontend == "python":
        yield f"{_uvicorn(engine)}Started server process [{_API_PID}]"
        yield f"{_uvicorn(engine)}Waiting for application startup."
        yield f"{_uvicorn(engine)}Application startup complete."


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
        "skip_tokenizer_init=False, tokenizer_mode=auto, revision=None, trust_remote_code=False, dtype=torch.bfloat16, "
        f"max_seq_len={settings.max_model_len}, download_dir=None, load_format=auto, tensor_parallel_size=1, "
        f"pipeline_parallel_size=1, data_parallel_size={settings.engines}, quantization=None, enforce_eager=False, "
        f"kv_cache_dtype=auto, device_config=cuda, seed={settings.seed}, served_model_name={settings.model_name}, "
        "enable_prefix_caching=True, enable_chunked_prefill=True, pooler_config=None, compilation_config={}"
    )


def _draft_model(settings: SimulatorSettings) -> str | None:
    """Return the draft model of the engine-init line: none for lookup methods, the target model for mtp."""
    if settings.method in _NO_DRAFT_MODEL:
        return None
    return settings.model if settings.method == "mtp" else settings.draft_model


def _prefix(
    engine: Engine,
    at: float,
    *,
    source: tuple[str, int],
    process: str | None = None,
    pid: int = _API_PID,
    level: str = "INFO",
) -> str:
    rust = engine.release.frontend == "rust" and process is None  # the engine processes stay Python
    moment = dt.datetime.fromtimestamp(engine.start_unix + at, tz=dt.UTC)
    return (RUST_PREFIX if rust else engine.release.prefix).format(
        process=process or ("RustFrontend" if rust else "APIServer"),
        pid=pid,
        level=level,
        time=f"{moment:%m-%d %H:%M:%S}",
        file=source[0],
        line=source[1],
    )


def _uvicorn(engine: Engine) -> str:
    return engine.release.uvicorn_prefix.format(pid=_API_PID) + "INFO:     "
