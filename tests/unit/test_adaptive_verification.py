"""vLLM verifies part of each draft and counts all of it as drafted: nothing is made of counts that do not tell.

The counts are those of one verified token a draft, 72 % accepted: dspark with k=7 reads 10.3 %, eagle3 with k=3 24 %.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.samples import Sample

from specdec_exporter.commands.analyze import analyze
from specdec_exporter.commands.check import check
from specdec_exporter.config import PredictorSettings
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.servercommand import read_command
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.evidence import DecodingBaseline, Evidence
from specdec_exporter.speculation.figures import PARTLY_VERIFIED, Figures, figures
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.verdict import Verdict
from specdec_exporter.state.observing import observe_event, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from specdec_exporter.state.view import engines_of
from support import running
from support.builders import Clock, arguments, engine, known, snapshot, started
from support.exposition import render
from support.loglines import ARGUMENTS_HEADER, HEADER

ADAPTIVE = Deployment(adaptive_verification=True)
METHODS = [("dspark", 7), ("eagle3", 3)]


def trimmed(k: int, *, head: float = 0.72, more: float = 0.0, seconds: float | None = None) -> Figures:
    """Figures of 1,000 drafts of k tokens. ``head``: accepted at position 0; ``more``: tokens accepted after it."""
    accepted = (1000 * head, 1000 * more, *(0.0,) * (k - 2))
    counts = Counts(
        drafts=1000.0,
        draft_tokens=1000.0 * k,
        accepted_tokens=sum(accepted),
        accepted_per_position=accepted,
        timed_requests=None if seconds is None else 1000.0,
        output_token_seconds=None if seconds is None else 1000.0 * seconds,
    )
    return figures(counts, k, "metrics", 300.0, adaptive_verification=True)


def judged(method: str, k: int, seen: Figures, baseline: DecodingBaseline | None = None) -> Verdict:
    evidence = Evidence(
        state="drafting",
        figures=seen,
        method=method,
        num_speculative_tokens=k,
        deployment=ADAPTIVE,
        baseline=baseline,
    )
    return judge(evidence, load_policy()).verdict


# --- where the key is read ---


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ('"enable_adaptive_verification": true', True),
        ('"enable_adaptive_verification": false', False),
        ('"k": 0', False),  # vLLM's default
        ('"enable_adaptive_verification": {}', None),
        ('"method": "ngram", "enable_adaptive_verification": true', False),  # it does nothing there
    ],
)
def test_the_key_of_a_command_counts_by_its_value(key: str, expected: bool | None) -> None:
    command = f'vllm serve m --speculative-config \'{{"method": "dspark", {key}}}\''
    assert read_command(command).deployment().adaptive_verification is expected


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("True", True), ("on", True), ("0", False)])
def test_a_single_key_may_be_text_that_vllm_takes_for_a_boolean(text: str, expected: bool) -> None:
    command = f"vllm serve m --speculative-config.enable_adaptive_verification {text}"
    assert read_command(command).deployment().adaptive_verification is expected


def test_without_a_speculative_configuration_nothing_is_known() -> None:
    assert read_command("vllm serve m").deployment().adaptive_verification is None
    assert Deployment().adaptive_verification is None


# --- figures and verdict ---


def test_figures_that_need_the_number_of_verified_tokens_are_withheld_and_no_others() -> None:
    seen = trimmed(7)
    assert (seen.acceptance_ratio, seen.mean_draft_length, seen.short_drafts) == (None, None, False)
    assert (seen.per_position, seen.conditional) == ((0.72,), (0.72,))
    assert (seen.drafts, seen.draft_tokens, seen.accepted_tokens) == (1000, 7000, 720)
    assert seen.mean_acceptance_length == pytest.approx(1.72)
    assert seen.drafted


@pytest.mark.parametrize(("method", "k"), METHODS)
def test_no_page_and_no_head_is_blamed_for_what_was_not_verified(method: str, k: int) -> None:
    verdict = judged(method, k, trimmed(k))
    words = " ".join((verdict.headline, *verdict.reasons, verdict.action))
    assert (verdict.code, verdict.basis, verdict.acceptance_ratio) == ("watch", "assumed", None)
    assert PARTLY_VERIFIED in verdict.reasons
    assert "1.72 tokens a draft; at light load (the load is not known) at most" in words
    assert "second token" not in words
    assert not re.search(r"acceptance \d", words)


@pytest.mark.parametrize(("method", "k"), METHODS)
def test_a_length_above_the_watch_level_probably_pays_though_its_break_even_is_too_high(method: str, k: int) -> None:
    watch = load_policy().assumed.levels(method, k, None).watch
    assert judged(method, k, trimmed(k, head=1.0, more=watch * k - 1.0 + 0.01)).code == "not_measured"
    just_below = judged(method, k, trimmed(k, head=1.0, more=watch * k - 1.0 - 0.01))
    assert (just_below.code, just_below.within_chance) == ("watch", ("not_measured",))


@pytest.mark.parametrize("head", [0.0, 0.05, 0.2, 0.72])
def test_nothing_is_said_to_lose_on_a_guess_and_position_0_is_judged(head: float) -> None:
    verdict = judged("eagle3", 3, trimmed(3, head=head))
    assert verdict.code == ("broken" if head < 0.1 else "watch")
    assert any("position 0 is accepted in" in reason for reason in verdict.reasons) is (head < 0.3)


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(0.012, "healthy"), (0.0198, "not_paying"), (0.04, "harmful"), (None, "watch"), (0.04, "slower")],
)
def test_a_measurement_decides_as_always_and_acceptance_is_not_blamed(seconds: float | None, code: str) -> None:
    """A service may be slower than its own drafts were."""
    baseline = DecodingBaseline(mean_seconds=0.02, requests=5000, speculative=code == "slower")
    assert judged("eagle3", 3, trimmed(3, seconds=seconds), baseline).code == code


# --- a running predictor ---


def drafts(k: int, drafted: float) -> tuple[float, ...]:
    return (0.72 * drafted, *(0.0,) * (k - 1))


async def observed(method: str, k: int, *, adaptive: object = True) -> tuple[PredictorState, dict[str, list[Sample]]]:
    """A predictor with three minutes of drafts, and what is served of it."""
    clock = Clock()
    async with started(PredictorSettings(name="svc", log_paths=("vllm.log",))) as runtime:
        state = runtime.predictors[0].state = PredictorState(
            "svc", reader=runtime.predictors[0].state.reader, clock=clock.monotonic, wall_clock=clock.wall
        )
        observe_event(state, arguments(method=method, num_speculative_tokens=k, enable_adaptive_verification=adaptive))
        observe_event(state, EngineConfig(method=method, num_speculative_tokens=k, speculative=True))
        for minute in range(4):
            clock.advance(60)
            drafted = 5000.0 * minute
            observe_snapshot(state, snapshot(engine(drafted, drafts(k, drafted), k=k, requests=50.0 * minute)))
        served = {family.name: list(family.samples) for family in SpecdecCollector(runtime).collect()}
    return state, served


@pytest.mark.parametrize(("method", "k"), METHODS)
async def test_what_is_served_makes_nothing_of_unverified_tokens(method: str, k: int) -> None:
    state, served = await observed(method, k)
    status = status_of(state)
    assert (status.adaptive_verification, status.verdict.code) == (True, "watch")
    assert PARTLY_VERIFIED in status.verdict.reasons
    assert [known(view.window).acceptance_ratio for view in engines_of(state)] == [None]
    assert {point.acceptance_ratio for point in status.history} == {None}
    (info,) = served["specdec_predictor_info"]
    assert info.labels["verification"] == "adaptive"
    withheld = {"acceptance_ratio", "mean_draft_length", "window_acceptance_ratio"}
    assert not {f"specdec_{name}" for name in withheld} & {name for name, samples in served.items() if samples}
    for name in ("position_acceptance_ratio", "position_conditional_acceptance_ratio"):
        (sample,) = served[f"specdec_{name}"]
        assert sample.labels["position"] == "0"
        assert sample.value == pytest.approx(0.72)
    assert served["specdec_mean_acceptance_length"][0].value == pytest.approx(1.72)
    assert served["specdec_draft_tokens"][0].value == 15_000 * k  # raw counters stay
    assert len(served["specdec_accepted_tokens_per_position"]) == k


@pytest.mark.parametrize(("method", "k"), METHODS)
async def test_without_the_key_all_is_as_before(method: str, k: int) -> None:
    state, served = await observed(method, k, adaptive=False)
    status = status_of(state)
    assert (status.adaptive_verification, status.verdict.code) == (False, "watch")
    assert known(status.window).acceptance_ratio == pytest.approx(0.72 / k)
    (info,) = served["specdec_predictor_info"]
    assert info.labels["verification"] == "full"
    assert served["specdec_window_acceptance_ratio"]
    assert len(served["specdec_position_acceptance_ratio"]) == k


def test_a_new_start_without_the_key_is_judged_by_acceptance_again() -> None:
    clock = Clock()
    state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
    for key, more, what in ((True, 5000.0, "at most 1.36 pay off"), (False, 4000.0, "about 1.36 pay off")):
        observe_event(state, arguments(method="eagle3", enable_adaptive_verification=key))
        observe_event(state, EngineConfig(method="eagle3", num_speculative_tokens=3, speculative=True))
        for drafted in (0.0, more / 2, more):
            clock.advance(60)
            observe_snapshot(state, snapshot(engine(drafted, drafts(3, drafted), requests=drafted / 100)))
        assert what in status_of(state).verdict.headline


# --- a log, and a look ---

LINES = {
    "arguments": ARGUMENTS_HEADER + "non-default args: {'model_tag': 'm', 'speculative_config': {'method': 'eagle3', "
    "'model': 'head', 'num_speculative_tokens': 3, 'enable_adaptive_verification': True}}",
    "config": HEADER.replace("metrics.py", "core.py")
    + "Initializing a V1 LLM engine (v0.33.0) with config: model='m', speculative_config="
    "SpeculativeConfig(method='eagle3', model='head', num_spec_tokens=3), tokenizer='m'",
    "window": HEADER + "SpecDecoding metrics: Mean acceptance length: 1.72, Accepted throughput: 72.00 tokens/s, "
    "Drafted throughput: 300.00 tokens/s, Accepted: 720 tokens, Drafted: 3000 tokens, "
    "Per-position acceptance rate: 0.720, 0.000, 0.000, Avg Draft acceptance rate: 24.0%",
}


def log_of(directory: Path, *, adaptive: bool = True) -> str:
    path = directory / ("adaptive.log" if adaptive else "full.log")
    start = [LINES["arguments"] if adaptive else LINES["arguments"].replace("True", "False"), LINES["config"]]
    path.write_text("\n".join([*start, *[LINES["window"]] * 20, ""]))
    return str(path)


def analyzed(*paths: str) -> str:
    with running.printed() as found:
        analyze(paths)
    return " ".join(found.out.split())


def test_the_report_of_a_log_says_why_it_tells_no_acceptance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    report = analyzed(log_of(tmp_path))
    assert "k = 3, adaptive verification" in report
    assert report.count(PARTLY_VERIFIED) == 2  # instead of percentiles, and as a reason
    assert "24.0%" not in report
    assert "Acceptance rate" not in report
    assert "Mean acceptance length 1.72" in report
    assert "Verdict: watch" in report
    assert "24.0%" in analyzed(log_of(tmp_path, adaptive=False))


def test_a_total_over_several_starts_has_no_rate_if_one_of_them_has_none(tmp_path: Path) -> None:
    report = analyzed(log_of(tmp_path), log_of(tmp_path, adaptive=False))
    assert "120,000" in report  # draft tokens of both
    assert "Acceptance rate" not in report
    assert "acceptance 24.0%" in report  # of the last one, by its own windows


@pytest.mark.parametrize("adaptive", [True, False])
async def test_a_check_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, adaptive: bool) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    # Without step times: the load is not known.
    engines = [replace(engine(count, drafts(3, count)), step_latency=None) for count in (10_000.0, 20_000.0)]
    async with running.predictor() as predictor:
        predictor.version, predictor.bodies = "0.33.0", [render([each]) for each in engines]
        with running.printed() as found:
            code = await check(predictor.url, log_paths=[log_of(tmp_path, adaptive=adaptive)], window_seconds=0.05)
    report = " ".join(found.out.split())
    assert (PARTLY_VERIFIED in report, "k = 3" in report) == (adaptive, True)
    assert ("method eagle3, draft model head, adaptive verification" in report) is adaptive
    assert ("24.0%" in report) is not adaptive
    assert (code, "about 1.36 pay off" in report) == (2, not adaptive)
