"""How a target and a draft model are quantised: what the command that starts vLLM and the models' names say.

A name such as
``Llama-3.1-8B-AWQ-INT4`` only suggests it, so a model without such a word may be quantised all the same.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from specdec_exporter.predictor.speculativeconfig import deployment_of

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
    given = deployment_of(command)
    return Quantization(
        _words(given.quantization, model, given.model), _words(given.draft_quantization, given.draft_model)
    )


def without_precision(model: str) -> str:
    """Return a model's name in lower case without words for its quantisation or type, and without punctuation."""
    return " ".join(re.findall(r"[a-z0-9]+(?:\.[a-z0-9]+)*", _PRECISION.sub(" ", model.casefold().replace("_", "-"))))


def _words(*texts: str | None) -> str | None:
    found = {word for text in texts if text for word in _QUANTIZED.findall(text.casefold())}
    return " ".join(sorted(found)) or None
