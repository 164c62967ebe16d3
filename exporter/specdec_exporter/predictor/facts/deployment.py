"""What is known of one deployment of vLLM: its release, its arguments, and what its log and metrics show. Pure.

Conditions of facts name these fields. ``None``: not known, or not given where vLLM has a default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from specdec_exporter.predictor.versions import LOSSY_REJECTION, NOT_SPECULATIVE, PROMPT_LOOKUP, SYNTHETIC, Release

# Part of the names of checkpoints that bring their own draft: vLLM then speculates without any argument (since 0.10.1).
_BRINGS_DRAFT: Final = "speculator"


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment. Arguments have vLLM's names; those of the draft begin with ``draft_``.

    ``arguments`` are the names of all arguments that were given; ``speculative_config`` has the values of its keys, ""
    for what is no number, boolean or text. ``method`` is as given or printed. ``engines``: number in metrics or log.
    ``drafting``: whether it drafted while it generated tokens; ``None`` if it generated none. ``log_windows``: number
    of spec-decode lines; ``None`` without a log. ``warnings``: their codes. ``adaptive_verification``: whether it
    verifies only part of each draft when it is busy, and counts all of it as drafted; false where
    ``speculative_config`` does not ask for it.
    """

    release: Release | None = None
    engine_generation: str | None = None  # "v0" or "v1"
    second_runner: bool | None = None  # model runner V2

    arguments: frozenset[str] = frozenset()
    model: str | None = None
    runner: str | None = None  # "generate", "pooling"...
    dtype: str | None = None
    quantization: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    enable_expert_parallel: bool | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    enable_lora: bool | None = None
    enforce_eager: bool | None = None
    seed: int | None = None
    kv_cache_dtype: str | None = None
    attention_backend: str | None = None
    structured_outputs_backend: str | None = None
    reasoning_parser: str | None = None
    enable_in_reasoning: bool | None = None  # structured outputs
    kv_connector: str | None = None
    kv_role: str | None = None  # "kv_producer" prefills, "kv_consumer" decodes, "kv_both"

    speculative: bool | None = None
    speculative_config: dict[str, str | bool | int | float] = {}
    method: str | None = None
    draft_model: str | None = None
    num_speculative_tokens: int | None = None
    draft_quantization: str | None = None
    rejection_sample_method: str | None = None
    adaptive_verification: bool | None = None

    engines: int = 1
    drafting: bool | None = None
    log_windows: int | None = None
    warnings: frozenset[str] = frozenset()

    @property
    def rejection_sampling(self) -> str | None:
        """The method of rejection sampling if it is synthetic or lossy; ``None`` for all others."""
        special = self.rejection_sample_method in {SYNTHETIC, *LOSSY_REJECTION}
        return self.rejection_sample_method if special else None


_TYPES: Final[Mapping[str, type]] = {
    field.name: kind
    for field in msgspec.structs.fields(Deployment)
    for kind in (str, bool, int, float)
    if field.type in (kind, kind | None)
}
_OBSERVED: Final = ("engine_generation", "second_runner", "speculative", "engines", "drafting", "log_windows")
# Field of Deployment -> where vLLM's arguments have it, if not under its own name; of several, the first that is given.
_ELSEWHERE: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    "model": [("model",), ("model_tag",)],
    "runner": [("runner",), ("task",)],
    "attention_backend": [("attention_backend",), ("attention_config", "backend")],
    "structured_outputs_backend": [("structured_outputs_config", "backend"), ("guided_decoding_backend",)],
    "reasoning_parser": [("reasoning_parser",), ("structured_outputs_config", "reasoning_parser")],
    "enable_in_reasoning": [("structured_outputs_config", "enable_in_reasoning")],
    "kv_connector": [("kv_transfer_config", "kv_connector")],
    "kv_role": [("kv_transfer_config", "kv_role")],
    "method": [("speculative_config", "method"), ("spec_method",)],
    "draft_model": [("speculative_config", "model"), ("speculative_model",), ("spec_model",)],
    "num_speculative_tokens": [
        ("speculative_config", "num_speculative_tokens"),
        ("num_speculative_tokens",),
        ("spec_tokens",),
    ],
    "draft_quantization": [("speculative_config", "quantization"), ("speculative_model_quantization",)],
    "rejection_sample_method": [("speculative_config", "rejection_sample_method")],
    "adaptive_verification": [("speculative_config", "enable_adaptive_verification")],
}
_ARGUMENTS: Final = {field: _ELSEWHERE.get(field, [(field,)]) for field in _TYPES if field not in _OBSERVED}
# Flags that vLLM merges into speculative_config (engine/arg_utils.py of 0.22.0 to 0.33.0) -> their keys there. It
# refuses both spellings of one key.
_SPECULATIVE_FLAGS: Final = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
SPECULATIVE_ARGUMENTS: Final = _SPECULATIVE_FLAGS.keys() | {"speculative_config"}
# The arguments whose values are kept. The values of all others may be secrets, so only their names are.
KEPT_ARGUMENTS: Final = frozenset(path[0] for paths in _ARGUMENTS.values() for path in paths)
# The arguments that facts speak of: of the last one, only its name.
KNOWN_ARGUMENTS: Final = KEPT_ARGUMENTS | {"disable_log_stats"}
# The keys that are kept of an argument that takes JSON. All of speculative_config are.
KEPT_KEYS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(path[1] for paths in _ARGUMENTS.values() for path in paths if len(path) > 1 and path[0] == name)
    for name in KEPT_ARGUMENTS - {"speculative_config"}
}


