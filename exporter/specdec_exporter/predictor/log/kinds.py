"""The kinds of lines that count, as one table. A new kind is a row here, a function that reads it and its event.

Users can write vLLM's words into the log. So each row names the files that print such a message; in the same words, a
message of another file holds a user's text. From the sources and captures of 0.6.6 to 0.33.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log import configline, startline, statistics
from specdec_exporter.predictor.log.events import (
    EngineConfig,
    EngineStats,
    Event,
    KVCache,
    Malformed,
    ModelRunner,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    SpecDecoding,
    StartPhase,
)
from specdec_exporter.predictor.log.message import Message, UnreadableError
from specdec_exporter.predictor.log.search import Words
from specdec_exporter.predictor.versions import JIT_COMPILATION, WARNINGS


class Kind(NamedTuple):
    """One kind of line.

    ``begins``: a pattern of its message's first words. ``words``: what finds the line in the bytes of a log.
    ``writers``: the files and loggers that print it, by the last part of their names. ``read`` raises
    :class:`UnreadableError`, and returns ``None`` for another message with these first words. ``shows_running``: only a
    server that is ready prints it. ``only_at_start``: only a server that starts does, and its words are not rare.
    """

    event: type
    begins: str
    words: tuple[Words, ...]
    writers: frozenset[str]
    read: Callable[[Message], Event | None]
    shows_running: bool = False
    only_at_start: bool = False


_MESSAGE_CHARACTERS: Final = 500


def _patterns(level: str) -> str:
    return "|".join(warned.pattern.pattern for warned in WARNINGS.values() if warned.level == level)


def _read_warning(message: Message) -> PredictorWarning | None:
    for code, warned in WARNINGS.items():
        levels = (None, "WARN", "WARNING", warned.level)
        matches = message.level in levels and warned.pattern.match(message.text) is not None
        if code == JIT_COMPILATION:
            # The compilation monitor also logs at INFO that it runs.
            matches = message.level == "WARNING" and (matches or message.module[-1] in _ONLY_WARNS)
        if matches:
            return PredictorWarning(warning=code, message=plain(message.text[:_MESSAGE_CHARACTERS]), **message.place)
    return None


_ONLY_WARNS: Final = frozenset({"jit_monitor"})  # what this file prints is a warning whatever its words
_WARNERS: Final = frozenset(
    {
        *("vllm", "speculative", "config", "arg_utils"),  # checks of the configuration
        *("__init__", "logits_processor"),  # the file of the package, and its logger
        *("scheduler", "kv_cache_manager", "kv_cache_coordinator", "single_type_kv_cache_manager"),
        *("core", "core_client", "gpu_model_runner", "eagle", "cpu", "cpu_worker", "cpu_model_runner"),
        *("speculator", "llm_base_proposer", "vocab_mapping", "utils"),  # of v1/spec_decode and model runner V2
        *("loggers", "async_llm", *_ONLY_WARNS),
    }
)
# The Rust frontend prints log_stats.rs. None of these prints text of a request.
_STATISTICS: Final = frozenset({"metrics", "loggers", "log_stats"})
# These print texts of requests, and the first line of a message only says "Received request".
_REQUESTS: Final = frozenset({"logger", "request_logger"})
_SPECULATIVE: Final = Words((b"peculative",), place=3)

KINDS: Final = (
    Kind(  # V1 engine, since 0.8.3, and the Rust frontend
        SpecDecoding,
        r"SpecDecoding metrics:",
        (Words((b"Decoding metrics",)),),
        _STATISTICS,
        statistics.read_spec_decoding,
        shows_running=True,
    ),
    Kind(  # V0 engine, up to 0.9.2
        SpecDecoding,
        r"Speculative metrics:",
        (_SPECULATIVE,),
        _STATISTICS,
        statistics.read_speculative_v0,
        shows_running=True,
    ),
    Kind(
        EngineStats,
        r"(?:Engine \d{1,6}: |\d{1,6} Engines Aggregated: )?Avg prompt t(?:hrough)?put: ",
        (Words((b"Running: ",)),),
        _STATISTICS,
        statistics.read_engine_stats,
        shows_running=True,
    ),
    Kind(
        EngineConfig,
        r"Initializing an? (?:V\d )?LLM engine \(v",
        (_SPECULATIVE,),
        frozenset({"core", "llm_engine", "async_llm_engine"}),
        configline.read_engine_config,
    ),
    Kind(
        ServerArguments,
        re.escape(configline.SERVER_ARGUMENTS),
        (Words((configline.SERVER_ARGUMENTS.encode(),), place=18),),
        frozenset({"startup", "api_utils", "utils", "cli_args", "api_server"}),
        configline.read_server_arguments,
    ),
    Kind(
        RequestParams,
        r"Received request ",
        (Words((b"Received request ",)),),
        _REQUESTS,
        configline.read_request_params,
        shows_running=True,
    ),
    Kind(
        StartPhase,
        startline.PHASE_BEGINS,
        (Words((b" took ", b" takes ", b" transform time: ", b" vLLM ")),),
        frozenset(
            {
                *("default_loader", "sharded_state_loader", "loader", "tpu"),  # of the weights
                *("gpu_model_runner", "model_runner", "xpu_model_runner"),
                *("backends", "monitor", "decorators"),  # of torch.compile
                *("core", "llm_engine", "entry", "api_server"),
            }
        ),
        startline.read_phase,
        only_at_start=True,
    ),
    Kind(
        KVCache,
        startline.KV_CACHE_BEGINS,
        (Words((b" KV cache size: ", b"Maximum concurrency for ")),),
        frozenset({"kv_cache_utils", "executor_base", "gpu_executor", "distributed_gpu_executor"}),
        startline.read_kv_cache,
        only_at_start=True,
    ),
    Kind(
        ModelRunner,
        startline.RUNNER_BEGINS,
        (Words((b"odel Runner", b"odel runner")),),
        frozenset({"gpu_worker", "xpu_worker", "cpu_worker", "vllm"}),
        startline.read_runner,
        only_at_start=True,
    ),
    Kind(
        PredictorWarning,
        _patterns("WARNING"),
        (Words((b"WARNING",)), _SPECULATIVE),
        _WARNERS,
        _read_warning,
    ),
    Kind(
        PredictorWarning,
        _patterns("INFO"),
        (Words((b"cannot update draft decode metadata",)),),
        _WARNERS,
        _read_warning,
        only_at_start=True,
    ),
)
_WARNING: Final = next(kind for kind in KINDS if kind.event is PredictorWarning)
# Finds the first words of any kind; the group's name is "k" and the number of its row.
BEGINNINGS: Final = re.compile("|".join(f"(?P<k{row}>{kind.begins})" for row, kind in enumerate(KINDS)), re.ASCII)
WRITERS: Final = frozenset[str]().union(*(kind.writers for kind in KINDS))
BYTE_ARRAY: Final = Words((b'"MESSAGE":[',), place=1)  # as journalctl writes a message with colours in JSON
# A line without any of these holds no message of any kind.
OF_INTEREST: Final = re.compile(
    b"|".join({re.escape(text) for kind in KINDS for words in (*kind.words, BYTE_ARRAY) for text in words.texts})
)
_UNTRUSTED: Final = Malformed(reason="it names none of vLLM's files that print statistics", untrusted=True)


def kind_of(message: Message) -> Kind | None:
    """Return the kind of a message; ``None`` where it is of none."""
    if (begins := BEGINNINGS.match(message.text)) is not None and begins.lastgroup is not None:
        return KINDS[int(begins.lastgroup[1:])]
    return _WARNING if message.module[-1] in _ONLY_WARNS else None


def read_message(message: Message, *, any_writer: bool = False) -> Event | Malformed | None:
    """Return the event of a message; ``None`` where it is of no kind, or not of the server's own statistics.

    ``any_writer`` lets all writers count but those that print users' texts (``--predictor.log-trust=any``).
    """
    if (kind := kind_of(message)) is None:
        return None
    if not _writes(message, kind, any_writer=any_writer):
        is_statistics = kind.writers is _STATISTICS
        return _UNTRUSTED if is_statistics and _writes(message, kind, any_writer=True) else None
    try:
        return kind.read(message)
    except UnreadableError as error:
        return Malformed(reason=str(error))


def _writes(message: Message, kind: Kind, *, any_writer: bool) -> bool:
    """Whether the message's writer prints messages of this kind."""
    if message.tag is None:
        return any_writer
    *packages, name = message.module
    if name in kind.writers or (any_writer and name not in _REQUESTS):
        return True
    return kind.writers is _STATISTICS and packages[-1:] == ["metrics"]  # a new file beside the known ones
