"""``doctor``: arguments, log and metrics of a server, judged together.

After a deliberate change of what it prints: ``pytest tests/unit/test_doctor.py --update-golden`` and read the diff.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click import UsageError

from specdec_exporter.commands.doctor import doctor
from specdec_exporter.doctor.diagnosis import together
from specdec_exporter.doctor.reports import Given
from specdec_exporter.doctor.tokenizers import compare_tokenizers
from specdec_exporter.errors import ConfigError
from specdec_exporter.inspection.livecheck import read_log
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.versions import parse_release
from support import running
from support.builders import CAPTURES, FIXTURES
from support.fieldtools import ROOT

PAGE = ROOT / "docs" / "doctor.md"
OURS = ROOT / "deploy" / "kubernetes" / "predictor" / "base" / "inferenceservice.yaml"
NGRAM = """vllm serve m --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'"""
FACT = "ngram_without_async_scheduling"  # of releases up to 0.32.0
HEALTHY = [
    *("0.25.1-draft_model-k3", "0.32.0-baseline-nospec", "0.32.0-eagle3-k2-dummy", "0.32.0-mtp-k2-dummy"),
    *("0.9.2-v0-ngram-k5",),
]


async def report(**given: Any) -> tuple[int, list[dict[str, Any]]]:
    with running.printed() as found:
        code = await doctor(Given(window_seconds=0.05, **given), output="json")
    return code, [json.loads(line) for line in found.out.splitlines()]


def told(found: dict[str, Any], level: str) -> list[str]:
    return [each["code"] or each["found"] for each in found["findings"] if each["level"] == level]


# --- Before a deployment ---------------------------------------------------------------------------------------------


async def test_arguments_alone_are_judged_by_their_release() -> None:
    code, (found,) = await report(arguments=NGRAM, release=(0, 32, 0))
    assert (code, found["level"]) == (2, "WARN")
    (fact,) = (each for each in found["findings"] if each["code"] == FACT)
    assert (fact["stage"], fact["level"]) == ("before", "WARN")
    assert fact["releases"].endswith(" to 0.32.0")
    assert fact["sources"]
    assert fact["checked"]
    assert found["looked_at"]["Speculation"] == "ngram, k = 5"
    code, (found,) = await report(arguments=NGRAM, release=(0, 33, 0))
    assert FACT not in told(found, "WARN")


async def test_what_is_good_to_know_asks_for_nothing() -> None:
    config = """{"method": "eagle3", "model": "d", "num_speculative_tokens": 3}"""
    code, (found,) = await report(arguments=f"vllm serve m -q awq -sc '{config}'", release=(0, 32, 0))
    assert (code, found["level"]) == (0, "PASS")
    assert {"target_of_four_bits", "draft_shares_memory_budget"} <= {each["code"] for each in found["notes"]}


async def test_bad_json_fails() -> None:
    code, (found,) = await report(arguments="vllm serve m -sc '{\"method\": }'")
    assert code == 1
    (fault,) = told(found, "FAIL")
    assert "--speculative-config is not a JSON object: Expecting value: line 1 column 12" in fault
    assert found["looked_at"]["Speculation"] == "not known"


async def test_a_release_that_nobody_knows_is_a_warning() -> None:
    code, (found,) = await report(arguments=NGRAM)
    assert (code, found["level"], told(found, "WARN")) == (2, "WARN", ["not known"])


@pytest.mark.parametrize(
    "words", ["--config nowhere.yaml", "-sc $CONFIG", "$MORE", "--spec-decoder x", "-sc '{\"method\": '"]
)
async def test_what_was_not_read_is_not_known_and_never_a_pass(words: str) -> None:
    code, (found,) = await report(arguments=f"vllm serve m {words}", release=(0, 33, 0))
    assert code != 0
    assert "not known: what was read does not tell whether it is on" in told(found, "WARN")
    assert found["looked_at"]["Speculation"] == "not known"


async def test_the_engines_word_beats_what_was_not_read() -> None:
    log = str(CAPTURES / "0.32.0-eagle3-k2-dummy" / "server.log")
    _, (found,) = await report(arguments="vllm serve --config nowhere.yaml", log_paths=(log,))
    assert found["looked_at"]["Speculation"].startswith("eagle3, k = 2")