def of_arguments(arguments: Mapping[str, Any]) -> Deployment:
    """Return what arguments say of the deployment that they start.

    ``arguments``: by vLLM's names, with underscores; values are numbers, booleans, text, or mappings for arguments
    that take JSON. A value of another type than its field's is left out, as if it was not given.

    ``speculative`` is ``None`` where an argument about it has no value that could be read, and for a model whose name
    says that it may bring its own draft.
    """
    config = speculative_config_of(arguments)
    # Since 0.26.0, keys may have "-" for "_".
    merged = {**arguments, "speculative_config": {str(key).replace("-", "_"): config[key] for key in config}}
    found = {
        field: _value(field, value)
        for field, paths in _ARGUMENTS.items()
        if (value := next((each for path in paths if (each := _at(merged, path)) is not None), None)) is not None
    }
    keys = {str(key): _scalar(value) for key, value in config.items()}
    known = {field: value for field, value in found.items() if _fits(field, value)}
    if "method" not in known and known.get("draft_model") in PROMPT_LOOKUP:
        known["method"] = "ngram"
        del known["draft_model"]
    # vLLM's default. Only proposers that run a model have the switch: 0.32.0 and later ignore it with n-gram.
    if keys and ("enable_adaptive_verification" not in keys or known.get("method") in ("ngram", "ngram_gpu")):
        known["adaptive_verification"] = False
    return Deployment(
        arguments=frozenset(arguments),
        speculative_config=keys,
        speculative=_speculates(arguments, known, bool(keys) or "speculative_model" in arguments),
        **known,
    )


def _speculates(arguments: Mapping[str, Any], known: Mapping[str, Any], asked: bool) -> bool | None:
    if asked:
        return known.get("method") not in NOT_SPECULATIVE
    unread = any(name.startswith("spec") for name in arguments)
    return None if unread or _BRINGS_DRAFT in str(known.get("model")).lower() else False


def speculative_config_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the speculative configuration of arguments, with the flags that are short for its keys."""
    given = arguments.get("speculative_config")
    flags = {key: value for flag, key in _SPECULATIVE_FLAGS.items() if (value := arguments.get(flag)) is not None}
    return {**given, **flags} if isinstance(given, Mapping) else flags


def given_twice(arguments: Mapping[str, Any]) -> list[str]:
    """Return vLLM's own refusal for each key of the speculative configuration that a flag gives too."""
    given = arguments.get("speculative_config")
    return [
        f"--{flag.replace('_', '-')} and --speculative-config['{key}'] are mutually exclusive"
        for flag, key in _SPECULATIVE_FLAGS.items()
        if isinstance(given, Mapping) and key in given and arguments.get(flag) is not None
    ]


def lacks_drafter(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments ask for drafts of some length, and name neither a method nor a draft model."""
    config = speculative_config_of(arguments)
    is_read = isinstance(arguments.get("speculative_config"), Mapping) or "speculative_config" not in arguments
    return is_read and "num_speculative_tokens" in config and not config.keys() & {"method", "model"}


def _at(arguments: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = arguments
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _scalar(value: Any) -> str | bool | int | float:
    is_scalar = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_scalar else ""


_WHOLE: Final = re.compile(r"\d{1,9}", re.ASCII)
# Text and numbers that pydantic takes for a boolean: a key on its own, as in --speculative-config.key True, is text.
_BOOLEANS: Final[Mapping[str | int, bool]] = {
    **dict.fromkeys((1, "1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys((0, "0", "off", "f", "false", "n", "no"), False),
}


def _value(field: str, value: Any) -> Any:
    if _TYPES[field] is int and isinstance(value, str) and _WHOLE.fullmatch(value) is not None:
        return int(value)  # in JSON, which pydantic takes too
    if _TYPES[field] is not bool or not isinstance(value, str | int):
        return value
    return _BOOLEANS.get(value.lower() if isinstance(value, str) else value, value)


def _fits(field: str, value: Any) -> bool:
    """Whether a value has its field's type; a whole number is also a float."""
    kind = _TYPES[field]
    if isinstance(value, bool) or kind is bool:
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, kind)


# Argument -> the type of its value; a mapping for those that take JSON. Of each argument whose value is kept.
ARGUMENT_TYPES: Final[Mapping[str, type]] = {
    path[0]: _TYPES[field] if len(path) == 1 else dict for field, paths in _ARGUMENTS.items() for path in paths
}
