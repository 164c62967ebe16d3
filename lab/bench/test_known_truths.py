"""What once misled the speed-up, each on the smallest server that shows it, and real recordings of known truth.

The servers are those of ``make bench-compare``, simulated; their truth is in their parameters. The real ones were
recorded beside vLLM, with truths that a client measured by its own clock.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from bench.compare_counters import recorded
from bench.compare_kinds import MANY, OVERLOADS_WITH_MANY, chosen_services
from bench.compare_live import watched
from bench.compare_machine import Machine, Server, side_by_side
from bench.compare_services import Service
from bench.compare_traffic import Traffic
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.baseline.reading import read_baseline
from specdec_exporter.comparison.compare import Comparison, compare
from specdec_exporter.comparison.several import compare_several
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.chance import Estimate, times
from specdec_exporter.speculation.evidence import DecodingBaseline, Evidence
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.speedup import measure
from specdec_exporter.speculation.steptime import step_times
from specdec_exporter.state import observing
from specdec_exporter.state.observing import observe_baseline, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from support.builders import FIXTURES, Clock, known, latency, numbers

POLICY = load_policy()
MINUTES = 10
SEEDS = range(3)
SERVICES = {each.what: each for each in chosen_services()}


def record(engines: Sequence[Server], seed: str, minutes: float = MINUTES) -> Baseline:
    return recorded(seed, side_by_side(engines, seed, 60.0 * minutes), k=engines[0].k)


def pair(service: Service, seed: int) -> Comparison:
    """Ten minutes of the plain server, then ten of the drafting one."""
    name = f"{service.what} {seed}"
    return compare(record(service.plain, f"{name} plain"), record(service.engines, f"{name} drafting"), POLICY)


def looks(service: Service, minutes: float, every: float = 15.0) -> list[str]:
    """The verdict of an exporter beside the drafting server, scrape by scrape."""
    plain = record(service.plain, f"{service.what} looks")
    states = watched(plain, service.engines, f"{service.what} looks", every=every, seconds=60.0 * minutes)
    return [status_of(state).verdict.code for state in states]


def holds(found: Estimate | None, truth: float) -> bool:
    return found is not None and known(found.low) <= truth <= known(found.high)


# --- A0: the load is no free regressor --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["constant, fixed lengths", "constant, fixed lengths, slow drift"])
def test_at_a_fixed_rate_of_requests_the_noise_of_the_machine_is_no_load(name: str) -> None:
    """1.54 times as fast at the same requests per second; the line through that noise said 0.95."""
    found = [pair(SERVICES[name], seed).speedup for seed in SEEDS]
    assert {each.compared for each in found} == {"same_arrivals"}
    assert sum(holds(each.judged, 1.54) for each in found) >= 2
    assert all(known(each.judged).value > 1.25 for each in found)


def test_of_a_steady_load_only_its_mean_step_time_is_known() -> None:
    plain = known(step_times(record(SERVICES["constant, fixed lengths"].plain, "steady").intervals, POLICY))
    assert plain.steady
    assert (plain.curve.line.beta, plain.curve.line.gamma) == (0.0, 0.0)
    here = plain.whole
    assert plain.seconds(here, POLICY) == pytest.approx(here.step_seconds / here.steps, rel=0.01)
    assert plain.seconds(Load(here.seconds / 2.0, here.counts), POLICY) is None  # twice as many in decode


def test_under_a_load_that_varies_noise_does_not_draw_the_line_through_the_origin() -> None:
    """Poisson arrivals and 10 % of noise: least squares on the load told 0.90 of the truth."""
    traffic = Traffic(per_second=3.0, prompt_tokens=300, answer_tokens=200)
    machine = Machine(base=0.02, token=0.0001, request=0.0003)
    lines = []
    for seed in range(6):
        server = Server(traffic=traffic, machine=machine, wander=0.1)
        plain = known(step_times(record([server], f"poisson {seed}", 30.0).intervals, POLICY))
        assert not plain.steady
        lines.append(plain.curve.line.at(3.0, 900.0) * (1.0 - plain.curve.line.prefill(900.0)))
    assert sorted(lines)[3] == pytest.approx(machine.step(3, 0, 0.0), rel=0.1)


# --- A1: a server that is several times as fast -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "truth", "compared"),
    [("fast, 16 clients, even prompts", 2.97, "closed_loop"), ("fast, constant, light load", 4.37, "same_arrivals")],
)
def test_a_server_that_is_several_times_as_fast_is_told_so(name: str, truth: float, compared: str) -> None:
    comparison = pair(SERVICES[name], 1)
    assert comparison.speedup.compared == compared
    assert holds(comparison.speedup.judged, truth)
    assert comparison.decision.code == "faster"
    assert set(looks(SERVICES[name], 2.0)) == {"healthy"}


def test_two_files_several_and_live_agree_to_the_digit() -> None:
    service = SERVICES["fast, 16 clients, even prompts"]
    plain = record(service.plain, "plain")
    clock, polls = Clock(), []
    state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
    began = clock.now
    times = step_times(plain.intervals, POLICY)
    observe_baseline(state, DecodingBaseline(None, 0.0, speculative=False, model_name="m", step_times=times))
    for at, snapshot in side_by_side(service.engines, "fast", 600.0):
        if at % 15.0 == 0.0:
            polls.append((at, snapshot))
            clock.now = began + at
            observe_snapshot(state, snapshot)
    fast = recorded("fast", polls, k=5)
    other = dataclasses.replace(service.engines[0], k=3)
    two = compare(plain, fast, POLICY).speedup
    three = compare_several([plain, fast, record([other], "k = 3")], POLICY)
    live = known(state.cost)
    assert three.comparisons[0].speedup == two
    assert live.compared == two.compared
    # A file has its seconds to the microsecond.
    for now, then in ((live.speedup, two.judged), (live.draft_cost_ratio, two.break_even_acceptance_ratio)):
        assert list(numbers(now)) == pytest.approx(list(numbers(then)), rel=1e-6)


# --- A2: prefix caches ------------------------------------------------------------------------------------------------


def test_a_cache_that_is_warmer_now_hides_no_loss() -> None:
    """Truth 0.75; with cached prompts taken for computed ones, 1.13 and healthy."""
    service = SERVICES["cache: cold, then 80 % hits, a loss"]
    found = [pair(service, seed).speedup.judged for seed in SEEDS]
    assert any(found)
    assert all(each is None or each.value < 1.0 for each in found)
    assert "healthy" not in looks(service, 2.0)


def test_a_cache_that_is_colder_now_makes_no_gain_a_loss() -> None:
    """Truth 1.20; with cached prompts taken for computed ones, 0.79 and harmful."""
    service = SERVICES["cache: 80 % hits, then cold, a gain"]
    found = [pair(service, seed).speedup.judged for seed in SEEDS]
    assert all(each is None or known(each.high) > 1.0 for each in found)
    assert not {"harmful", "not_paying"} & {*looks(service, 2.0)}


# --- A3: a loss that overloads the server -----------------------------------------------------------------------------


def test_a_loss_that_overloads_the_server_is_harmful_although_no_such_load_was_recorded() -> None:
    service = SERVICES["overload by a loss"]
    assert set(looks(service, 2.0)) == {"harmful"}
    assert {pair(service, seed).decision.code for seed in SEEDS} == {"slower"}


# --- A4: a candidate that overloads -----------------------------------------------------------------------------------


def test_the_overload_of_the_worst_candidate_is_not_the_load_of_the_advice() -> None:
    """k = 3 is 17 % faster than k = 1; k = 7 overloads, and has most of the request-seconds."""
    for seed in SEEDS:
        sides = [dataclasses.replace(OVERLOADS_WITH_MANY, k=k) for k in (0, *MANY)]
        recordings = [record([each], f"k = {each.k} of {seed}") for each in sides]
        assert compare_several(recordings, POLICY).advice.num_speculative_tokens == 3


# --- A5: decoding decides ---------------------------------------------------------------------------------------------


def test_what_decodes_faster_is_faster_whatever_queues_did_meanwhile() -> None:
    """Under bursts the time to first token wanders; a gain of 1.3 in decoding does not."""
    bursts = Traffic(per_second=4.0, burst_seconds=45.0, prompt_tokens=150, answer_tokens=100, acceptance=0.225)
    machine = Machine(base=0.020, request=0.0004, token=0.00005, sharpness=float("inf"))
    plain = record([Server(traffic=bursts, machine=machine)], "plain")
    faster = record([Server(traffic=bursts, machine=machine, k=2)], "faster")
    found = compare(plain, faster, POLICY)
    assert (found.decision.code, found.decision.regression) == ("faster", False)
    assert found.decision.headline.startswith("Faster: decoding is 1.")


def test_of_a_pair_other_latencies_are_shown_and_not_judged() -> None:
    traffic = Traffic(per_second=4.0, prompt_tokens=150, answer_tokens=100)
    one, other = (record([Server(traffic=traffic)], f"replica {number}") for number in (1, 2))
    found = compare(one, other, POLICY, paired=True)
    assert [each.undecided_because for each in found.latencies[1:]] == [
        "of recordings with --paired, only decoding is"
    ] * 2
    assert all(each.mean_ratio for each in found.latencies)


# --- A6: engines that are not alike -----------------------------------------------------------------------------------


def test_uneven_engines_are_compared_each_at_its_own_load() -> None:
    """Truth 0.96: the busy engine loses, the idle one gains. Their sum looks like two engines of the mean load."""
    service = SERVICES["two uneven engines"]
    found = [known(pair(service, seed).speedup.judged) for seed in SEEDS]
    assert sum(holds(each, 0.96) for each in found) >= 2
    assert all(known(each.low) < 1.0 for each in found)
    assert "healthy" not in looks(service, 2.0)


# --- A8: nothing drafted (A7: see test_verdict_memory.py) -------------------------------------------------------------


@pytest.mark.parametrize(("tax", "code"), [(1.216, "harmful"), (1.066, "not_paying"), (1.0, "watch"), (0.9, "watch")])
def test_speculation_that_drafts_nothing_and_costs_time_is_told(tax: float, code: str) -> None:
    """vllm#49548: with a k of 0 at this load, a step takes 6.6 to 21.6 % longer than without speculation."""

    def intervals(step: float) -> list[Load]:
        counts = Counts(steps=1500 / step, step_seconds=1500.0, generation_tokens=1510 / step, first_tokens=10 / step)
        return [Load(15.0, msgspec.structs.replace(counts, draft_tokens=0.0, prompt_tokens=100.0))] * 40

    plain = known(step_times(intervals(0.077), POLICY))
    cost = measure(intervals(0.077 * tax), plain, POLICY)
    verdict = judge(Evidence(state="not_drafting", cost=cost), POLICY).verdict
    assert verdict.code == code
    slower = verdict.headline == "Nothing is drafted, and decoding is slower than without speculation"
    assert slower == (code != "watch")


