"""Writes a :class:`vllm.language.Language` as two Llama checkpoints that say exactly what its tables say.

A token's embedding is a vector of +1 and -1. Attention and MLP weights are zero, so the last hidden state is that
vector (RMS norm leaves it alone), and the output row of a token is the embedding of the token before it. The logit of
the right successor is therefore the vector's length, :data:`HIDDEN_SIZE`, and every other is the dot product of two
different embeddings. All of these are small integers, exact in bfloat16: nothing is left to rounding, and the distance
between the right token and the next best is checked here.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from vllm.language import BEGIN, END, Language

HIDDEN_SIZE: Final = 128
_INTERMEDIATE_SIZE: Final = 64
_HEADS: Final = 2
_HEAD_SIZE: Final = 64

_ZERO, _ONE, _MINUS_ONE = (struct.pack("<H", bits) for bits in (0x0000, 0x3F80, 0xBF80))  # bfloat16

# A tensor of a safetensors file: its shape, and its little-endian bfloat16 values.
_Tensor = tuple[tuple[int, ...], bytes]


def write_checkpoints(directory: Path, language: Language, *, target_layers: int = 2) -> None:
    """Write ``target/`` and ``draft/`` below ``directory``, which must exist: about 1 MB, in under a second.

    The draft has one layer. Idle layers take as long as any, 0.2 MB each, so ``target_layers`` is how many times slower
    than its draft the target is.
    """
    signs = [_signs(token) for token in range(language.vocabulary_size)]
    closest = max(HIDDEN_SIZE - 2 * (one ^ other).bit_count() for one, other in combinations(signs, 2))
    if closest > HIDDEN_SIZE * 3 // 4:
        msg = f"two embeddings are too alike: their dot product is {closest} of {HIDDEN_SIZE}"
        raise ValueError(msg)
    embeddings = [_bfloat16(bits) for bits in signs]
    _write_checkpoint(directory / "target", embeddings, language.target, layers=target_layers)
    _write_checkpoint(directory / "draft", embeddings, language.draft, layers=1)


def _write_checkpoint(directory: Path, embeddings: Sequence[bytes], successors: Sequence[int], *, layers: int) -> None:
    directory.mkdir()
    vocabulary_size = len(embeddings)
    rows = [b""] * vocabulary_size
    for token, successor in enumerate(successors):
        rows[successor] = embeddings[token]
    tensors = {
        "model.embed_tokens.weight": ((vocabulary_size, HIDDEN_SIZE), b"".join(embeddings)),
        "model.norm.weight": _ones(HIDDEN_SIZE),
        "lm_head.weight": ((vocabulary_size, HIDDEN_SIZE), b"".join(rows)),
    }
    for layer in range(layers):
        tensors |= {f"model.layers.{layer}.{name}.weight": tensor for name, tensor in _idle_layer().items()}
    (directory / "model.safetensors").write_bytes(_safetensors(tensors))
    for name, content in {
        "config.json": _config(vocabulary_size, layers),
        "tokenizer.json": _tokenizer(vocabulary_size),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<begin>",
            "eos_token": "<end>",
            "unk_token": "<unknown>",
        },
    }.items():
        (directory / name).write_text(json.dumps(content))


def _signs(token: int) -> int:
    """The signs of a token's embedding as bits: by a hash, so that they are the same on every machine."""
    return int.from_bytes(hashlib.blake2b(str(token).encode(), digest_size=HIDDEN_SIZE // 8).digest())


def _bfloat16(signs: int) -> bytes:
    return b"".join(_MINUS_ONE if signs >> bit & 1 else _ONE for bit in range(HIDDEN_SIZE))


def _ones(length: int) -> _Tensor:
    return (length,), _ONE * length


def _zeros(rows: int, columns: int) -> _Tensor:
    return (rows, columns), _ZERO * (rows * columns)


def _idle_layer() -> dict[str, _Tensor]:
    """A decoder layer that adds nothing to the residual stream."""
    width = _HEADS * _HEAD_SIZE
    return {
        "input_layernorm": _ones(HIDDEN_SIZE),
        "post_attention_layernorm": _ones(HIDDEN_SIZE),
        "self_attn.q_proj": _zeros(width, HIDDEN_SIZE),
        "self_attn.k_proj": _zeros(width, HIDDEN_SIZE),
        "self_attn.v_proj": _zeros(width, HIDDEN_SIZE),
        "self_attn.o_proj": _zeros(HIDDEN_SIZE, width),
        "mlp.gate_proj": _zeros(_INTERMEDIATE_SIZE, HIDDEN_SIZE),
        "mlp.up_proj": _zeros(_INTERMEDIATE_SIZE, HIDDEN_SIZE),
        "mlp.down_proj": _zeros(HIDDEN_SIZE, _INTERMEDIATE_SIZE),
    }


def _safetensors(tensors: Mapping[str, _Tensor]) -> bytes:
    """The safetensors format: the header's length in 8 bytes, a JSON header, the values one after the other."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(values)]}
        offset += len(values)
    encoded = json.dumps(header).encode()
    return b"".join((struct.pack("<Q", len(encoded)), encoded, *(values for _, values in tensors.values())))


def _config(vocabulary_size: int, layers: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": _INTERMEDIATE_SIZE,
        "num_hidden_layers": layers,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "head_dim": _HEAD_SIZE,
        "vocab_size": vocabulary_size,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
    }


def _tokenizer(vocabulary_size: int) -> dict[str, object]:
    """A word-level tokenizer in which token 17 is the word ``w17``; the tests send token ids and never use it."""
    special = {"<begin>": BEGIN, "<end>": END, "<unknown>": 2}
    words = {f"w{token}": token for token in range(len(special), vocabulary_size)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": special | words, "unk_token": "<unknown>"},
    }
