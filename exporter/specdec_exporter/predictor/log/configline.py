"""Messages that print Python objects: arguments, the engine's configuration, a request's sampling parameters. Pure.

The engine-init line has the method, draft model and number of speculative tokens that the engine uses::

    Initializing a V1 LLM engine (v0.32.0) with config: model='m', speculative_config=SpeculativeConfig(...), ...

The arguments' line has every key of ``--speculative-config``, as the operator wrote it::

    non-default args: {'model': 'm', 'speculative_config': {'method': 'eagle3', 'num_speculative_tokens': 3}}
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from specdec_exporter import bounds
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.facts.deployment import KEPT_ARGUMENTS, KEPT_KEYS
from specdec_exporter.predictor.log.events import EngineConfig, RequestParams, ServerArguments
from specdec_exporter.predictor.log.message import Message, UnreadableError
from specdec_exporter.predictor.versions import NOT_SPECULATIVE, PROMPT_LOOKUP

_STRING: Final = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
# An unclosed string reaches to the end, which keeps the search linear.
_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[(\[{]|[)\]}]|,|[^'"()\[\]{},]+""", re.DOTALL
)
_NAME: Final = re.compile(r"\s*([A-Za-z_]\w*)=", re.ASCII)
_KEY: Final = re.compile(r"\s*'([A-Za-z_]\w*)':", re.ASCII)
_INTEGER: Final = re.compile(r"\d{1,9}", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,20})?(?:e-?\d{1,3})?", re.ASCII)

_ENGINE_INIT: Final = re.compile(
    # 0.6.6 prints no generation and runs V0; 0.7.3-0.10.2 print V0 or V1, later releases V1
    r"Initializing an? (?:(?P<generation>V\d) )?LLM engine \(v(?P<version>[^()\s]{1,100})\) with config:",
    re.ASCII,
)
# Up to 0.10.0, the prompt precedes the parameters, as a Python string.
_REQUEST: Final = re.compile(
    rf"Received request (?P<id>\S{{1,200}}): (?:prompt: (?:{_STRING}|None), )?params: SamplingParams\("
)
_ANY_REQUEST: Final = re.compile(r"Received request (?P<id>\S{1,200}): ")
_PARAMS: Final = "params: SamplingParams("

# Field of the engine-init line -> the argument that sets it. The second name of each is that of older releases.
_SETTINGS: Final[Mapping[str, str]] = {
    "dtype": "dtype",
    "max_seq_len": "max_model_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "kv_cache_dtype": "kv_cache_dtype",
    "structured_outputs_config": "structured_outputs_config",
    "decoding_config": "structured_outputs_config",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "chunked_prefill_enabled": "enable_chunked_prefill",
}
_ENUMERATED: Final = re.compile(r"<\w{1,80}\.(\w{1,80}): .{0,200}>", re.ASCII)  # <Kind.NAME: 'value'>
_OPENING: Final = re.compile(r"\{|[A-Za-z_]\w{0,80}\((?!\))", re.ASCII)  # of a dictionary or an object with fields
_MOST_NESTED: Final = 3
SERVER_ARGUMENTS: Final = "non-default args: {"


def split_arguments(text: str, start: int = 0, *, name: re.Pattern[str] = _NAME) -> tuple[dict[str, str], bool]:
    """``"a=1, b=F(x='y')), c=..."`` -> ``({"a": "1", "b": "F(x='y')"}, True)``: the text of each named value.

    Reads from ``start`` to the bracket that closes the list, or to the end of the text. Ignores brackets and commas
    inside quotes or nested values. The flag says whether the list was closed. If not, a last value without a comma is
    left out, because it may be cut. ``name`` matches a name and the sign after it; by :data:`_KEY`, the items of a
    printed dictionary are read as well.
    """
    values: dict[str, str] = {}
    depth = 0
    value_start = start
    for token in _TOKEN.finditer(text, start):
        kind = token[0]
        if kind in "([{":
            depth += 1
        elif (closing := kind in ")]}" and depth == 0) or (kind == "," and depth == 0):
            argument = text[value_start : token.start()]
            if (named := name.match(argument)) is not None:
                values.setdefault(named[1], argument[named.end() :].strip())
            if closing:
                return values, True
            value_start = token.end()
        elif kind in ")]}":
            depth -= 1
    return values, False


def read_engine_config(message: Message) -> EngineConfig | None:
    """Read the engine-init message. Raises UnreadableError if it breaks off too early."""
    if (init := _ENGINE_INIT.match(message.text)) is None:
        return None
    fields, _ = split_arguments(message.text, init.end())
    if (speculative := fields.get("speculative_config")) is None:
        raise UnreadableError("the engine-init line breaks off before its speculative_config")
    method, draft_model, tokens = _speculative(speculative)
    return EngineConfig(
        speculative=speculative != "None" and method not in NOT_SPECULATIVE,
        vllm_version=plain(init["version"]),
        engine_generation=(init["generation"] or "V0").lower(),
        model=_unquoted(fields.get("model")),
        served_model_name=_unquoted(fields.get("served_model_name")),
        method=method,
        draft_model=draft_model,
        num_speculative_tokens=tokens,
        settings=_kept({_SETTINGS[name]: text for name, text in fields.items() if name in _SETTINGS}),
        **message.place,
    )