# --- A9: batches of a pair are of the same minutes --------------------------------------------------------------------


def test_the_batches_of_a_pair_go_by_time_and_not_by_number() -> None:
    """One replica idled for a third of the time: its intervals are fewer, and all of the later minutes."""
    drift = random.Random(3)
    factors = [drift.lognormvariate(0.0, 0.2) for _ in range(30)]

    def side(speed: float, first: int) -> list[Load]:
        steps = [0.02 * factor / speed for factor in factors]
        return [
            Load(
                20.0,
                Counts(steps=20 * 8 / step, step_seconds=160.0, generation_tokens=164 / step, first_tokens=4 / step),
                ends=20.0 * (number + 1),
            )
            for number, step in enumerate(steps)
            if number >= first
        ]

    plain = known(step_times(side(1.0, 0), POLICY))
    later = side(1.1, 10)
    timed, untimed = (
        known(measure(loads, plain, POLICY, paired=True).speedup)
        for loads in (later, [msgspec.structs.replace(each, ends=None) for each in later])
    )
    assert holds(timed, 1.1)
    assert known(timed.high) / known(timed.low) < known(untimed.high) / known(untimed.low)


def test_a_scrape_measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[PredictorState] = []
    service = SERVICES["fast, constant, light load"]
    real = observing._measure_cost

    def counted(state: PredictorState) -> None:
        calls.append(state)
        real(state)

    monkeypatch.setattr(observing, "_measure_cost", counted)
    plain = record(service.plain, "once")
    scrapes = list(watched(plain, service.engines, "once", every=15.0, seconds=60.0))
    assert len(calls) == len(scrapes) + 900 / 15 + 1  # and the look at the baseline


