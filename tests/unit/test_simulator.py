"""The demo's simulated predictor obeys its scenario, counts as vLLM counts, and our parsers understand it."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from demo.simulator.engine import Engine
from demo.simulator.exposition import render_metrics
from demo.simulator.log import log_lines
from demo.simulator.scenario import BreakMetrics, Collapse, Incident, Restart
from demo.simulator.server import serving
from demo.simulator.settings import LatencyModel, SettingsError, SimulatorSettings, load_settings
from demo.simulator.totals import Totals
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from support.builders import CAPTURES
from support.fieldtools import ROOT
from support.processes import child

DEMO = ROOT / "deploy" / "demo"
IN_TIME_SECONDS = 20.0


def engine(seconds: float = 0, *incidents: Incident, **settings: Any) -> Engine:
    made = Engine(SimulatorSettings(**settings, incidents=incidents))
    made.advance(seconds)
    return made


def totals(of: Engine) -> Totals:
    return of.ranks[0].totals


def test_it_imports_nothing_of_the_package() -> None:
    """It spells vLLM's names by itself, so that a mistake in one place shows."""
    text = "".join(file.read_text() for file in (DEMO / "simulator").glob("*.py"))
    imported = re.findall(r"^\s*(?:from|import) (demo[\w.]*|specdec\w*)", text, re.MULTILINE)
    assert imported
    assert all(name.startswith("demo.simulator.") for name in imported)


# -- it obeys its scenario ---------------------------------------------------------------------------------------------

curves = st.lists(st.floats(0, 1), min_size=1, max_size=6).map(lambda rates: tuple(sorted(rates, reverse=True)))


def with_k(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "k": len(found["acceptance"])}


any_settings = st.fixed_dictionaries(
    {
        "acceptance": curves,
        "seed": st.integers(0, 1000),
        "load": st.sampled_from([0, "2/s", "6/s", 1, 5, 40]),
        "short_draft_share": st.sampled_from([0.0, 0.4, 1.0]),
        "no_draft_share": st.sampled_from([0.0, 0.3, 1.0]),
        "output_tokens": st.integers(1, 60),
        "max_num_seqs": st.sampled_from([1, 4, 64]),
        "engines": st.sampled_from([1, 3]),
    }
).map(with_k)


@given(any_settings)
@hypothesis_settings(max_examples=20, deadline=None)
def test_counters_add_up(settings: dict[str, Any]) -> None:
    run = engine(25, **settings)
    for rank in run.ranks:
        counted = rank.totals
        assert sum(counted.accepted_per_position) == counted.accepted_tokens
        assert counted.accepted_per_position == sorted(counted.accepted_per_position, reverse=True)
        assert counted.drafts <= counted.draft_tokens <= counted.drafts * settings["k"]
        if settings["short_draft_share"] == 0:
            assert counted.draft_tokens == counted.drafts * settings["k"]
        # every token after the first came out of a step; accepted ones past the end were not returned
        started, steps = counted.time_to_first_token.count, counted.inter_token.count
        assert counted.drafts <= steps <= counted.generation_tokens - started <= steps + counted.accepted_tokens
        assert counted.request_tpot.count == sum(counted.finished.values()) <= started
        assert rank.running <= settings["max_num_seqs"]


def test_a_collapse_begins_and_ends_on_time() -> None:
    run = engine(0, Collapse(at=60, duration=60, acceptance=0.2), load=16)
    for end, ratio in ((60, 0.72), (120, 0.2), (180, 0.72)):
        before = totals(run).accepted_tokens, totals(run).draft_tokens
        run.advance_to(end)
        found = (totals(run).accepted_tokens - before[0]) / (totals(run).draft_tokens - before[1])
        assert found == pytest.approx(ratio, abs=0.03)


TRIMMED: dict[str, Any] = {
    "k": 7,
    "acceptance": (0.72, 0.52, 0.37, 0.27, 0.19, 0.14, 0.1),
    "latency": LatencyModel(draft_token_seconds=0.0005, batched_token_seconds=0.001),
    "adaptive_verification": True,
}


