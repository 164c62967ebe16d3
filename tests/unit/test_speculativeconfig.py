"""vLLM's ``--speculative-config``: what a command says, and what is written for another k."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_exporter.predictor.speculativeconfig import (
    config_for,
    given_config,
    has_schedule,
    is_data_parallel,
    lacks_draft_model,
)

EAGLE = {"method": "eagle3", "model": "/models/head", "num_speculative_tokens": 3}
JSON = '{"method":"eagle3","model":"/models/head","num_speculative_tokens":3}'


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (f"vllm serve m --speculative-config '{JSON}' --port 8080", EAGLE),
        (f"vllm serve m -sc '{JSON}'", EAGLE),
        (f"vllm serve m --speculative_config '{{}}' --speculative_config '{JSON}'", EAGLE),
        ("vllm serve m", {}),
        ("vllm serve m --speculative-config", {}),
        ("vllm serve m --speculative-config '{not json'", {}),
        ("vllm serve 'an open quotation", {}),
        (None, {}),
    ],
)
def test_it_is_read_out_of_a_command(command: str | None, found: dict[str, Any]) -> None:
    assert given_config(command) == found


@pytest.mark.parametrize(
    ("command", "parallel"),
    [
        ("vllm serve m --data-parallel-size 2", True),
        ("vllm serve m -dp=4", True),
        ("vllm serve m --data-parallel-size 1", False),
        ("vllm serve m --data-parallel-size", False),
        ("vllm serve m", False),
        (None, False),
    ],
)
def test_data_parallel_engines_are_known_by_the_command(command: str | None, parallel: bool) -> None:
    assert is_data_parallel(command) is parallel


def test_another_k_keeps_the_other_keys() -> None:
    ngram = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
    assert config_for(ngram, "ngram", 2) == {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 4}
    assert config_for({}, None, 2) is None
    assert config_for({"method": "mtp"}, None, 2) == {"method": "mtp", "num_speculative_tokens": 2}


def test_a_k_by_batch_size_is_written_as_vllm_reads_it() -> None:
    found = config_for(EAGLE, "eagle3", 3, schedule=[(1, 8, 3), (9, 32, 1), (33, 64, 0)])
    assert found == EAGLE | {"num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 32, 1], [33, 64, 0]]}
    # A configuration that had another one does not keep it.
    assert config_for(found, "eagle3", 3) == EAGLE


def test_releases_differ_in_what_they_take() -> None:
    assert [has_schedule(release, data_parallel=False) for release in ((0, 23, 0), (0, 24, 0), None)] == [
        False,
        True,
        False,
    ]
    assert not has_schedule((0, 32, 0), data_parallel=True)


def test_a_draft_model_that_nobody_names_is_missing() -> None:
    assert lacks_draft_model({"method": "eagle3"})
    assert not lacks_draft_model(EAGLE)
    assert not lacks_draft_model({"method": "ngram"})
