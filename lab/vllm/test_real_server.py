"""The exporter beside real vLLM servers: every figure is held against one predicted without either of them."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from specdec_exporter.speculation.policy import load_policy
from support.processes import exporter_ran
from vllm import scenarios
from vllm.exporter import SERVICE_NAME, Exporter, Exposition, serving
from vllm.language import Language
from vllm.play import await_log, send, sum_log
from vllm.predict import Counts
from vllm.scenarios import Scenario
from vllm.server import Installation, Server, running


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """What the families behind :class:`Counts` are called."""

    drafts: str
    draft_tokens: str
    accepted_tokens: str
    accepted_per_position: str
    generation_tokens: str
    prompt_tokens: str
    finished: str
    steps: str

    def count(self, exposition: Exposition) -> Counts:
        """The counts an exposition shows, with 0 for families that are not there."""
        by_position = exposition.by("position", self.accepted_per_position)
        return Counts(
            requests=int(exposition.value(self.finished, finished_reason="length") or 0),
            prompt_tokens=int(exposition.value(self.prompt_tokens) or 0),
            generation_tokens=int(exposition.value(self.generation_tokens) or 0),
            steps=int(exposition.value(self.steps) or 0),
            drafts=int(exposition.value(self.drafts) or 0),
            draft_tokens=int(exposition.value(self.draft_tokens) or 0),
            accepted_per_position=tuple(int(by_position[position]) for position in sorted(by_position, key=int)),
        )


VLLM: Final = Names(
    drafts="vllm:spec_decode_num_drafts_total",
    draft_tokens="vllm:spec_decode_num_draft_tokens_total",
    accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
    accepted_per_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
    generation_tokens="vllm:generation_tokens_total",
    prompt_tokens="vllm:prompt_tokens_total",
    finished="vllm:request_success_total",
    steps="vllm:inter_token_latency_seconds_count",
)
OURS: Final = Names(
    drafts="specdec_drafts_total",
    draft_tokens="specdec_draft_tokens_total",
    accepted_tokens="specdec_accepted_tokens_total",
    accepted_per_position="specdec_accepted_tokens_per_position_total",
    generation_tokens="specdec_generation_tokens_total",
    prompt_tokens="specdec_prompt_tokens_total",
    finished="specdec_requests_finished_total",
    steps="specdec_step_latency_seconds_count",
)
HISTOGRAMS: Final = {
    "vllm:time_to_first_token_seconds": "specdec_time_to_first_token_seconds",
    "vllm:request_time_per_output_token_seconds": "specdec_time_per_output_token_seconds",
    "vllm:inter_token_latency_seconds": "specdec_step_latency_seconds",
    "vllm:e2e_request_latency_seconds": "specdec_request_latency_seconds",
    "vllm:request_decode_time_seconds": "specdec_request_decode_seconds",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """A scenario played against a server that still runs, and what was seen meanwhile.

    ``predictor`` is vLLM's own ``/metrics``, the others are the exporter's; counts are since the server's start.
    """

    scenario: Scenario
    server: Server
    exporter: Exporter
    before: Exposition
    after_phases: tuple[tuple[Counts, Exposition], ...]
    predictor: Exposition
    after: Exposition

    @property
    def expected(self) -> Counts:
        """The counts of all phases."""
        return self.after_phases[-1][0]


@pytest.fixture(
    scope="session",
    params=[
        # A server takes half a minute to start; with one draft token more it does the same.
        pytest.param(each, id=name, marks=[pytest.mark.nightly] * (each is scenarios.DRAFT_MODEL_K4))
        for name, each in scenarios.BY_NAME.items()
    ],
)
def observation(
    request: pytest.FixtureRequest,
    installation: Installation,
    language: Language,
    models: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Observation]:
    scenario: Scenario = request.param
    directory = tmp_path_factory.mktemp(scenario.name)
    server = Server(installation, models=models, directory=directory, arguments=scenario.arguments(models))
    with (
        running(server),
        serving(server.url, server.log_path, own_log=directory / "exporter.log") as exporter,
    ):
        yield play(scenario, server, exporter, language)


def play(scenario: Scenario, server: Server, exporter: Exporter, language: Language) -> Observation:
    before = exporter.scrape()
    after_phases = []
    expected = nothing(scenario)
    for phase in scenario.phases:
        send(server, phase, language)
        expected += scenario.expected(language, phase)
        after_phases.append((expected, scrape_counted(exporter, expected)))
    logged = await_log(scenario, server, expected)
    after = exporter.scrape_until(
        lambda seen: (seen.value("specdec_log_windows_total") or 0) == logged.windows and OURS.count(seen) == expected
    )
    return Observation(
        scenario=scenario,
        server=server,
        exporter=exporter,
        before=before,
        after_phases=tuple(after_phases),
        predictor=Exposition(server.metrics()),
        after=after,
    )


def scrape_counted(exporter: Exporter, expected: Counts) -> Exposition:
    """Scrape until the last request's final step is counted, which can be just after its answer."""
    return exporter.scrape_until(lambda seen: OURS.count(seen) == expected)


