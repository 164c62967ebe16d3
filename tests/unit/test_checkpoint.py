"""A model's folder: what it says of sizes, layers and tokens, without reading its weights."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.errors import ConfigError
from specdec_exporter.inspection.beforestart import tokenizers, with_sizes
from specdec_exporter.predictor.checkpoint import read_checkpoint
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.modelname import bytes_per_parameter, parameters_of


def write(folder: Path, **files: Any) -> Path:
    """Write files by their stems: ``config`` is config.json; ``weights`` are tensors of a safetensors file."""
    folder.mkdir(exist_ok=True)
    if (weights := files.pop("weights", None)) is not None:
        header = json.dumps(weights).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 100)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}
TENSORS = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
}


def test_a_folder_tells_what_its_model_is(tmp_path: Path) -> None:
    found = read_checkpoint(str(write(tmp_path / "m", config=CONFIG, weights=TENSORS)))
    assert (found.architecture, found.vocabulary, found.n_predict) == ("DeepseekV3ForCausalLM", 129280, 1)
    assert (found.quantization, found.dtype) == ("fp8", "bfloat16")
    assert found.parameters == 13
    assert found.weight_bytes == (tmp_path / "m" / "model.safetensors").stat().st_size


def test_an_index_tells_the_size_of_weights_that_are_elsewhere(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", config={"text_config": {"vocab_size": 7, "mtp_num_hidden_layers": 2}})
    (folder / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 123}}')
    found = read_checkpoint(str(folder))
    assert (found.weight_bytes, found.parameters, found.vocabulary, found.n_predict) == (123, None, 7, 2)


def test_packed_weights_do_not_tell_the_parameters(tmp_path: Path) -> None:
    packed = TENSORS | {"c": {"dtype": "I32", "shape": [2], "data_offsets": [26, 34]}}
    assert read_checkpoint(str(write(tmp_path / "m", config=CONFIG, weights=packed))).parameters is None


def test_a_folder_without_a_model_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a folder with config\.json or weights"):
        read_checkpoint(str(tmp_path))
    with pytest.raises(ConfigError, match="No such file"):
        read_checkpoint(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_checkpoint("a\0b")


def test_a_pipe_or_a_damaged_file_leaves_its_fields_unknown(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", config=CONFIG)
    os.mkfifo(folder / "tokenizer.json")
    (folder / "model.safetensors").write_bytes(b"\xff" * 20)
    found = read_checkpoint(str(folder))
    assert (found.vocabulary_digest, found.parameters, found.weight_bytes) == (None, None, 20)


@given(
    st.binary(max_size=60) | st.sampled_from([b"[" * 5000, b'{"architectures": 1, "vocab_size": -1}', b'{"model": {}}'])
)
def test_any_bytes_in_any_file_are_no_error_but_ours(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = write(tmp_path_factory.mktemp("m"), config=CONFIG)
    for name in ("tokenizer.json", "model.safetensors", "model.safetensors.index.json"):
        (folder / name).write_bytes(content)
    assert read_checkpoint(str(folder)).vocabulary == 129280
    (folder / "config.json").write_bytes(content)
    read_checkpoint(str(folder)) if content else None


def vocabulary(words: list[str]) -> dict[str, Any]:
    return {"version": "1.0", "model": {"type": "BPE", "vocab": {word: index for index, word in enumerate(words)}}}


def test_tokenizers_are_equal_if_their_tokens_have_equal_numbers(tmp_path: Path) -> None:
    same = vocabulary(["a", "b"])
    turned = {"model": {"vocab": dict(reversed(same["model"]["vocab"].items())), "merges": [1]}}
    unigram = {"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", -2.0]]}}
    folders = [
        read_checkpoint(str(write(tmp_path / str(index), config=CONFIG, tokenizer=each)))
        for index, each in enumerate((same, turned, vocabulary(["b", "a"]), unigram))
    ]
    target, turned_draft, other, _ = folders
    assert [finding.level for finding in tokenizers(target, turned_draft, "draft_model")] == ["PASS"]
    assert [finding.level for finding in tokenizers(target, other, "draft_model")] == ["WARN"]
    assert not list(tokenizers(target, other, "eagle3"))
    assert not list(tokenizers(target, None, "draft_model"))
    assert all(folder.vocabulary_digest for folder in folders)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8e9),
        ("Qwen2.5-0.5B", 0.5e9),
        ("hf://Qwen/Qwen3-30B-A3B", 30e9),
        ("mistralai/Mixtral-8x7B-v0.1", 56e9),
        ("SmolLM2-135M", 135e6),
        ("deepseek-ai/DeepSeek-V3", None),
        ("/mnt/models", None),
        ("gpt-4b1t", None),
        ("x-0B", None),
    ],
)
def test_a_name_tells_a_size(name: str, parameters: float | None) -> None:
    assert parameters_of(name) == parameters


def test_the_first_word_on_the_format_counts() -> None:
    assert [bytes_per_parameter(None, word) for word in ("Llama-8B-AWQ", "Llama-FP8", "float32", "Llama")] == [
        0.5,
        1,
        4,
        2,
    ]
    assert bytes_per_parameter("fp8", "Llama-AWQ") == 1


def sized(method: str, **given: Any) -> tuple[Deployment, frozenset[str]]:
    base = Deployment(method=method, tensor_parallel_size=2)
    none = dict.fromkeys(("target", "draft", "target_name", "draft_name", "gpu_bytes"))
    return with_sizes(base, **{**none, **given})


def test_what_a_folder_does_not_tell_is_guessed_from_the_name(tmp_path: Path) -> None:
    folder = read_checkpoint(str(write(tmp_path / "m", config=CONFIG, weights=TENSORS)))
    found, guessed = sized("draft_model", target=folder, draft_name="org/d-1B-FP8", gpu_bytes=10.0)
    assert (found.target_parameters, found.target_bytes) == (13, folder.weight_bytes)
    assert (found.draft_parameters, found.draft_bytes) == (1e9, 1e9)
    assert guessed == {"draft_parameters", "draft_bytes"}
    assert found.gpu_memory_bytes == 20
    assert (found.architecture, found.n_predict, found.quantization) == ("DeepseekV3ForCausalLM", 1, "fp8")


def test_the_size_of_a_head_is_not_guessed() -> None:
    found, guessed = sized("eagle3", target_name="m-8B", draft_name="EAGLE3-8B")
    assert (found.target_bytes, found.draft_bytes) == (16e9, None)
    assert guessed == {"target_parameters", "target_bytes"}
