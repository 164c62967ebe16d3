"""``doctor``: arguments, log and metrics of a server, judged together.

After a deliberate change of what it prints: ``pytest tests/unit/test_doctor.py --update-golden`` and read the diff.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

from builders import CAPTURES
from specdec_exporter.commands.diagnosing import Given, doctor
from specdec_exporter.commands.doctor import command
from specdec_exporter.errors import ConfigError
from specdec_exporter.inspection.doctor import Observed, diagnose, together
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.facts.starting import load_starting_points, starting_point
from specdec_exporter.speculation.memory import memory_budget

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "doctor.md"
NGRAM = """vllm serve m --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'"""
FACT = "ngram_without_async_scheduling"  # of releases up to 0.32.0
HEALTHY = [
    *("0.25.1-draft_model-k3", "0.32.0-baseline-nospec", "0.32.0-eagle3-k2-dummy", "0.32.0-mtp-k2-dummy"),
    *("0.9.2-v0-ngram-k5",),
]


async def report(**given: Any) -> tuple[int, list[dict[str, Any]]]:
    stdout = io.StringIO()
    code = await doctor(Given(**given), window_seconds=0.05, output="json", stdout=stdout, stderr=io.StringIO())
    return code, [json.loads(line) for line in stdout.getvalue().splitlines()]


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


async def test_bad_json_fails_and_suggests_nothing() -> None:
    code, (found,) = await report(arguments="vllm serve m -sc '{\"method\": }'")
    assert code == 1
    (fault,) = told(found, "FAIL")
    assert "--speculative-config is not JSON: Expecting value, at character 12" in fault
    assert found["suggestion"] is None


async def test_a_server_without_speculation_gets_a_start() -> None:
    code, (found,) = await report(arguments="vllm serve deepseek-ai/DeepSeek-V3", release=(0, 32, 0))
    assert code == 0
    assert found["suggestion"]["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 1}
    assert any("one token" in line for line in found["checklist"])


@pytest.mark.parametrize("name", ["ngram", "eagle3", "storage-uris", "modelcar", "llm", "deployment"])
async def test_a_good_manifest_has_no_fault(name: str) -> None:
    manifest = ROOT / "tests" / "fixtures" / "manifests" / f"{name}.yaml"
    _, (found,) = await report(manifest=str(manifest))
    assert told(found, "FAIL") == []
    assert found["looked_at"]["Server"]
    assert found["suggestion"] is None


async def test_our_own_manifest_has_no_fault() -> None:
    path = ROOT / "deploy" / "kubernetes" / "predictor" / "base" / "inferenceservice.yaml"
    _, (found,) = await report(manifest=str(path))
    assert told(found, "FAIL") == []
    assert found["looked_at"]["Release"] == "0.32.0"


async def test_weights_that_do_not_fit_fail_unless_their_size_is_a_guess(tmp_path: Path) -> None:
    code, (found,) = await report(arguments="vllm serve org/m-70B", gpu_bytes=24e9)
    assert code == 2
    assert "nothing is left for the KV cache. The size is a guess" in told(found, "WARN")[-1]
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 1000)
    code, (found,) = await report(arguments=f"vllm serve {tmp_path}", gpu_bytes=1000.0)
    assert code == 1
    assert found["memory"]["left_bytes"] == pytest.approx(-100)
    code, (found,) = await report(arguments=f"vllm serve {tmp_path} -tp 2", gpu_bytes=1000.0)
    assert code == 0


def test_a_budget_is_what_the_formula_says() -> None:
    found = memory_budget(100.0, 0.8, 50.0, 10.0)
    assert found is not None
    assert (found.budget_bytes, found.left_bytes) == (80.0, 20.0)
    assert memory_budget(None, 0.8, 50.0, 10.0) is None
    assert memory_budget(100.0, 0.8, None, 10.0) is None


# --- After a start ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", HEALTHY)
async def test_a_healthy_start_has_no_false_finding(capture: str) -> None:
    code, (found,) = await report(log_paths=(str(CAPTURES / capture / "server.log"),))
    assert (code, told(found, "FAIL") + told(found, "WARN")) == (0, [])


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
    assert (code, told(found, "WARN")) == (2, ["no line of a server's start"])
    code, (found,) = await report(log_paths=(str(tmp_path / "none.log"),))
    assert code == 1


