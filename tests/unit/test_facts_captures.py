"""Servers that started well have no finding but those that are true of them, by the arguments in their own logs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specdec_exporter.predictor.facts.deployment import Deployment, of_arguments
from specdec_exporter.predictor.facts.known import facts_of
from specdec_exporter.predictor.versions import parse_release

FIXTURES = Path(__file__).parents[1] / "fixtures"
STARTS = sorted([*FIXTURES.glob("captures/*/server.log"), *FIXTURES.glob("starts/*.log")])
WITHOUT_ASYNC = {"ngram_without_async_scheduling"}
TRUE_OF = {
    "0.25.1-ngram-k5": WITHOUT_ASYNC,
    "0.32.0-ngram-k5": WITHOUT_ASYNC,
    "0.32.0-synthetic": {"synthetic_acceptance"},
}
# Two commands that a guide measured on one GPU with 0.19.1, and what is true of them.
PUBLISHED: list[tuple[dict[str, Any], set[str]]] = [
    ({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}, WITHOUT_ASYNC),
    ({"method": "eagle3", "model": "/models/head", "num_speculative_tokens": 3}, set()),
]


def name_of(log: Path) -> str:
    return log.parent.name if log.stem == "server" else log.stem


def started(log: Path) -> Deployment | None:
    """What a server was started with, by the first such line of its log."""
    content = log.read_text(encoding="utf-8", errors="replace")
    arguments = re.search(r"^[^{]* non-default args: (\{.*\})$", content, re.MULTILINE)
    if arguments is None:
        return None
    return msgspec.structs.replace(of_arguments(ast.literal_eval(arguments[1])), release=parse_release(name_of(log)))


@pytest.mark.parametrize("log", STARTS, ids=name_of)
def test_a_healthy_start_has_only_true_findings(log: Path) -> None:
    if (deployment := started(log)) is None:
        return
    codes = {fact.code for fact in facts_of(deployment) if fact.level != "note"}
    assert codes == TRUE_OF.get(name_of(log), set())


def test_the_captures_have_healthy_starts() -> None:
    assert len([log for log in STARTS if started(log)]) >= 10


@pytest.mark.parametrize(("config", "known"), PUBLISHED)
def test_a_published_command_has_only_true_findings(config: dict[str, Any], known: set[str]) -> None:
    given = of_arguments({"model": "/models/target", "max_num_seqs": 8, "speculative_config": config})
    deployment = msgspec.structs.replace(given, release=(0, 19, 1), architecture="LlamaForCausalLM")
    assert {fact.code for fact in facts_of(deployment) if fact.level != "note"} == known