async def test_a_config_file_on_this_machine_is_read(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text("model: m\nspeculative-config: {method: ngram, num_speculative_tokens: 4}\n")
    _, (found,) = await report(arguments=f"vllm serve --config {path}", release=(0, 33, 0))
    assert found["looked_at"]["Speculation"] == "ngram, k = 4"
    path.write_text("- m\n")
    with pytest.raises(ConfigError, match="expected arguments by their names"):
        await report(arguments=f"vllm serve --config {path}")


async def test_a_server_without_statistics_is_a_warning_in_arguments_and_log(tmp_path: Path) -> None:
    _, (found,) = await report(arguments=f"{NGRAM} --disable-log-stats", release=(0, 33, 0))
    assert told(found, "WARN") == ["statistics_disabled"]
    line = "(APIServer pid=1) INFO 08-06 20:48:31 [api_utils.py:273] non-default args: "
    (tmp_path / "log").write_text(f"{line}{{'model': 'm', 'disable_log_stats': True}}\n")
    _, (found,) = await report(log_paths=(str(tmp_path / "log"),))
    assert "statistics_disabled" in told(found, "WARN")
    _, text = running.commanded("analyze", str(tmp_path / "log"))
    assert "--disable-log-stats" in text


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        ("--frobnicate --port 80 --trust-remote-code --no-enable-prefix-caching --tool-call x", ["--frobnicate"]),
        ("--max-num-sequences 4", ["--max-num-sequences"]),
        ("--port 80", []),
    ],
)
async def test_an_argument_that_no_release_has_is_not_checked_and_no_pass(words: str, unknown: list[str]) -> None:
    code, (found,) = await report(arguments=f"{NGRAM} {words}", release=(0, 33, 0))
    assert told(found, "WARN") == [f"{flag} is not checked: no vLLM up to 0.33.0 has it" for flag in unknown]
    assert code == (2 if unknown else 0)
    _, (found,) = await report(arguments=f"python3 -m dynamo.vllm --model m {words}", release=(0, 33, 0))
    assert told(found, "WARN") == [], "Dynamo has arguments of its own"


RECIPES = [json.loads(line) for line in (FIXTURES / "commands.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["source"])
async def test_a_command_of_vllms_recipes_has_no_false_fault(recipe: dict[str, Any]) -> None:
    _, (found,) = await report(arguments=recipe["command"], release=(0, 33, 0))
    assert told(found, "FAIL") == []
    assert not [words for words in told(found, "WARN") if "not checked" in words or "not known" in words]


async def test_a_verdict_says_what_it_leaves_out() -> None:
    _, (found,) = await report(arguments=NGRAM, release=(0, 33, 0))
    assert [words.partition(":")[0] for words in found["not_checked"]] == [
        "whether vLLM accepts the arguments, and what it makes of them",
        "whether drafts are accepted",
    ]
    log = str(CAPTURES / "0.32.0-eagle3-k2-dummy" / "server.log")
    _, (found,) = await report(log_paths=(log,))
    assert [words.partition(":")[0] for words in found["not_checked"]] == ["whether drafts are accepted"]


REFUSED = [
    ("0.29.0", "", {"method": "eagle3", "enable_adaptive_verification": True}),
    ("0.33.0", "-pp 2", {"method": "dspark", "enable_adaptive_verification": True}),
    ("0.33.0", "", {"method": "eagle3", "rejection_sample_method": "fly", "fly_window_size": 3}),
    ("0.33.0", "", {"method": "dflash", "draft_lm_head_quantization": "fp8"}),
    ("0.33.0", "", {"method": "mtp", "xpress_topc": 8}),
    ("0.30.0", "--logits-processors a.B", {"method": "eagle3"}),
]
ACCEPTED = [
    ("0.31.0", "--logits-processors a.B", {"method": "eagle3"}),
    ("0.24.0", "--attention-backend TRITON_ATTN", {"method": "dflash"}),
    ("0.33.0", "-pp 2", {"method": "dspark", "enable_adaptive_verification": False}),
]


@pytest.mark.parametrize(("release", "more", "config"), [*REFUSED, *ACCEPTED])
async def test_doctor_neither_fails_nor_clears_what_vllm_checks_itself(
    release: str, more: str, config: dict[str, Any]
) -> None:
    given = json.dumps({"model": "draft", "num_speculative_tokens": 3, **config})
    _, (found,) = await report(arguments=f"vllm serve m {more} -sc '{given}'", release=parse_release(release))
    assert told(found, "FAIL") == []
    assert told(found, "WARN") == (["lossy_acceptance"] if "fly_window_size" in config else [])
    assert any("it checks them itself at its start" in words for words in found["not_checked"])
    notes = {each["code"] for each in found["notes"]}
    assert ("adaptive_verification" in notes) == config.get("enable_adaptive_verification", False)


MANIFESTS = sorted((ROOT / "tests" / "fixtures" / "manifests").glob("*.yaml"))


@pytest.mark.parametrize("path", [*MANIFESTS, OURS], ids=lambda path: path.stem)
async def test_a_good_manifest_has_no_fault(path: Path) -> None:
    _, found = await report(manifest=str(path))
    for server in found:
        assert told(server, "FAIL") == []
        assert server["looked_at"]["Server"]


def vocabulary(*words: str) -> dict[str, Any]:
    return {"version": "1.0", "model": {"type": "BPE", "vocab": {word: index for index, word in enumerate(words)}}}


TURNED = {"model": {"vocab": dict(reversed(vocabulary("a", "b")["model"]["vocab"].items())), "merges": [1]}}
UNIGRAM = {"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", -2.0]]}}