def _speculative(text: str) -> tuple[str | None, str | None, int | None]:
    """Return method, draft model and number of tokens of a printed ``SpeculativeConfig(...)``."""
    if not text.startswith("SpeculativeConfig("):
        return None, None, None
    fields, _ = split_arguments(text, len("SpeculativeConfig("))
    method = _unquoted(fields.get("method"))
    # Up to 0.7.3 the key is "draft_model", there is no method, and "[ngram]" is the method.
    draft_model = _unquoted(fields.get("model", fields.get("draft_model")))
    if method is None and draft_model in PROMPT_LOOKUP:
        method, draft_model = "ngram", None
    return method, draft_model, _integer(fields.get("num_spec_tokens"))


def read_server_arguments(message: Message) -> ServerArguments:
    """Read the arguments' message, which begins with :data:`SERVER_ARGUMENTS`.

    Raises UnreadableError if it breaks off.
    """
    fields, closed = split_arguments(message.text, len(SERVER_ARGUMENTS), name=_KEY)
    if not closed:
        raise UnreadableError("the line of non-default args breaks off")
    return ServerArguments(arguments=_kept(fields), **message.place)


def _kept(printed: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the arguments that are kept, and ``None`` for all others: these may be secrets."""
    kept: dict[str, Any] = {}
    for name, text in list(printed.items())[: bounds.ARGUMENTS]:
        value = _value(text) if name in KEPT_ARGUMENTS else None
        if isinstance(value, dict) and (keys := KEPT_KEYS.get(name)) is not None:
            value = {key: each for key, each in value.items() if key in keys}
        kept[name] = value
    return kept


def _value(text: str, nested: int = 0) -> Any:
    """Return a printed number, boolean, text, dictionary or object with fields; of an enumeration, the name.

    ``None`` for all else: lists, what nests too deeply, and what is longer than :data:`bounds.LABEL_CHARACTERS`.
    """
    if text in ("True", "False"):
        return text == "True"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return _number(text)
    if (opening := _OPENING.match(text)) is not None:
        name = _KEY if text[0] == "{" else _NAME
        fields = split_arguments(text, opening.end(), name=name)[0] if nested < _MOST_NESTED else {}
        return {key: _value(each, nested + 1) for key, each in list(fields.items())[: bounds.ARGUMENTS]} or None
    if (enumerated := _ENUMERATED.fullmatch(text)) is not None:
        return enumerated[1]
    if len(text) > bounds.LABEL_CHARACTERS or text[:1] in ("[", "("):
        return None
    return _unquoted(text.removeprefix("torch."))


def _unquoted(value: str | None) -> str | None:
    """Return a printed string without its quotes; of a printed list, its first string. ``None`` for ``None``."""
    if value is None or value in {"None", ""}:
        return None
    if value[0] in "[(":
        first = re.match(_STRING, value[1:])
        return None if first is None else _unquoted(first[0])
    if value[0] in "'\"" and value[-1] == value[0] and len(value) > 1:
        value = re.sub(r"\\(['\"\\])", r"\1", value[1:-1])
    return plain(value)


def read_request_params(message: Message) -> RequestParams | None:
    """Read the sampling parameters of a ``Received request`` message, never its text.

    ``None`` for requests of other kinds (pooling, beam search), and where the list breaks off: a user can do that by
    line ends in the request's id.
    """
    text = message.text
    if (request := _REQUEST.match(text)) is not None:
        start = request.end()
    elif (request := _ANY_REQUEST.match(text)) is not None and (last := text.rfind(_PARAMS)) >= 0:
        start = last + len(_PARAMS)  # the parameters follow a prompt of an unknown shape
    else:
        return None
    fields, closed = split_arguments(text, start)
    if not closed:
        return None
    return RequestParams(
        request_id=plain(request["id"]),
        temperature=_number(fields.get("temperature")),
        top_p=_number(fields.get("top_p")),
        top_k=_integer(fields.get("top_k")),
        min_p=_number(fields.get("min_p")),
        max_tokens=_integer(fields.get("max_tokens")),
        n=_integer(fields.get("n")),
        **message.place,
    )


def _number(value: str | None) -> float | None:
    number = float(value) if value is not None and _NUMBER.fullmatch(value) else math.nan
    return number if math.isfinite(number) else None


def _integer(value: str | None) -> int | None:
    return int(value) if value is not None and _INTEGER.fullmatch(value.removeprefix("-")) else None
