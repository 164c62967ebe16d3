"""How a target and a draft model are quantised: what the command that starts vLLM and the models' names say.

The flags and keys are vLLM's; ``--speculative-model-quantization`` is of releases before 0.9. A name such as
``Llama-3.1-8B-AWQ-INT4`` only suggests it, so a model without such a word may be quantised all the same.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from specdec_exporter.predictor.speculativeconfig import given_config, value_of

_FLAGS: Final = ("--quantization", "-q")
_DRAFT_FLAGS: Final = ("--speculative-model-quantization", "--speculative_model_quantization")
_MODEL_FLAGS: Final = ("--model", "serve")
_WORDS: Final = (
    r"awq|gptq|gguf|bnb|bitsandbytes|autoround|marlin|hqq|exl2|quantized|quantised|q[2-8]_[0-9a-z_]+"
    r"|w\d+a\d+|(?:nv|mx)?fp[48]|int[2348]|nf4|[2348]-?bits?"
)
_DTYPES: Final = r"bf16|fp16|fp32|bfloat16|float16|float32|half"
_QUANTIZED: Final = re.compile(rf"(?<![a-z0-9])(?:{_WORDS})(?![a-z0-9])")
_PRECISION: Final = re.compile(rf"(?<![a-z0-9])(?:{_WORDS}|{_DTYPES})(?![a-z0-9])")


class Quantization(NamedTuple):
    """Words such as ``awq int4``, in lower case and in order; ``None``: none is named, which may mean not quantised."""

    target: str | None
    draft: str | None


def quantization_of(command: str | None, model: str | None) -> Quantization:
    """Return what ``command`` and the target's name ``model`` say."""
    config = given_config(command)
    draft = (config.get("quantization"), config.get("model"), value_of(command, _DRAFT_FLAGS))
    return Quantization(_words(value_of(command, _FLAGS), model, value_of(command, _MODEL_FLAGS)), _words(*draft))


def without_precision(model: str) -> str:
    """Return a model's name in lower case without words for its quantisation or type, and without punctuation."""
    return " ".join(re.findall(r"[a-z0-9]+(?:\.[a-z0-9]+)*", _PRECISION.sub(" ", model.casefold().replace("_", "-"))))


def _words(*texts: object) -> str | None:
    found = {word for text in texts if isinstance(text, str) for word in _QUANTIZED.findall(text.casefold())}
    return " ".join(sorted(found)) or None
