"""What a draft costs here, measured while the exporter runs: break-even, speed-up, k and verdict at like load.

After a deliberate change: ``pytest tests/unit/test_measured.py --update-golden`` and read the diff.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from specdec_exporter.baseline.recording import Recorder
from specdec_exporter.config import PredictorSettings
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.serving.families.benefit import BENEFIT, LOAD
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.speculation.evidence import DecodingBaseline
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.steptime import step_times
from specdec_exporter.speculation.verdict import Verdict
from specdec_exporter.state.benefits import ModelBenefit, benefits_of
from specdec_exporter.state.observing import observe_baseline, observe_failure, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from specdec_exporter.state.status import PredictorStatus
from specdec_exporter.state.view import evidence_of
from support.builders import Clock, engine, exposed, known, latency

POLICY = load_policy()
# The guide's server: EAGLE-3, k = 3. Without speculation it gave 47.84 tokens/s to one request.
PLAIN_STEP_SECONDS = 1 / 47.84
CODE, CODE_SPEED = (0.50, 0.40, 0.33), 88.25
CHAT, CHAT_SPEED = (0.16, 0.02, 0.01), 0.99 * 47.84


class Decoding:
    """Counters of one engine that decodes a number of requests at a time, 100 steps each, as slow as told."""

    def __init__(self, clock: Clock, curve: Sequence[float] = (), *, model: str = "tiny") -> None:
        self.clock, self.curve, self.model = clock, tuple(curve), model
        self.steps = self.step_seconds = self.preemptions = 0.0
        self.started: float | None = None

    def run(self, seconds: float, step_seconds: float, requests: float = 1.0) -> None:
        """Decode for some time; the clock is the caller's to advance."""
        steps = requests * seconds / step_seconds
        self.steps += steps
        self.step_seconds += steps * step_seconds

    def engine(self) -> EngineSnapshot:
        positions = tuple(self.steps * rate for rate in self.curve)
        counted = engine(self.steps, positions, k=len(self.curve), requests=self.steps / 100, running=1)
        drafting = {} if self.curve else dict.fromkeys(("drafts", "draft_tokens", "accepted_tokens"))
        return msgspec.structs.replace(
            counted,
            model_name=self.model,
            prompt_tokens=None,
            preemptions=self.preemptions,
            step_latency=msgspec.structs.replace(latency(self.steps), sum=self.step_seconds),
            accepted_tokens_per_position=counted.accepted_tokens_per_position or None,
            **drafting,
        )

    def snapshot(self) -> Snapshot:
        return Snapshot(
            engines=(self.engine(),),
            engine_generation="v1",
            stats_present=True,
            process_start_time_seconds=self.started,
        )


def plain(*loads: tuple[float, float], intervals: int = 40, model: str = "tiny") -> DecodingBaseline:
    """A baseline without speculation, recorded at these pairs of concurrency and step time."""
    clock = Clock()
    server = Decoding(clock, model=model)
    recorder = Recorder(server.snapshot(), clock.monotonic())
    for requests, seconds in loads:
        for index in range(intervals):
            server.run(15.0, seconds * (1.0 + 0.01 * (-1) ** index), requests)
            clock.advance(15.0)
            recorder.observe(server.snapshot(), clock.monotonic())
    found = step_times([load for (load,) in recorder.increases().moments], POLICY)
    return DecodingBaseline(None, 0.0, speculative=False, model_name=model, step_times=found)


STEPS_OF_20_MS = plain((1.0, 0.02))


def beginning(
    curve: Sequence[float] = (0.5,), baseline: DecodingBaseline | None = STEPS_OF_20_MS
) -> tuple[PredictorState, Decoding]:
    """A state that has read a server once."""
    clock = Clock()
    state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
    observe_baseline(state, baseline)
    server = Decoding(clock, curve)
    observe_snapshot(state, server.snapshot())
    return state, server


def step(
    state: PredictorState, server: Decoding, step_seconds: float, requests: float = 1.0, seconds: float = 15.0
) -> None:
    """Let the server decode, and read it."""
    server.run(seconds, step_seconds, requests)
    server.clock.advance(seconds)
    observe_snapshot(state, server.snapshot())


def watched(
    curve: Sequence[float],
    step_seconds: float,
    *,
    baseline: DecodingBaseline | None,
    requests: float = 1.0,
    seconds: float = 600.0,
    every: float = 15.0,
) -> PredictorState:
    """A state that watched a server decode at an even pace, scraped every few seconds."""
    state, server = beginning(curve, baseline)
    for index in range(int(seconds / every)):
        step(state, server, step_seconds * (1.0 + 0.01 * (-1) ** index), requests, every)
    return state