def nothing(scenario: Scenario) -> Counts:
    return Counts(accepted_per_position=(0,) * scenario.k)


def test_vllm_counts_what_was_predicted(observation: Observation) -> None:
    assert VLLM.count(observation.predictor) == observation.expected
    assert (observation.predictor.value(VLLM.accepted_tokens) or 0) == observation.expected.accepted_tokens


def test_the_exporter_counts_every_phase_to_the_token(observation: Observation) -> None:
    for expected, exposition in (*observation.after_phases, (observation.expected, observation.after)):
        assert OURS.count(exposition) == expected
        assert (exposition.value(OURS.accepted_tokens) or 0) == expected.accepted_tokens
        assert sum(exposition.by("finished_reason", OURS.finished).values()) == expected.requests


def test_counters_are_there_before_the_first_request_exactly_if_speculation_is_on(observation: Observation) -> None:
    expected = None if observation.scenario.method is None else 0.0
    for name in (OURS.drafts, OURS.draft_tokens, OURS.accepted_tokens):
        assert observation.before.value(name) == expected
    assert len(observation.before.select(OURS.accepted_per_position)) == observation.scenario.k
    assert OURS.count(observation.before) == nothing(observation.scenario)


def test_the_start_is_told_by_log_and_metrics(observation: Observation) -> None:
    labels, _ = observation.predictor.select("vllm:cache_config_info")[0]
    blocks = int(labels["num_gpu_blocks"]) * int(labels["block_size"])  # these models have one kind of layers
    capacity = int(labels.get("kv_cache_size_tokens", blocks))
    assert observation.after.value("specdec_kv_cache_capacity_tokens") == capacity
    for name in ("prefix_cache_queries_total", "prefix_cache_hits_total"):
        assert observation.after.value(f"specdec_{name}") == observation.predictor.value(f"vllm:{name}")
    start = observation.exporter.status()["start"]
    assert (start["kv_cache_tokens"], start["max_num_seqs"], start["quantization"]) == (capacity, 8, None)
    assert {"load_weights", "init_engine"} <= start["phases"].keys()
    assert 0 < start["phases"]["init_engine"] < start["ready_seconds"] + 1
    analysed = exporter_ran("analyze", str(observation.server.log_path))
    assert f"KV cache of {capacity:,} tokens" in " ".join(analysed.stdout.split())


@pytest.mark.parametrize(("theirs", "ours"), HISTOGRAMS.items(), ids=HISTOGRAMS.values())
def test_histograms_are_vllms_own_bucket_by_bucket(observation: Observation, theirs: str, ours: str) -> None:
    def buckets(exposition: Exposition, name: str) -> dict[float, float]:
        return {float(bound): count for bound, count in exposition.by("le", f"{name}_bucket").items()}

    assert buckets(observation.after, ours) == buckets(observation.predictor, theirs)
    assert observation.after.value(f"{ours}_sum") == observation.predictor.value(f"{theirs}_sum")
    assert (observation.after.value(f"{ours}_count") or 0) > 0


