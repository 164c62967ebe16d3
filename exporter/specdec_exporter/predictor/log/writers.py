"""Which of vLLM's source files print which messages. A message of another file holds a user's text.

From the sources and captures of 0.6.6 to 0.33.0. A tag is what a header prints: a file's name, its path (with
``VLLM_LOGGING_LEVEL=DEBUG``) or a logger's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specdec_exporter.predictor.log.events import (
    EngineConfig,
    EngineStats,
    KVCache,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    SpecDecoding,
    StartPhase,
)

# The Rust frontend prints log_stats.rs. None of these prints text of a request.
_STATISTICS: Final = frozenset({"metrics", "loggers", "log_stats"})
# These print texts of requests, and the first line of a message only says "Received request".
_REQUESTS: Final = frozenset({"logger", "request_logger"})
_FILES: Final[Mapping[type, frozenset[str]]] = {
    SpecDecoding: _STATISTICS,
    EngineStats: _STATISTICS,
    EngineConfig: frozenset({"core", "llm_engine", "async_llm_engine"}),
    ServerArguments: frozenset({"startup", "api_utils", "utils", "cli_args", "api_server"}),
    StartPhase: frozenset(
        {
            *("default_loader", "sharded_state_loader", "loader", "tpu"),  # of the weights
            *("gpu_model_runner", "model_runner", "xpu_model_runner"),
            *("backends", "monitor", "decorators"),  # of torch.compile
            *("core", "llm_engine", "entry", "api_server"),
        }
    ),
    KVCache: frozenset({"kv_cache_utils", "executor_base", "gpu_executor", "distributed_gpu_executor"}),
    RequestParams: _REQUESTS,
    PredictorWarning: frozenset(
        {
            *("vllm", "speculative", "config", "arg_utils"),  # checks of the configuration
            *("__init__", "logits_processor"),  # the file of the package, and its logger
            *("scheduler", "kv_cache_manager", "kv_cache_coordinator", "single_type_kv_cache_manager"),
            *("core", "core_client", "gpu_model_runner", "eagle", "cpu", "cpu_worker", "cpu_model_runner"),
            *("loggers", "async_llm", "jit_monitor"),
        }
    ),
}


def module_path(tag: str) -> list[str]:
    """``"metrics/loggers.py"``, ``"metrics.loggers"`` -> ``["metrics", "loggers"]``."""
    return tag.removesuffix(".py").removesuffix(".rs").replace("/", ".").split(".")


def writes(tag: str | None, kind: type, *, any_writer: bool = False) -> bool:
    """Whether a message of ``kind`` counts under this tag; ``None``: the line names no writer.

    ``any_writer`` lets all count but those that print users' texts (``--predictor.log-trust=any``).
    """
    if tag is None:
        return any_writer
    *packages, name = module_path(tag)
    if name in _FILES[kind] or (any_writer and name not in _REQUESTS):
        return True
    return _FILES[kind] is _STATISTICS and packages[-1:] == ["metrics"]  # a new file beside the known ones