def judged(curve: Sequence[float], tokens_per_second: float, baseline: DecodingBaseline | None) -> PredictorStatus:
    """The guide's server with speculation: a request gets so many tokens per second."""
    return status_of(watched(curve, (1.0 + sum(curve)) / tokens_per_second, baseline=baseline))


def cost_of(state: PredictorState) -> float:
    """The draft cost ratio, here with one draft token: by so much steps are longer."""
    return known(known(state.cost).draft_cost_ratio).value


def benefit(state: PredictorState) -> ModelBenefit:
    ((model, found),) = benefits_of(state)
    assert model == "tiny"
    return found


# --- the guide's tables ---


@pytest.mark.parametrize(
    ("curve", "speed", "headline", "speedup", "cost"),
    [
        (CODE, CODE_SPEED, "Speculation is paying off", 1.84, 0.07),
        (CHAT, CHAT_SPEED, "Speculation does not pay: decoding is no faster with it", 0.99, 0.067),
    ],
)
def test_the_guides_workloads(
    curve: tuple[float, ...], speed: float, headline: str, speedup: float, cost: float
) -> None:
    status = judged(curve, speed, plain((1.0, PLAIN_STEP_SECONDS)))
    assert (status.verdict.headline, status.break_even.basis) == (headline, "measured")
    measured = known(status.measured)
    assert known(measured.speedup).value == pytest.approx(speedup, abs=0.005)
    assert known(measured.draft_cost_ratio).value == pytest.approx(cost, abs=0.002)
    # k = 1 would give 1.08x of the chat if the cost is all marginal, and lose if it is all fixed.
    off = "Switch speculation off at this load, or limit it to smaller batches."
    assert (status.verdict.action == off) is (curve == CHAT)


# --- a measurement outweighs acceptance ---