def test_the_figures_of_the_window_are_those_of_the_traffic_in_it(observation: Observation) -> None:
    for expected, exposition in observation.after_phases:
        drafts, accepted = expected.drafts, expected.accepted_tokens
        if not drafts:
            assert exposition.select("specdec_acceptance_ratio") == []
            assert exposition.select("specdec_mean_acceptance_length") == []
            continue
        assert exposition.value("specdec_acceptance_ratio") == pytest.approx(accepted / expected.draft_tokens)
        assert exposition.value("specdec_mean_acceptance_length") == pytest.approx(1 + accepted / drafts)
        assert exposition.value("specdec_mean_draft_length") == pytest.approx(expected.draft_tokens / drafts)
        decoded = expected.generation_tokens - expected.requests
        assert exposition.value("specdec_tokens_per_step") == pytest.approx(decoded / expected.steps)
        curve = exposition.by("position", "specdec_position_acceptance_ratio")
        assert curve == pytest.approx(
            {str(position): count / drafts for position, count in enumerate(expected.accepted_per_position)}
        )


def test_the_log_adds_up_to_the_counters(observation: Observation) -> None:
    logged = sum_log(observation.server.log())
    silent = observation.scenario.method is None or observation.scenario.api_servers > 1
    expected = nothing(observation.scenario) if silent else observation.expected
    assert (logged.draft_tokens, logged.accepted_tokens) == (expected.draft_tokens, expected.accepted_tokens)
    if observation.scenario.method is None:  # a counter that stands at 0 would mean that drafts are missing
        assert observation.after.select("specdec_log_windows_total") == []
        return
    assert observation.after.value("specdec_log_windows_total") == logged.windows
    assert observation.after.value("specdec_log_draft_tokens_total") == expected.draft_tokens
    assert observation.after.value("specdec_log_accepted_tokens_total") == expected.accepted_tokens


def test_what_the_log_does_not_print_is_reconstructed(observation: Observation) -> None:
    expected = observation.expected
    if observation.scenario.method is None or observation.scenario.api_servers > 1:
        expected_drafts = None if observation.scenario.method is None else 0.0
        assert observation.after.value("specdec_log_drafts_total") == expected_drafts
        return
    drafts = observation.after.value("specdec_log_drafts_total")
    positions = observation.after.by("position", "specdec_log_accepted_tokens_per_position_total")
    truth = {str(position): count for position, count in enumerate(expected.accepted_per_position)}
    if expected.draft_tokens == expected.drafts * observation.scenario.k:
        assert drafts == expected.drafts
        assert positions == truth
    else:  # Short drafts: the mean length is all that tells how many, and each line rounds it.
        rounding = 1 + sum_log(observation.server.log()).windows / 2
        assert drafts == pytest.approx(expected.drafts, abs=rounding)
        assert positions == pytest.approx(truth, abs=rounding)


def test_the_log_reader_understands_all_of_a_real_log(observation: Observation) -> None:
    assert observation.after.value("specdec_log_reader_parse_errors_total") == 0.0
    assert observation.after.value("specdec_log_reader_read_errors_total") == 0.0
    assert observation.after.value("specdec_log_reader_bytes_behind") == 0.0


def test_the_predictor_is_described(observation: Observation, installation: Installation, models: Path) -> None:
    scenario = observation.scenario
    ((labels, value),) = observation.after.select("specdec_predictor_info")
    assert value == 1.0
    assert labels["vllm_version"] == installation.release() == observation.server.version()
    assert labels["engine_generation"] == "v1"
    assert labels["method"] == (scenario.method or "")
    assert labels["draft_model"] == (str(models / "draft") if scenario.method == "draft_model" else "")
    assert observation.after.value("specdec_num_speculative_tokens") == (scenario.k or None)


def test_the_status_api_agrees(observation: Observation) -> None:
    status = observation.exporter.status()
    assert status["inference_service"] == SERVICE_NAME
    assert status["method"] == observation.scenario.method
    if observation.scenario.method is None:
        assert status["lifetime"] is None
        return
    lifetime = status["lifetime"]
    assert lifetime["drafts"] == observation.expected.drafts
    assert lifetime["draft_tokens"] == observation.expected.draft_tokens
    assert lifetime["accepted_tokens"] == observation.expected.accepted_tokens
    assert lifetime["short_drafts"] is (
        observation.expected.draft_tokens < observation.expected.drafts * observation.scenario.k
    )