@pytest.mark.parametrize(
    ("draft", "level"),
    [
        (TURNED, "PASS"),
        (UNIGRAM, "PASS"),
        (vocabulary("b", "a"), "WARN"),
        (vocabulary("a", "b", "c"), "WARN"),
        ({"model": {"vocab": {}}}, None),
        ({"model": 1}, None),
        ([[[]]], None),
    ],
)
async def test_tokenizers_of_folders_on_this_machine_are_compared(
    tmp_path: Path, draft: Any, level: str | None
) -> None:
    for name, content in (("target", vocabulary("a", "b")), ("draft", draft)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(content))
    config = {"method": "draft_model", "model": str(tmp_path / "draft"), "num_speculative_tokens": 3}
    _, (found,) = await report(arguments=shlex.join(["vllm", "serve", f"{tmp_path}/target", "-sc", json.dumps(config)]))
    assert [each["level"] for each in found["findings"] if each["subject"] == "Tokenizer"] == ([level] if level else [])


def test_only_folders_of_a_draft_model_are_compared(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(vocabulary("a")))
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "tokenizer.json")
    target = str(tmp_path)
    for method, draft in (("eagle3", target), ("draft_model", "org/draft"), ("draft_model", f"{target}/pipe")):
        assert compare_tokenizers(Deployment(method=method, model=target, draft_model=draft)) is None
    assert compare_tokenizers(Deployment(method="draft_model", model=target, draft_model="a\0b")) is None


# --- After a start ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", HEALTHY)
async def test_a_healthy_start_has_no_false_finding(capture: str) -> None:
    code, (found,) = await report(log_paths=(str(CAPTURES / capture / "server.log"),))
    assert (code, told(found, "FAIL") + told(found, "WARN")) == (0, [])