def verdict(speedup: float, rate: float, *, noise: float = 0.0) -> Verdict:
    """The verdict on one speed-up at one acceptance, k = 1; ``noise`` is the relative swing of the step time."""
    state, server = beginning((rate,))
    for index in range(20 if noise else 40):
        step(state, server, 0.02 * (1 + rate) / speedup * (1 + noise * (-1) ** (index // 2)))
    return judge(evidence_of(state), POLICY).verdict


@pytest.mark.parametrize(
    ("speedup", "rate", "code"),
    [
        (1.6, 0.03, "healthy"),
        (1.6, 0.33, "healthy"),
        (1.1, 0.06, "healthy"),
        (0.97, 0.72, "not_paying"),
        (1.0, 0.05, "not_paying"),
        (0.8, 0.72, "harmful"),
        (0.8, 0.05, "harmful"),
    ],
)
def test_a_measured_speed_up_decides_whatever_is_accepted(speedup: float, rate: float, code: str) -> None:
    assert verdict(speedup, rate).code == code


@pytest.mark.parametrize("rate", [0.2, 0.6, 0.9])
def test_a_speed_up_within_chance_is_no_good_news_whatever_is_accepted(rate: float) -> None:
    found = verdict(1.03, rate, noise=0.3)
    assert (found.code, found.basis) == ("watch", "measured")
    assert found.headline == "The measurement does not tell yet whether speculation pays"
    assert "measure for longer" in found.action


# --- like load ---


def test_the_step_time_of_the_same_load_counts() -> None:
    baseline = plain((1.0, 0.02), (4.0, 0.023), (16.0, 0.035))
    for requests, seconds in ((1.0, 0.02), (4.0, 0.023), (8.0, 0.027), (16.0, 0.035), (30.0, 0.049)):
        state = watched((0.5, 0.4), 1.2 * seconds, baseline=baseline, requests=requests)
        cost = known(state.cost)
        assert cost.concurrency == pytest.approx(requests)
        assert known(cost.draft_cost_ratio).value == pytest.approx(0.1, rel=0.08)
        assert known(cost.speedup).value == pytest.approx(1.9 / 1.2, rel=0.015)


def test_at_a_load_that_the_baseline_does_not_have_good_acceptance_is_no_good_news() -> None:
    status = status_of(watched((0.9, 0.8), 0.05, baseline=STEPS_OF_20_MS, requests=30.0))
    measured, verdict = known(status.measured), status.verdict
    assert (measured.speedup, measured.draft_cost_ratio, status.break_even.basis) == (None, None, "assumed")
    assert (verdict.code, verdict.basis) == ("watch", "assumed")
    assert verdict.headline == "The measurement does not tell yet whether speculation pays"
    assert verdict.reasons[0] == f"speed-up not known: {measured.why_unknown}"
    assert known(measured.why_unknown).startswith("30.0 requests are in decode at a time and 6 come per second")
    assert verdict.action == f"To know, {measured.remedy}."
    (row,) = status.by_load
    assert (row.concurrency, row.speedup) == (32, None)


def test_a_baseline_of_another_model_measures_nothing() -> None:
    assert watched((0.5,), 0.025, baseline=plain((1.0, 0.02), model="large")).cost is None


# --- what is left out ---


def run(state: PredictorState, server: Decoding, intervals: int, step_seconds: float) -> None:
    for _ in range(intervals):
        step(state, server, step_seconds)


@pytest.mark.parametrize("set_by", [3600.0, -3600.0, -1_790_000_000.0])
@pytest.mark.parametrize("when", [0, 2, 5])
def test_a_wall_clock_that_is_set_changes_nothing(set_by: float, when: int) -> None:
    clock = Clock()
    state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
    observe_baseline(state, STEPS_OF_20_MS)
    server = Decoding(clock, (0.5,))
    server.started = clock.wall()
    observe_snapshot(state, server.snapshot())
    for turn, step_seconds in enumerate([0.2] * 4 + [0.025] * 5):  # a minute of slow first steps
        clock.ahead += set_by if turn == when else 0.0
        step(state, server, step_seconds)
        assert (known(state.cost).steps == 0.0) == (turn < 4)
        assert turn >= 4 or known(known(state.cost).unknown).why.startswith("the first 60 s after a start are left out")
    assert cost_of(state) == pytest.approx(0.25, rel=0.05)


def test_a_restart_in_between_is_left_out_and_the_counters_go_on() -> None:
    state, first = beginning()
    run(state, first, 6, 0.025)
    ((_, before),) = benefit(state).loads
    seconds = before.load.seconds
    second = Decoding(first.clock, (0.5,))
    second.started = first.clock.wall() + 115.0
    first.clock.advance(100.0)
    run(state, second, 5, 0.5)  # still slow: within the first minute
    run(state, second, 6, 0.025)
    assert cost_of(state) == pytest.approx(0.25, rel=0.05)
    ((_, after),) = benefit(state).loads
    assert after.load.seconds == pytest.approx(seconds + 6 * 15.0)


def test_intervals_with_preemptions_are_left_out() -> None:
    state, server = beginning()
    run(state, server, 10, 0.025)
    server.preemptions = 1.0
    step(state, server, 3.0)
    run(state, server, 10, 0.025)
    assert cost_of(state) == pytest.approx(0.25, rel=0.05)
    ((_, totals),) = benefit(state).loads
    assert totals.load.seconds == pytest.approx(20 * 15.0)


def test_a_predictor_that_is_gone_has_no_measurement() -> None:
    state = watched((0.5,), 0.025, baseline=STEPS_OF_20_MS)
    assert known(state.cost).steps > 0
    observe_failure(state, "connection refused")
    assert benefit(state).cost is None
    assert benefit(state).measured is None


def test_frequent_scrapes_give_the_same_as_rare_ones() -> None:
    values = [
        known(known(watched((0.5,), 0.025, baseline=STEPS_OF_20_MS, every=every).cost).speedup).value
        for every in (1.0, 5.0, 15.0, 60.0)
    ]
    assert values == pytest.approx([1.5 / 1.25] * 4, rel=0.02)


# --- by load ---


def test_the_bins_are_bounded_and_add_up() -> None:
    state, server = beginning(baseline=plain((1.0, 0.02), (8.0, 0.02)))
    for power in range(40):
        step(state, server, 0.025, 1.3**power)
    loads = benefit(state).loads
    assert [bound for bound, _ in loads] == [1 << power for power in range(12)]
    assert sum(totals.load.seconds for _, totals in loads) == pytest.approx(40 * 15.0)
    assert sum(totals.load.steps for _, totals in loads) == pytest.approx(server.steps)
    compared = {bound: totals.speedup for bound, totals in loads if totals.speedup is not None}
    assert compared == pytest.approx({1: 1.2, 2: 1.2, 4: 1.2, 8: 1.2, 16: 1.2}, rel=0.02)


# --- families ---


async def test_the_families_are_the_golden_ones(golden: Callable[[str, str], None]) -> None:
    def prepare(predictor: PredictorRuntime) -> None:
        baseline = plain((1.0, PLAIN_STEP_SECONDS))
        predictor.state = watched(CODE, (1.0 + sum(CODE)) / CODE_SPEED, baseline=baseline)

    names = {family.name for group in (BENEFIT, LOAD) for family in group.families}
    shown = [
        line
        for line in await exposed(PredictorSettings(name="svc"), prepare)
        if (line.split()[2] if line.startswith("#") else line.partition("{")[0]) in names
    ]
    golden("measured", "".join(shown))
    assert {line.split()[2] for line in shown if line.startswith("# TYPE")} == names