def test_analyze_reads_the_same_from_the_log(observation: Observation) -> None:
    scenario = observation.scenario
    result = exporter_ran("analyze", str(observation.server.log_path), "--output", "jsonl")
    assert result.returncode in (0, 2), result.stderr
    events = [json.loads(line) for line in result.stdout.splitlines()]
    windows = [event for event in events if event["kind"] == "spec_decoding"]
    logged = sum_log(observation.server.log())
    assert len(windows) == logged.windows
    assert sum(event["draft_tokens"] for event in windows) == logged.draft_tokens
    assert sum(event["accepted_tokens"] for event in windows) == logged.accepted_tokens
    assert {event["num_speculative_tokens"] for event in windows} <= {scenario.k}
    (config,) = (event for event in events if event["kind"] == "engine_config")
    assert config["speculative"] is (scenario.method is not None)
    assert config.get("method") == scenario.method
    assert config.get("num_speculative_tokens") == (scenario.k or None)


def test_check_passes_judgement(observation: Observation) -> None:
    result = exporter_ran("check", observation.server.url)
    assert "Traceback" not in result.stderr
    # Speculation that is off, or may lose by assumption even at light load, is worth a warning; nothing here fails.
    least = load_policy().assumed.levels(None, observation.scenario.k, None).watch
    pays = observation.expected.accepted_tokens >= least * observation.expected.draft_tokens > 0
    assert result.returncode == (0 if pays else 2), result.stdout + result.stderr


def test_the_doctor_finds_no_fault_in_a_server_that_runs(observation: Observation) -> None:
    server, scenario = observation.server, observation.scenario
    log = ("--predictor.log-path", str(server.log_path))
    result = exporter_ran("doctor", server.url, "--args", shlex.join(server.command), *log, "--output", "json")
    assert result.returncode in (0, 2), result.stdout + result.stderr
    found = json.loads(result.stdout)
    assert "Not the same" not in {each["subject"] for each in found["findings"]}
    assert {each["stage"] for each in found["findings"]} >= {"log", "running"}
    speculates = scenario.method is not None
    assert found["looked_at"]["Speculation"].startswith(f"{scenario.method}, k = {scenario.k}" if speculates else "off")


def test_a_restart_neither_doubles_nor_negates_anything(
    installation: Installation, language: Language, models: Path, tmp_path: Path
) -> None:
    scenario = scenarios.DRAFT_MODEL_K3
    before, after = scenario.phases[0], scenario.phases[1]
    first, second = (scenario.expected(language, phase) for phase in (before, after))
    both = first + second
    server = Server(installation, models=models, directory=tmp_path, arguments=scenario.arguments(models))
    with running(server), serving(server.url, server.log_path, own_log=tmp_path / "exporter.log") as exporter:
        exporter.scrape()
        send(server, before, language)
        assert OURS.count(scrape_counted(exporter, first)) == first
        await_log(scenario, server, first)

        server.stop()
        down = exporter.scrape()
        assert down.value("specdec_up") == 0.0
        assert down.select(OURS.drafts) == []
        assert down.value("specdec_predictor_state", state="unreachable") == 1.0
        assert exporter_ran("check", server.url).returncode == 1

        server.start()
        assert OURS.count(exporter.scrape()) == nothing(scenario)
        send(server, after, language)
        assert OURS.count(scrape_counted(exporter, second)) == second
        logged = await_log(scenario, server, both)
        seen = exporter.scrape_until(lambda seen: seen.value("specdec_log_windows_total") == logged.windows)

    assert OURS.count(seen) == second
    assert seen.value("specdec_log_windows_total") == logged.windows
    assert seen.value("specdec_log_draft_tokens_total") == logged.draft_tokens == both.draft_tokens
    assert seen.value("specdec_log_accepted_tokens_total") == logged.accepted_tokens == both.accepted_tokens
    assert seen.value("specdec_log_drafts_total") == both.drafts
    # The window begins anew with the process: what was loaded may differ.
    assert seen.value("specdec_acceptance_ratio") == pytest.approx(second.accepted_tokens / second.draft_tokens)