@pytest.mark.parametrize(("load", "verified"), [(1, 7), (16, 1), (48, 0)])
def test_a_busy_step_verifies_less_of_each_draft_and_counts_all_of_it(load: int, verified: int) -> None:
    trimmed, whole = (
        engine(60, **(TRIMMED | changed), load=load) for changed in ({}, {"adaptive_verification": False})
    )
    counted = totals(trimmed)
    expected = TRIMMED["acceptance"][:verified] + (0.0,) * (7 - verified)
    assert [count / counted.drafts for count in counted.accepted_per_position] == pytest.approx(expected, abs=0.03)
    assert counted.draft_tokens == counted.drafts * 7
    faster = counted.generation_tokens / totals(whole).generation_tokens
    assert faster == 1 if verified == 7 else faster > 1.2
    arguments = [line for line in log_lines(trimmed) if "enable_adaptive_verification" in line]
    assert len(arguments) == 1  # vLLM's engine-init line does not have it
    assert "non-default args: " in arguments[0]
    assert "adaptive" not in "".join(log_lines(whole))


# -- scenario files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((DEMO / "scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_of_the_demo_runs(path: Path) -> None:
    settings = load_settings(str(path), {"seed": 7})
    run = Engine(settings)
    run.advance(min((incident.at for incident in settings.incidents), default=0.0) + 30)
    assert settings.seed == 7
    assert totals(run).drafts > 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kk: 3", "unknown field `kk`"),
        ("k: 0", "k: expected at least 1"),
        ("acceptance: [0.9, 0.95, 0.1]", "acceptance: expected 3 rates"),
        ("{method: null, incidents: [{kind: collapse, at: 1, acceptance: 0.1}]}", "speculation is off"),
    ],
)
def test_a_bad_scenario_names_the_file_and_the_value(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(says)) as raised:
        load_settings(str(path), {})
    assert str(raised.value).startswith(str(path))


# -- it looks like vLLM ------------------------------------------------------------------------------------------------


def shapes_of(body: str) -> dict[str, tuple[str, set[frozenset[str]], set[str]]]:
    """Families as a scraper sees them: type, label names of their samples without le, and bounds."""
    return {
        family.name: (
            family.type,
            {frozenset(sample.labels) - {"le"} for sample in family.samples},
            {sample.labels["le"] for sample in family.samples if "le" in sample.labels},
        )
        for family in text_string_to_metric_families(body)
    }


V0 = {"engine_generation": "v0"}


@pytest.mark.parametrize(
    ("capture", "settings"),
    [
        ("0.6.6.post1-driven/metrics-v0-1.txt", {"vllm_version": "0.6.6.post1"}),
        ("0.9.2-v0-ngram-k5/metrics-2-mid.txt", {"vllm_version": "0.9.2", **V0}),
        ("0.11.0-driven/metrics-1-after.txt", {"vllm_version": "0.11.0"}),
        ("0.20.2-driven-2engines/metrics-1-after.txt", {"vllm_version": "0.20.2", "engines": 2}),
        ("0.32.0-draft_model-k3/metrics-8-p90.txt", {"vllm_version": "0.32.0"}),
        ("0.32.0-baseline-nospec/metrics-1-after.txt", {"vllm_version": "0.32.0", "method": None}),
        ("0.33.0-driven/metrics-1-after.txt", {"vllm_version": "0.33.0"}),
    ],
)
def test_every_family_has_the_captured_shape(capture: str, settings: dict[str, Any]) -> None:
    real = shapes_of((CAPTURES / capture).read_text())
    run = engine(60, max_model_len=1024, served_model_name="tiny", **settings)
    for name, shape in shapes_of(render_metrics(run).decode()).items():
        if name == "process_start_time_seconds" and "driven" in capture:
            continue  # these captures are of the metrics classes alone, not of the process
        kind, labels, _ = real[name]
        assert shape[0] == kind, name
        if labels and name != "vllm:cache_config_info":  # its labels are the operator's configuration
            assert shape == real[name], name


def normalized(line: str) -> str:
    """A line without its numbers and file names; a list of numbers is one number."""
    line = re.sub(r"\x1b\[[0-9;]*m", lambda code: f"<{code[0][2:-1].replace(';', ',')}>", line)
    line = re.sub(r"[a-z_]+\.py:\d+", "FILE", line).replace("CPU KV cache usage: 0.0%.", "SWAP")
    line = re.sub(r"(?<![\w<,])\d+(\.\d+)?", "N", line)
    return re.sub(r"N(, N)+", "N", line).replace("CPU KV", "GPU KV")