# --- On a running server ---------------------------------------------------------------------------------------------


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server that answers what a real one did."""
    app = web.Application()
    body = (CAPTURES / "0.32.0-ngram-k5" / "metrics-1-good-copy.txt").read_bytes()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/version", version)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


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


def test_the_worst_comes_first() -> None:
    deployment = Deployment(
        release=(0, 32, 0), method="ngram", speculative=True, target_bytes=20.0, gpu_memory_bytes=10.0
    )
    found = diagnose([Observed(stage="before", deployment=deployment)], {})
    levels = [finding.level for finding in found.findings]
    assert (levels[0], levels[-1], found.level) == ("FAIL", "WARN", "FAIL")
    assert levels == sorted(levels)


@pytest.mark.parametrize(
    ("deployment", "names", "method"),
    [
        (Deployment(model="zai-org/GLM-4.6"), [], "mtp"),
        (Deployment(model="zai-org/GLM-4.6", release=(0, 10, 2)), [], "ngram"),
        (Deployment(model="/models", n_predict=2), [], "mtp"),
        (Deployment(model="/mnt/models"), ["hf://meta-llama/Llama-3.3-70B"], "eagle3"),
        (Deployment(architecture="GptOssForCausalLM"), [], "eagle3"),
        (Deployment(model="llama", release=(0, 9, 2)), [], "ngram"),
        (Deployment(), [], "ngram"),
    ],
)
def test_a_start_fits_target_and_release(deployment: Deployment, names: list[str], method: str) -> None:
    point = starting_point(deployment, names)
    assert point.method == method
    config = point.config(deployment)
    assert config["num_speculative_tokens"] == (deployment.n_predict or {"mtp": 1, "eagle3": 3, "ngram": 5}[method])
    assert ("model" in config) == (method == "eagle3")


def test_every_target_has_a_start() -> None:
    assert re.search(load_starting_points()[-1].target, "?")
    assert load_starting_points()[-1].since is None


# --- The command -----------------------------------------------------------------------------------------------------


def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments, input=stdin, standalone_mode=False, env={"COLUMNS": "100"})
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout


def test_the_page_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(ROOT)

    def printed(match: re.Match[str]) -> str:
        _, _, *arguments = shlex.split(match["command"].removeprefix("$ "))
        return f"```console\n{match['command']}\n{run(*arguments)[1]}```\n"

    page = PAGE.read_text(encoding="utf-8")
    block = re.compile(r"^```console\n(?P<command>\$ specdec-exporter doctor .*)\n(?:.*\n)*?```\n", re.MULTILINE)
    assert len(block.findall(page)) == 3
    found = block.sub(printed, page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(found, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == found


def test_a_manifest_comes_from_stdin() -> None:
    manifest = (ROOT / "tests" / "fixtures" / "manifests" / "eagle3.yaml").read_bytes()
    code, text = run("--manifest", "-", "--output", "json", stdin=manifest)
    assert json.loads(text)["looked_at"]["Server"] == "InferenceService llama-eagle3"
    assert code in (0, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "at least one of --args, --manifest, --log and URL"),
        (["--args", "m", "--manifest", "f"], "exclude each other"),
        (["--manifest", "-", "--log", "-"], "only one of them"),
        (["--args", "m", "--release", "latest"], "expected a release such as 0.32.0"),
        (["--args", "m", "--gpu-memory", "24"], "expected a size such as 24GiB"),
        (["--args", "m", "--gpu-memory", "nanGiB"], "expected a size such as 24GiB"),
    ],
)
def test_bad_usage_is_named(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


@pytest.mark.parametrize(
    "given",
    [
        {"arguments": "vllm serve 'x"},
        {"manifest": "/nowhere.yaml"},
        {"manifest": "a\0b"},
        {"arguments": "m", "target_path": "/nowhere"},
    ],
)
async def test_what_cannot_be_read_is_an_error_of_ours(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        await report(**given)
    assert str(refused.value).isprintable()