# --- Real recordings --------------------------------------------------------------------------------------------------

REAL = FIXTURES / "recordings" / "real-vllm"
GAIN = FIXTURES / "recordings" / "gain"
PAIRS = {
    "good4": "plain4",
    "bad4": "plain4",
    "good1-short": "plain1-short",
    "k1-open": "plain-open",
    "gain-one-client-drafting": "gain-one-client-plain",
    "gain-fixed-rate-drafting": "gain-fixed-rate-plain",
    "loss-four-clients-drafting": "loss-four-clients-plain",
}


def truths(name: str) -> list[float]:
    """What the client measured: time per output token, and tokens per second where clients wait for answers."""
    before, after = (json.loads((REAL / f"{each}.truth.json").read_text()) for each in (PAIRS[name], name))
    key = "mean_tpot_seconds" if "mean_tpot_seconds" in before else "time_per_output_token_seconds"
    rates = [] if "open" in name or "rate" in name else [after["tokens_per_second"] / before["tokens_per_second"]]
    return [before[key] / after[key], *rates]


def replayed(recording: Baseline) -> Iterator[tuple[float, Snapshot]]:
    """The counters of a server that did what was recorded, at the end of each interval."""
    counts, at = Counts(), 0.0
    for load in (Load(0.0, Counts()), *recording.intervals):
        counts, at = counts + load.counts, at + load.seconds
        steps = counts.steps or 0.0
        engine = EngineSnapshot(
            model_name=recording.model_name or "",
            engine="0",
            drafts=counts.drafts or 0.0,
            draft_tokens=counts.draft_tokens or 0.0,
            accepted_tokens=counts.accepted_tokens or 0.0,
            generation_tokens=counts.generation_tokens or 0.0,
            prompt_tokens=counts.prompt_tokens or 0.0,
            preemptions=0.0,
            time_to_first_token=latency(counts.first_tokens or 0.0),
            step_latency=msgspec.structs.replace(latency(steps), sum=counts.step_seconds or 0.0),
            requests_running=1.0,
        )
        yield at, Snapshot(engines=(engine,), engine_generation="v1", stats_present=True)


