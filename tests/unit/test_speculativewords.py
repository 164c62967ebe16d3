"""What a release does not take about speculation is told before the start, with the word that was probably meant."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from specdec_exporter.predictor.facts.deployment import Deployment, of_arguments
from specdec_exporter.predictor.facts.known import pitfalls_of
from specdec_exporter.predictor.facts.speculativewords import misfits
from specdec_exporter.predictor.servercommand import read_command
from specdec_exporter.predictor.versions import parse_release
from support.builders import CAPTURES


def deployment(release: str | None, **config: Any) -> Deployment:
    parsed = parse_release(release) if release else None
    return msgspec.structs.replace(of_arguments({"speculative_config": config}), release=parsed)


def told(given: Deployment) -> list[tuple[bool, str]]:
    return [(refused, f"{said} {action}") for said, action, refused in misfits(given)]


# Releases, a key or method, whether it is refused (None: taken), and what is said. The sources of vLLM:
# config/speculative.py 0.33.0:74-82 has no medusa, 0.32.0:75-76 has; config/utils.py 0.16.0:55 forbids other keys.
KEYS = [
    ("0.33.0", "num_speculative_token", True, "Did you mean num_speculative_tokens?"),
    (None, "num_speculative_token", True, "unknown up to vLLM 0.33.0"),
    ("0.16.0", "num_speculative_token", True, "0.16.0 refuses to start"),
    ("0.15.1", "num_speculative_token", False, "0.15.1 ignores it without a word"),
    ("0.9.1", "num_speculative_token", False, "ignores it"),
    ("0.9.0", "num_speculative_token", True, "refuses"),
    ("0.34.0", "num_speculative_token", False, "may refuse it"),
    ("0.33.0", "disable_by_batch_size", True, "belongs to releases 0.8.2 to 0.16.0"),
    ("0.16.0", "disable_by_batch_size", None, ""),
    (None, "disable_by_batch_size", None, ""),
    ("0.15.1", "parallel_drafting", False, "since 0.16.0"),
    ("0.23.0", "num_speculative_tokens_per_batch_size", True, "since 0.24.0"),
    ("0.24.0", "num_speculative_tokens_per_batch_size", None, ""),
    ("0.32.0", "fly_window_size", True, "since 0.33.0"),
    ("0.34.0", "fly_window_size", None, ""),
    ("0.26.0", "num-speculative-tokens", None, ""),
    ("0.25.1", "num-speculative-tokens", True, "Did you mean num_speculative_tokens?"),
]
METHODS = [
    ("0.33.0", "ngrm", True, "Did you mean ngram?"),
    (None, "ngrm", True, "Did you mean ngram?"),
    ("0.9.0", "ngrm", None, ""),
    ("0.33.0", "medusa", True, "belongs to releases 0.8.5 to 0.32.0: vLLM 0.33.0 refuses to start with it."),
    ("0.33.0", "mlp_speculator", True, "0.8.5 to 0.32.0"),
    ("0.32.0", "medusa", None, ""),
    (None, "medusa", None, ""),
    ("0.19.1", "dflash", True, "since 0.20.0"),
    ("0.24.0", "dspark", True, "since 0.25.0"),
    ("0.34.0", "new_method", False, "may refuse it"),
]


@pytest.mark.parametrize(
    ("release", "key", "word", "refused", "said"),
    [(release, word, word, refused, said) for release, word, refused, said in KEYS]
    + [(release, "method", word, refused, said) for release, word, refused, said in METHODS],
)
def test_what_a_release_does_not_take_is_told(
    release: str | None, key: str, word: str, refused: bool | None, said: str
) -> None:
    found = told(deployment(release, **{key: word}))
    if refused is None:
        assert found == []
        return
    ((is_refused, text),) = found
    assert is_refused is refused
    assert word in text
    assert said in text


@pytest.mark.parametrize(
    ("release", "arguments", "said"),
    [
        ("0.21.0", "--spec-method ngram --spec-tokens 2", ["--spec-method", "--spec-tokens"]),
        ("0.22.0", "--spec-method ngram --spec-tokens 2", []),
        (
            "0.8.3",
            "--speculative-model d --num-speculative-tokens 3",
            ["--num-speculative-tokens", "--speculative-model"],
        ),
        ("0.8.2", "--speculative-model d --num-speculative-tokens 3", []),
        ("0.28.0", "--per-request-spec-decode-metrics summary", ["--per-request-spec-decode-metrics"]),
    ],
)
def test_flags_of_other_releases_are_told(release: str, arguments: str, said: list[str]) -> None:
    given = msgspec.structs.replace(
        read_command(f"vllm serve m {arguments}").deployment(), release=parse_release(release)
    )
    found = told(given)
    assert len(found) == len(said)
    assert all(flag in text for flag, (_, text) in zip(said, found, strict=True))


def test_a_running_server_tells_only_what_it_ignores() -> None:
    (found,) = pitfalls_of(deployment("0.15.1", method="eagle", model="d", num_speculative_token=3))
    assert (found.code, found.releases, found.costly) == ("unknown_key_ignored", "0.9.1 to 0.15.1", True)
    assert "unknown_key_ignored" not in {each.code for each in pitfalls_of(deployment("0.33.0", x=3))}


def test_servers_that_started_take_all_that_they_were_given() -> None:
    commands = [path for path in CAPTURES.glob("*/command.txt") if "-driven" not in path.parent.name]
    given = [
        msgspec.structs.replace(read_command(path.read_text()).deployment(), release=parse_release(path.parent.name))
        for path in commands
    ]
    assert sum(bool(each.speculative_config) for each in given) > 10
    assert [told(each) for each in given if told(each)] == []
