"""Writes a :class:`vllm.language.Language` as two Llama checkpoints that say exactly what its tables say.

A token's embedding is a vector of +1 and -1. Attention and MLP weights are zero, so the last hidden state is that
vector (RMS norm leaves it alone), and the output row of a token is the embedding of the token before it. The logit of
the right successor is therefore the hidden size, and every other is the dot product of two
different embeddings. All of these are small integers, exact in bfloat16: nothing is left to rounding, and the distance
between the right token and the next best is checked here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from vllm.language import BEGIN, END, Language

_HEAD_SIZE: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Width:
    """How wide the layers of target and draft are; ``hidden`` is a multiple of 64."""

    hidden: int
    intermediate: int

    @property
    def heads(self) -> int:
        """Each is 64 wide."""
        return self.hidden // _HEAD_SIZE


NARROW: Final = Width(hidden=128, intermediate=64)  # 0.2 MB a layer: a start takes long enough
WIDE: Final = Width(hidden=1024, intermediate=4096)  # 34 MB a layer: on a CPU, reading it takes some 5 ms

_ZERO, _ONE, _MINUS_ONE = (struct.pack("<H", bits) for bits in (0x0000, 0x3F80, 0xBF80))  # bfloat16

# A tensor of a safetensors file: its shape, and its little-endian bfloat16 values.
_Tensor = tuple[tuple[int, ...], bytes]


def write_checkpoints(directory: Path, language: Language, *, target_layers: int = 2, width: Width = NARROW) -> None:
    """Write ``target/`` and ``draft/`` below ``directory``, which must exist: about 1 MB if narrow, in under a second.

    The draft has one layer. Idle layers take as long as any, so ``target_layers`` is how many times slower than its
    draft the target is.
    """
    size = width.hidden
    signs = [_signs(token, size) for token in range(language.vocabulary_size)]
    closest = max(size - 2 * (one ^ other).bit_count() for one, other in combinations(signs, 2))
    if closest > size * 3 // 4:
        msg = f"two embeddings are too alike: their dot product is {closest} of {size}"
        raise ValueError(msg)
    embeddings = [_bfloat16(bits, size) for bits in signs]
    _write_checkpoint(directory / "target", embeddings, language.target, layers=target_layers, width=width)
    _write_checkpoint(directory / "draft", embeddings, language.draft, layers=1, width=width)


def _write_checkpoint(
    directory: Path, embeddings: Sequence[bytes], successors: Sequence[int], *, layers: int, width: Width
) -> None:
    directory.mkdir()
    vocabulary_size = len(embeddings)
    rows = [b""] * vocabulary_size
    for token, successor in enumerate(successors):
        rows[successor] = embeddings[token]
    tensors = {
        "model.embed_tokens.weight": ((vocabulary_size, width.hidden), b"".join(embeddings)),
        "model.norm.weight": _ones(width.hidden),
        "lm_head.weight": ((vocabulary_size, width.hidden), b"".join(rows)),
    }
    for layer in range(layers):
        tensors |= {f"model.layers.{layer}.{name}.weight": tensor for name, tensor in _idle_layer(width).items()}
    (directory / "model.safetensors").write_bytes(_safetensors(tensors))
    for name, content in {
        "config.json": _config(vocabulary_size, layers, width),
        "tokenizer.json": _tokenizer(vocabulary_size),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<begin>",
            "eos_token": "<end>",
            "unk_token": "<unknown>",
        },
    }.items():
        (directory / name).write_text(json.dumps(content))


def _signs(token: int, size: int) -> int:
    """The signs of a token's embedding as bits: by a hash, so that they are the same on every machine."""
    return int.from_bytes(hashlib.shake_256(str(token).encode()).digest(size // 8))


def _bfloat16(signs: int, size: int) -> bytes:
    return b"".join(_MINUS_ONE if signs >> bit & 1 else _ONE for bit in range(size))


def _ones(length: int) -> _Tensor:
    return (length,), _ONE * length


def _zeros(rows: int, columns: int) -> _Tensor:
    return (rows, columns), _ZERO * (rows * columns)


def _idle_layer(width: Width) -> dict[str, _Tensor]:
    """A decoder layer that adds nothing to the residual stream."""
    hidden, intermediate = width.hidden, width.intermediate
    attention, up, down = _zeros(hidden, hidden), _zeros(intermediate, hidden), _zeros(hidden, intermediate)
    return {
        "input_layernorm": _ones(hidden),
        "post_attention_layernorm": _ones(hidden),
        "self_attn.q_proj": attention,
        "self_attn.k_proj": attention,
        "self_attn.v_proj": attention,
        "self_attn.o_proj": attention,
        "mlp.gate_proj": up,
        "mlp.up_proj": up,
        "mlp.down_proj": down,
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


def _config(vocabulary_size: int, layers: int, width: Width) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": width.hidden,
        "intermediate_size": width.intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": width.heads,
        "num_key_value_heads": width.heads,
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