@pytest.mark.parametrize(
    ("capture", "settings"),
    [
        ("0.8.5-driven", {"vllm_version": "0.8.5"}),
        ("0.9.2-v0-ngram-k5", {"vllm_version": "0.9.2", "k": 5, "method": "ngram", **V0}),
        ("0.25.1-draft_model-k3", {"vllm_version": "0.25.1", "method": "draft_model"}),
        ("0.32.0-draft_model-dp2-api1", {"vllm_version": "0.32.0", "engines": 2}),
        ("0.32.0-baseline-nospec", {"vllm_version": "0.32.0", "method": None}),
    ],
)
def test_periodic_lines_are_those_of_the_release(capture: str, settings: dict[str, Any]) -> None:
    real = {normalized(line) for line in (CAPTURES / capture / "server.log").read_text().splitlines()}
    lines = log_lines(engine(60, **settings))
    ours = {normalized(line) for line in lines if re.search(r"SpecDecoding|Speculative metrics|Avg prompt", line)}
    assert len(ours) == (1 if settings.get("method", "") is None else 2)
    assert ours <= real


@pytest.mark.parametrize(
    "settings", [*({"vllm_version": version} for version in ("0.8.5", "0.10.2", "0.33.0")), {"engines": 2}], ids=str
)
def test_counters_are_read_from_the_metrics(settings: dict[str, Any]) -> None:
    run = engine(30, **settings)
    snapshot = parse_exposition(render_metrics(run), run.release.content_type)
    assert snapshot.engine_generation == "v1"
    for read, rank in zip(snapshot.engines, run.ranks, strict=True):
        told = rank.totals
        for name in ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens"):
            assert getattr(read, name) == getattr(told, name)
        assert read.accepted_tokens_per_position == dict(enumerate(told.accepted_per_position))
        assert read.requests_running == rank.running
        assert read.step_latency is not None
        assert (read.step_latency.count, read.step_latency.sum) == (told.inter_token.count, told.inter_token.sum)


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def test_it_drops_everyone_in_a_restart_and_comes_back_from_zero(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    settings = SimulatorSettings(
        speed=20.0,
        uptime_seconds=600.0,
        log_path=str(log),
        listen_address="127.0.0.1:0",
        incidents=(Restart(at=40, duration=10), BreakMetrics(at=70)),
    )
    starts: list[float] = []
    drafts: list[float] = []
    answers: list[int] = []
    async with asyncio.timeout(IN_TIME_SECONDS), serving(settings) as url, aiohttp.ClientSession(url) as session:
        async with session.get("/version") as version, session.get("/v1/models") as models:
            assert await version.json() == {"version": "0.32.0"}
            assert (await models.json())["data"][0]["owned_by"] == "specdec-exporter simulator"
        while 500 not in answers:
            try:
                async with session.get("/metrics") as response:
                    answers.append(response.status)
                    body = await response.text()
                    starts += map(float, re.findall(r"(?m)^process_start_time_seconds (.+)", body))
                    drafts += map(float, re.findall(r"(?m)^vllm:spec_decode_num_drafts_total{.*} (.+)", body))
            except aiohttp.ClientError:
                answers.append(0)
            await asyncio.sleep(0.02)
    assert list(dict.fromkeys(answers)) == [200, 0, 500]
    assert starts[-1] == pytest.approx(starts[0] + 600 + 2.5)
    assert drafts[starts.index(starts[-1])] < max(drafts[: starts.index(starts[-1])])
    assert log.read_text().count("Initializing a V1 LLM engine") == 2


async def test_the_command_says_what_it_is_and_where_and_ends_on_sigterm(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "demo.simulator", "--scenario", DEMO / "scenarios" / "bad-day.yaml")
    where = ("--listen-address", "127.0.0.1:0", "--log-path", tmp_path / "log")
    with child(*command, *where, cwd=DEMO.parent) as simulator:
        assert simulator.stderr is not None
        assert b"no vLLM and no model run here" in simulator.stderr.readline()
        url = simulator.stderr.readline().decode().split()[-1]
        async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as response:
            assert response.ok
        simulator.terminate()
        assert simulator.wait(IN_TIME_SECONDS) == 0