async def test_costly_warnings_of_the_log_and_its_model_runner_are_told(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(
        "(EngineCore pid=7) INFO 11-20 21:44:52 [core.py:112] Initializing a V1 LLM engine (v0.25.1) with config: "
        "model='m', speculative_config=SpeculativeConfig(method='dflash', model='d', num_spec_tokens=7), x=1\n"
        "(EngineCore pid=7) INFO 11-20 21:44:52 [gpu_worker.py:400] Using V2 Model Runner\n"
        "(EngineCore pid=7) WARNING 11-20 21:44:52 [vllm.py:3043] The draft model's max_model_len (20) is smaller than "
        "the target model's (40) and the V2 model runner can't skip speculation\n"
        "(EngineCore pid=7) WARNING 11-20 21:44:52 [utils.py:45] EPLB is disabled for the DSpark draft model (d).\n"
    )
    reading = read_log((str(log),))
    assert reading.deployment.second_runner is True
    code, (found,) = await report(log_paths=(str(log),))
    assert code == 2
    assert "max_model_len_cut" in told(found, "WARN")
    assert "eplb_not_for_draft" in {each["code"] for each in found["notes"]}


async def test_arguments_and_log_of_one_server_agree() -> None:
    capture = CAPTURES / "0.32.0-ngram-k5"
    arguments = (capture / "command.txt").read_text()
    _, (found,) = await report(arguments=arguments, log_paths=(str(capture / "server.log"),))
    assert told(found, "FAIL") == []
    assert "Not the same" not in {each["subject"] for each in found["findings"]}
    (fact,) = (each for each in found["findings"] if each["code"] == FACT)
    assert fact["stage"] == "log", "the log tells the release"


async def test_a_log_of_another_server_is_noticed() -> None:
    log = CAPTURES / "0.32.0-draft_model-k3" / "server.log"
    _, (found,) = await report(arguments=NGRAM, log_paths=(str(log),), release=(0, 31, 0))
    differing = [each["found"] for each in found["findings"] if each["subject"] == "Not the same"]
    assert "the arguments: method ngram, the log: method draft_model" in differing
    assert "the arguments: release 0.31.0, the log: release 0.32.0" in differing


async def test_a_log_without_a_start_and_an_unreadable_one_are_told(tmp_path: Path) -> None:
    code, (found,) = await report(log_paths=(str(CAPTURES / "0.33.0-driven" / "server.log"),))
    assert (code, told(found, "WARN")) == (2, ["no line of a server's start", "not known"])
    code, (found,) = await report(log_paths=(str(tmp_path / "none.log"),))
    assert code == 1


# --- On a running server ---------------------------------------------------------------------------------------------


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server that answers what a real one did."""
    async with running.predictor((CAPTURES / "0.32.0-ngram-k5" / "metrics-1-good-copy.txt").read_bytes()) as vllm:
        yield vllm.url


async def test_a_running_server_tells_its_release(url: str) -> None:
    code, (found,) = await report(url=url, arguments=NGRAM)
    assert code == 2
    assert found["looked_at"]["Release"] == "0.32.0"
    (fact,) = (each for each in found["findings"] if each["code"] == FACT)
    assert fact["stage"] == "running"
    assert any(each["subject"] == "Metrics" and each["stage"] == "running" for each in found["findings"])
    log = str(CAPTURES / "0.32.0-ngram-k5" / "server.log")
    _, (found,) = await report(url=url, arguments=NGRAM, log_paths=(log,))
    assert not [
        each for each in found["findings"] if each["subject"] == "Not the same" and "model m" not in each["found"]
    ]


async def test_a_server_that_does_not_answer_fails() -> None:
    code, (found,) = await report(url="http://127.0.0.1:1")
    assert code == 1
    assert found["findings"][0]["subject"] == "Metrics"


# --- The judgement ---------------------------------------------------------------------------------------------------


def test_a_later_stage_wins_and_sets_are_joined() -> None:
    first = Deployment(method="mtp", num_speculative_tokens=1, arguments=frozenset({"a"}), engines=2)
    later = Deployment(num_speculative_tokens=3, arguments=frozenset({"b"}))
    found = together(first, later)
    assert (found.method, found.num_speculative_tokens, found.engines) == ("mtp", 3, 2)
    assert found.arguments == {"a", "b"}


async def test_the_worst_comes_first() -> None:
    _, (found,) = await report(arguments=f"{NGRAM} -tp 2 --kv-transfer-config x", release=(0, 32, 0))
    assert [each["level"] for each in found["findings"]] == ["FAIL", "WARN"]
    assert found["level"] == "FAIL"


# --- The command -----------------------------------------------------------------------------------------------------


def test_the_page_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(ROOT)

    def printed(match: re.Match[str]) -> str:
        _, _, *arguments = shlex.split(match["command"].removeprefix("$ "))
        return f"```console\n{match['command']}\n{running.commanded('doctor', *arguments, COLUMNS='100')[1]}```\n"

    page = PAGE.read_text(encoding="utf-8")
    block = re.compile(r"^```console\n(?P<command>\$ specdec-exporter doctor .*)\n(?:.*\n)*?```\n", re.MULTILINE)
    assert len(block.findall(page)) == 1
    found = block.sub(printed, page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(found, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == found


def test_a_manifest_comes_from_stdin() -> None:
    manifest = (ROOT / "tests" / "fixtures" / "manifests" / "eagle3.yaml").read_bytes()
    code, text = running.commanded("doctor", "--manifest", "-", "--output", "json", told=manifest)
    assert json.loads(text)["looked_at"]["Server"] == "InferenceService llama-eagle3"
    assert code in (0, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "at least one of --args, --manifest, --predictor.log-path and URL"),
        (["--args", "--model m", "--manifest", "f"], "exclude each other"),
        (["--manifest", "-", "--predictor.log-path", "-"], "only one of --manifest and --predictor.log-path"),
        (["--args", "--model m", "--release", "latest"], "expected a release such as 0.32.0"),
        (["--args", "ls -la"], "expected `vllm serve MODEL ...`"),
    ],
)
def test_bad_usage_is_named(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        running.commanded("doctor", *arguments)


@pytest.mark.parametrize("given", [{"arguments": "vllm serve 'x"}, {"manifest": "/nowhere.yaml"}, {"manifest": "a\0b"}])
async def test_what_cannot_be_read_is_an_error_of_ours(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        await report(**given)
    assert str(refused.value).isprintable()
