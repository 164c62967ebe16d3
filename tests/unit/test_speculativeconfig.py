"""vLLM's ``--speculative-config``: what a command says, and what is written for another k."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_exporter.predictor.speculativeconfig import (
    Range,
    Server,
    config_of,
    given_config,
    lacks_draft_model,
    one_k_because,
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


def test_a_command_says_more_than_method_and_k() -> None:
    command = f"vllm serve m -sc '{JSON}'"
    assert config_of(Server(command, None, 5)) == EAGLE
    assert config_of(Server(None, "mtp", 2)) == {"method": "mtp", "num_speculative_tokens": 2}
    assert [config_of(Server(None, *known)) for known in ((None, 2), ("mtp", None))] == [None, None]


def test_a_k_by_batch_size_is_written_as_vllm_reads_it() -> None:
    command = f"vllm serve m -sc '{JSON[:-1]},\"num_speculative_tokens_per_batch_size\":[[1,4,2]]}}'"
    found = config_of(Server(command, "eagle3", 3), [Range(1, 8, 3), Range(9, 32, 1), Range(33, 64, 0)])
    # Another one does not stay.
    assert found == EAGLE | {"num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 32, 1], [33, 64, 0]]}


@pytest.mark.parametrize(
    ("more", "version", "why"),
    [
        ("", "0.24.0", None),
        ("", "0.23.0", "vLLM 0.23.0 takes one k"),
        ("", None, "vLLM (release unknown) takes one k"),
        ("--data-parallel-size 1", "0.32.0", None),
        ("--data-parallel-size", "0.32.0", None),
        ("--data-parallel-size 2", "0.32.0", "vLLM 0.32.0 with data parallel engines takes one k"),
        ("-dp=4", "0.32.0", "vLLM 0.32.0 with data parallel engines takes one k"),
    ],
)
def test_releases_and_engines_differ_in_what_they_take(more: str, version: str | None, why: str | None) -> None:
    command = f"vllm serve m -sc '{JSON}' {more}"
    servers = [Server(command, "eagle3", 3), Server(command, "eagle3", 1)]
    assert one_k_because(servers, version) == why


def test_only_k_may_differ_by_load() -> None:
    head = f"vllm serve m -sc '{JSON}'"
    other = head.replace("/models/head", "/models/other")
    for servers in ([(head, 3), (other, 1)], [(head, 3), (head, None)]):
        assert one_k_because([Server(command, "eagle3", k) for command, k in servers], "0.32.0") == "not in k alone"


def test_a_draft_model_that_nobody_names_is_missing() -> None:
    assert lacks_draft_model({"method": "eagle3"})
    assert not lacks_draft_model(EAGLE)
    assert not lacks_draft_model({"method": "ngram"})