def live(plain: Baseline, drafting: Baseline) -> PredictorState:
    """The exporter beside a server that does again what was recorded."""
    clock = Clock()
    state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
    times = step_times(plain.intervals, POLICY)
    name = drafting.model_name or ""
    observe_baseline(state, DecodingBaseline(None, 0.0, speculative=False, model_name=name, step_times=times))
    began = clock.now
    for at, snapshot in replayed(drafting):
        clock.now = began + at
        observe_snapshot(state, snapshot)
    return state


def files(folder: Path, *names: str) -> list[Baseline]:
    return [read_baseline(str(folder / f"{name}.yaml")) for name in names]


@pytest.mark.parametrize("name", PAIRS)
def test_beside_a_real_vllm_what_clients_measured_lies_in_the_interval(name: str) -> None:
    plain, drafting = files(REAL, PAIRS[name], name)
    comparison, state, true = compare(plain, drafting, POLICY), live(plain, drafting), truths(name)
    told = (comparison.speedup.judged, known(state.cost).speedup)
    assert all(any(holds(each, truth) for truth in true) for each in told), (told, true)
    wrong = {"harmful", "not_paying", "slower"} if max(true) > 1.05 else {"healthy", "faster"}
    assert not wrong & {comparison.decision.code, status_of(state).verdict.code}


def test_a_gain_of_4_3_is_told_by_two_files_by_three_and_live() -> None:
    plain, k3, fast = files(GAIN, "plain", "k3", "fast")
    two, three, state = compare(plain, fast, POLICY), compare_several([plain, k3, fast], POLICY), live(plain, fast)
    assert three.comparisons[1].speedup == two.speedup
    assert holds(two.speedup.judged, 4.3)
    assert holds(known(state.cost).speedup, 4.3)
    assert (two.decision.code, status_of(state).verdict.code) == ("faster", "healthy")
    assert times(known(two.speedup.judged)) in two.decision.headline
    assert three.advice.recording == "fast"
