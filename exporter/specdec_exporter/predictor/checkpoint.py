"""A model's folder: what its ``config.json`` says, how large its weights are, and which vocabulary its tokenizer has.

No more is read than the heads of the weights. A file that is missing, too large or of another shape leaves its fields
unknown.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from specdec_exporter.bounds import CHECKPOINT_FILES, CONFIG_BYTES, TOKENIZER_BYTES
from specdec_exporter.errors import ConfigError
from specdec_exporter.formatting import plain

# By the names in config.json that vLLM reads (config/speculative.py of 0.32.0).
_PREDICTED: Final = ("n_predict", "num_nextn_predict_layers", "mtp_num_hidden_layers")
# Weights in whole numbers may be packed, several to one number.
_PACKED: Final = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})
_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".gguf")


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with a model. ``weight_bytes``: of its weights on disk; ``parameters``: not known of packed weights.

    ``vocabulary``: tokens that the model knows. ``vocabulary_digest`` is equal for tokenizers that give each token the
    same number.
    """

    path: str
    architecture: str | None = None
    quantization: str | None = None
    dtype: str | None = None
    vocabulary: int | None = None
    n_predict: int | None = None
    weight_bytes: int | None = None
    parameters: int | None = None
    vocabulary_digest: str | None = None


def read_checkpoint(path: str) -> Checkpoint:
    """Read a folder. Raises ConfigError if there is none, or it has neither a configuration nor weights."""
    folder = Path(path)
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  names, not paths
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(plain(f"{path}: cannot be read: {reason}")) from error
    config = _read_object(folder / "config.json")
    weights = _weights(folder, names)
    if not config and not weights:
        raise ConfigError(plain(f"{path}: expected a folder with config.json or weights of a model, found neither"))
    text = config.get("text_config")
    settings = {**(text if isinstance(text, dict) else {}), **config}
    quantization = settings.get("quantization_config")
    architectures = settings.get("architectures")
    return Checkpoint(
        path=path,
        architecture=_text(architectures[0]) if isinstance(architectures, list) and architectures else None,
        quantization=_text(quantization.get("quant_method")) if isinstance(quantization, dict) else None,
        dtype=_text(settings.get("torch_dtype")) or _text(settings.get("dtype")),
        vocabulary=_count(settings.get("vocab_size")),
        n_predict=next(filter(None, (_count(settings.get(name)) for name in _PREDICTED)), None),
        weight_bytes=sum(weights.values()) or _indexed_bytes(folder),
        parameters=_parameters(folder, weights),
        vocabulary_digest=_vocabulary_digest(folder / "tokenizer.json"),
    )


def _weights(folder: Path, names: list[str]) -> dict[str, int]:
    """Return the files with weights, of the first kind that is there, and their sizes."""
    for kind in _WEIGHTS:
        found = {name: size for name in names if name.endswith(kind) and (size := _size(folder / name))}
        if found:
            return dict(list(found.items())[:CHECKPOINT_FILES])
    return {}


def _indexed_bytes(folder: Path) -> int | None:
    """Return the size of weights that are not there, if their index is."""
    metadata = _read_object(folder / "model.safetensors.index.json").get("metadata")
    return _count(metadata.get("total_size")) if isinstance(metadata, dict) else None


def _parameters(folder: Path, weights: Mapping[str, int]) -> int | None:
    total = 0
    for name in weights:
        if not name.endswith(".safetensors") or (tensors := _header(folder / name)) is None:
            return None
        for key, tensor in tensors.items():
            if key == "__metadata__":
                continue
            shape = tensor.get("shape") if isinstance(tensor, dict) else None
            if not isinstance(shape, list) or tensor.get("dtype") in _PACKED:
                return None
            sizes = [_count(each) for each in shape]
            if None in sizes or len(sizes) > 8:
                return None
            total += math.prod(each for each in sizes if each is not None)
    return total or None


def _header(path: Path) -> dict[str, Any] | None:
    """Return the head of a safetensors file: its length in 8 bytes, then JSON."""
    content = _read(path, CONFIG_BYTES, only_head=True)
    if content is None or len(content) < 8:
        return None
    (length,) = struct.unpack_from("<Q", content)
    return _object(content[8 : 8 + length]) if length <= len(content) - 8 else None


def _vocabulary_digest(path: Path) -> str | None:
    content = _read(path, TOKENIZER_BYTES)
    try:
        vocabulary = msgspec.json.decode(content or b"", type=_Tokenizer).model.vocab
        found = msgspec.json.decode(vocabulary)
        if isinstance(found, list):  # Unigram: token and probability
            found = [each[0] for each in found]
        return (
            hashlib.blake2b(msgspec.json.encode(found, order="sorted"), digest_size=16).hexdigest() if found else None
        )
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


class _TokenizerModel(msgspec.Struct):
    vocab: msgspec.Raw = msgspec.Raw(b"{}")


class _Tokenizer(msgspec.Struct):
    model: _TokenizerModel


def _read_object(path: Path) -> dict[str, Any]:
    return _object(_read(path, CONFIG_BYTES) or b"") or {}


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read(path: Path, most: int, *, only_head: bool = False) -> bytes | None:
    """Return a regular file of at most ``most`` bytes, or its head; ``None`` if there is no such file."""
    if _size(path) is None:
        return None
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError:
        return None
    return content[:most] if only_head else content if len(content) <= most else None


def _size(path: Path) -> int | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _text(value: Any) -> str | None:
    return plain(value[:100]) if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
