"""Sizes that a model's name tells: always a guess. Pure."""

from __future__ import annotations

import re
from typing import Final

_SIZE: Final = re.compile(
    r"(?<![A-Za-z0-9.])(?:(\d{1,2})x)?(\d{1,4}(?:\.\d{1,3})?)([BM])(?![A-Za-z0-9])", re.IGNORECASE
)
_UNITS: Final = {"b": 1e9, "m": 1e6}
# Bytes of a parameter, by the words for its format; two in most checkpoints.
_FORMATS: Final = (
    (re.compile(r"fp4|int4|w4a|awq|gptq|4bit|4-bit|bitsandbytes", re.IGNORECASE), 0.5),
    (re.compile(r"fp8|int8|w8a|8bit|8-bit", re.IGNORECASE), 1.0),
    (re.compile(r"float32|fp32", re.IGNORECASE), 4.0),
)
_USUAL_BYTES: Final = 2.0


def parameters_of(name: str) -> float | None:
    """Return the parameters that a name tells: ``Llama-3.1-8B`` -> 8e9, ``Mixtral-8x7B`` -> 56e9 (too many).

    Of several sizes the first counts: of ``Qwen3-30B-A3B`` all parameters, not those that a token uses.
    """
    if (size := _SIZE.search(name)) is None:
        return None
    experts, number, unit = size.groups()
    return int(experts or 1) * float(number) * _UNITS[unit.lower()] or None


def bytes_per_parameter(*words: str | None) -> float:
    """Return the bytes of a parameter by the first of ``words`` (quantisation, name, dtype) that tells them."""
    for word in filter(None, words):
        for pattern, size in _FORMATS:
            if pattern.search(word):
                return size
    return _USUAL_BYTES
