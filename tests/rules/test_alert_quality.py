"""The alert quality bench measures what it says: its traces, its replay and its scores on cases with known outcomes."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import yamltext
from bench import operation_traces
from bench.acceptance_weeks import Requests, draft_length
from bench.alert_replay import NAIVE, RULES, Samples, alert_rules, episodes, replay
from bench.alert_scenarios import (
    COLLAPSE,
    INCIDENTS,
    LOW_PAGE,
    LOW_TICKET,
    MEAN_TICKET,
    NAIVE_PAGE,
    TAIL_PAGE,
    TAIL_TICKET,
)
from bench.alert_traces import MINUTE, START, Latency, Minute, Observations, bounds, pinned, replica, scaled, wander
from bench.batching_server import MEAN_TOKENS, STEP_SECONDS, STEP_SECONDS_PER_REQUEST, batching_server
from bench.confidence import MISSED, highest_count, highest_mean, highest_share, lowest_share
from bench.latency_trials import MEAN, TAIL, Case, run_cases
from bench.operation_traces import OPERATIONS, OUTAGES, Operation, named
from bench.operations import Kind, Told, together, told
from bench.scenario_trials import Watched, score
from bench.weeks import Weeks
from promtool import Promtool
from rules.scenario import FAMILIES, Source

LABELS = {"inference_service": "chat", "model_name": "m"}


def test_every_alert_is_replayed() -> None:
    alerts = [
        rule for group in yamltext.load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule
    ]

    assert len(alert_rules()) == len(alerts) + len(NAIVE)


@pytest.mark.parametrize(
    ("held", "hold", "keep", "fired"),
    [
        ([], 120, 0, []),
        ([60, 120], 120, 0, []),  # two minutes are needed, from the first time to the last
        ([60, 120, 180], 120, 0, [(180, 240)]),
        ([60, 120, 240, 300], 120, 0, []),  # a gap starts the waiting anew
        ([60, 120, 180, 300], 120, 120, [(180, 480)]),  # kept firing over a gap
        ([60, 120, 180, 420, 480], 120, 120, [(180, 360)]),  # a longer gap ends it, and the waiting starts anew
        ([60], 0, 0, [(60, 120)]),
        ([540, 600], 0, 300, [(540, 600)]),  # the replay ends first
    ],
)
def test_for_and_keep_firing_for(held: list[float], hold: int, keep: int, fired: list[tuple[float, float]]) -> None:
    assert episodes(held, interval=60, hold=hold, keep=keep, end=600) == fired


def test_for_and_keep_firing_for_are_as_in_prometheus(promtool: Promtool, tmp_path: Path) -> None:
    rng = random.Random(7)
    up = list(itertools.chain.from_iterable([number % 2] * rng.randrange(1, 8) for number in range(40)))
    rule = {"alert": "Up", "expr": "up == 1", "for": "3m", "keep_firing_for": "4m"}
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "up", "interval": "1m", "rules": [rule]}]}))
    fired = episodes(
        [60.0 * minute for minute, value in enumerate(up) if value],
        interval=60,
        hold=180,
        keep=240,
        end=60.0 * len(up),
    )
    expected = [
        {
            "expr": 'count(ALERTS{alertstate="firing"}) or vector(0)',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": int(any(a <= 60 * minute < b for a, b in fired))}],
        }
        for minute in range(len(up))
    ]
    series = [{"series": "up", "values": " ".join(map(str, up))}]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": expected}
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}))

    promtool.test_rules(file)

    assert len(fired) > 3


def test_boundaries_are_those_of_a_real_predictor() -> None:
    assert bounds("tpot")[:5] == (0.01, 0.025, 0.05, 0.075, 0.1)
    assert bounds("e2e")[:2] == (0.3, 0.5)
    assert bounds("ttft")[-1] == 2560.0


def test_a_tail_is_as_heavy_as_it_is_said_to_be() -> None:
    rng = random.Random(3)
    usual = Latency(0.02, 0.3)
    with_tail = Latency(0.02, 0.3, tail_share=0.2, tail_factor=50.0)

    drawn = [with_tail.draw(rng) for _ in range(5000)]

    assert sum(seconds > 0.2 for seconds in drawn) / len(drawn) == pytest.approx(0.2, abs=0.02)
    assert sum(usual.draw(rng) < 0.02 for _ in range(5000)) / 5000 == pytest.approx(0.5, abs=0.03)
    assert usual.times(2.0).median == 0.04


@given(st.lists(st.floats(1e-4, 1e4), max_size=40))
def test_histograms_are_cumulative_and_complete(medians: list[float]) -> None:
    rng, seen = random.Random(1), Observations("tpot")
    for median in medians:
        seen.observe(1, Latency(median, 0.0), rng)

    figures = seen.figures()
    buckets = [count for suffix, count in figures.items() if suffix.startswith("bucket")]

    assert buckets == sorted(buckets)
    assert buckets[-1] == figures["count"] == len(medians)
    assert figures["sum"] == pytest.approx(math.fsum(medians))


@given(st.floats(0.01, 0.99))
def test_a_scaled_curve_has_the_acceptance_that_was_asked_for(acceptance: float) -> None:
    curve = scaled((0.85, 0.72, 0.59), acceptance)

    assert sum(curve) / 3 == pytest.approx(acceptance, abs=0.005)
    assert all(1 >= first >= second > 0 for first, second in itertools.pairwise(curve))


def test_a_replica_s_counters_grow_until_it_restarts_and_agree_with_each_other() -> None:
    minutes = [Minute(latency={"tpot": Latency(0.02, 0.3)})] * 20
    minutes[10:13] = [Minute(up=False), Minute(up=False), Minute(restart=True)]
    found = {each.series.partition("{")[0]: each for each in replica(minutes, random.Random(2), labels=LABELS)}

    drafts = found["specdec_drafts_total"]
    falls = [at for at, (a, b) in enumerate(itertools.pairwise(drafts.values)) if b < a]

    assert len(drafts.values) == 18
    assert falls == [9]
    assert found["specdec_up"].values.count(0.0) == 2
    assert drafts.at[-1] - drafts.at[0] == 19 * MINUTE
    assert found["specdec_draft_tokens_total"].values == [3 * value for value in drafts.values]
    assert sum(drafts.values[9:10]) / 10 == pytest.approx(600, rel=0.1)
    acceptance = found["specdec_accepted_tokens_total"].values[9] / found["specdec_draft_tokens_total"].values[9]
    assert acceptance == pytest.approx(0.72, abs=0.02)


def test_minutes_without_a_scrape_are_counted_by_the_next() -> None:
    minutes = [
        Minute(finished={"tpot": [0.02, 0.03]}, requests=0, scraped=number % 4 == 3, drafts=10) for number in range(12)
    ]
    found = {each.series.partition("{")[0]: each for each in replica(minutes, random.Random(2), labels=LABELS)}

    requests = found["specdec_time_per_output_token_seconds_count"]

    assert requests.values == [8, 16, 24]
    assert requests.at[1] - requests.at[0] == 4 * MINUTE
    assert len(found["specdec_up"].values) == 3
    assert found["specdec_drafts_total"].values[-1] == pytest.approx(120, rel=0.3)


def test_a_wander_has_its_spread_and_its_memory() -> None:
    steps = [math.log(factor) for factor in itertools.islice(wander(random.Random(5), 0.1, 0.8), 20_000)]
    variance = sum(step * step for step in steps) / len(steps)

    assert math.sqrt(variance) == pytest.approx(0.1, rel=0.05)
    assert sum(a * b for a, b in itertools.pairwise(steps)) / len(steps) == pytest.approx(0.8 * variance, rel=0.05)


def test_requests_of_a_batching_server_slow_each_other_down() -> None:
    def latencies(rate: float) -> list[float]:
        return [latency for _, latency in batching_server(random.Random(4), lambda _: rate, until=40_000.0)]

    alone, together = latencies(0.002), latencies(0.25)

    assert len(together) == pytest.approx(10_000, rel=0.05)
    assert min(alone) == pytest.approx(STEP_SECONDS + STEP_SECONDS_PER_REQUEST)
    # Little: as many run as arrive within the time that their tokens take.
    expected = STEP_SECONDS / (1 - 0.25 * MEAN_TOKENS * STEP_SECONDS_PER_REQUEST)
    assert statistics.mean(together) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("session", [1, 5])
def test_requests_are_as_alike_as_they_are_said_to_be(session: int) -> None:
    kind = Requests(200, 0.6, 0.15, session)
    drawn = list(itertools.chain.from_iterable(kind.minutes(random.Random(6), 3000, 3000)))
    drafts = [1 / draft_length(each) for each in drawn]
    mean = sum(map(math.prod, zip(drawn, drafts, strict=True))) / sum(drafts)
    variance = sum(weight * (each - mean) ** 2 for each, weight in zip(drawn, drafts, strict=True)) / sum(drafts)

    assert len(drawn) == pytest.approx(20_000, rel=0.05)
    assert len(set(drawn)) == pytest.approx(20_000 / session, rel=0.05)
    assert mean == pytest.approx(0.6, abs=0.01)
    assert variance == pytest.approx(0.15 * 0.6 * 0.4, rel=0.1)


@pytest.mark.debian
def test_a_past_becomes_history(tmp_path: Path) -> None:
    """A day and more of scrapes before the watched span; then everything is 1.6 times slower."""
    usual, day, watched = Latency(0.02, 0.3), 26 * 60, 110
    minutes = [
        Minute(
            drafts=0,
            requests=20,
            latency={"tpot": usual.times(1.0 if number < day else 1.6)},
            scraped=number >= day or number % 20 == 0,
        )
        for number in range(day + watched)
    ]
    samples = replica(minutes, random.Random(8), labels=LABELS, start=START - MINUTE * day)
    span = (START + 30 * MINUTE, START + watched * MINUTE)

    fired = replay(samples, tmp_path, span, past=day * MINUTE, alerts=(MEAN,))

    assert [each.alert for each in fired["chat"]] == [MEAN]


@pytest.mark.debian
def test_known_incidents_are_caught_and_a_service_that_is_well_is_not(tmp_path: Path) -> None:
    """One database: a collapse, a service that is well, one with a slower body, one with a control."""
    rng = random.Random(11)
    usual, well = Latency(0.02, 0.3), {"inference_service": "well", "model_name": "m"}
    slow = {"inference_service": "slow", "model_name": "m"}
    collapse = INCIDENTS[COLLAPSE]("collapse", rng)
    minutes = [Minute(latency={"tpot": usual})] * 110
    slower = [Minute(latency={"tpot": usual.times(1.4)})] * 110
    samples: list[Samples] = [
        *collapse.samples,
        *replica(minutes, rng, labels=well),
        *pinned({"tpot": usual}, rng, minutes=110, requests=5000, labels=well),
        *replica(slower, rng, labels=slow),
        *pinned({"tpot": usual}, rng, minutes=110, requests=5000, labels=slow),
    ]

    fired = replay(
        samples, tmp_path, (START + 30 * MINUTE, START + 110 * MINUTE), alerts=(LOW_PAGE.split()[0], MEAN, TAIL)
    )

    alerts = {(service, each.alert) for service, found in fired.items() for each in found}
    assert {("collapse", "SpecDecodeAcceptanceLow"), ("slow", MEAN)} <= alerts
    assert "well" not in fired
    assert ("collapse", MEAN) not in alerts
    page = next(each for each in fired["collapse"] if each.severity == "critical")
    assert 15 <= (page.since - START) / MINUTE - collapse.due[LOW_PAGE] <= 25


def test_trials_know_whose_alarm_it_was() -> None:
    body = Case(trials=4, requests=300, body=1.6)
    nothing, outcome = run_cases([Case(trials=3, requests=300), body], seed=1)

    assert nothing.case.nothing_slower
    assert nothing.caught(MEAN, TAIL) == 0
    assert outcome.caught(MEAN) == 4
    assert outcome.worst_place(MEAN) == 1.0
    assert 15 <= outcome.median_delay(MEAN) <= 25


def test_scores_count_delays_misses_and_false_alarms() -> None:
    def watched(*fired: tuple[float, float], due: int | None = 60) -> Watched:
        quiet = 90 if due is None else due
        return Watched("x", 90, quiet, {} if due is None else {LOW_PAGE: due}, {LOW_PAGE: fired} if fired else {})

    found = score(
        LOW_PAGE,
        [
            watched((72, 90)),
            watched(),  # missed
            watched((50, 55), (80, 90)),  # a false alarm before it, then late
            watched((50, 70)),  # false, and still firing when it is due
            watched((40, 45), (70, 75), due=None),  # nothing is wrong: two false ones
            Watched("x", 90, 60, {LOW_TICKET: 60}, {LOW_PAGE: [(70, 80)]}),  # neither due nor false
        ],
    )

    assert found.due == 4
    assert found.delays == [12, 20, 0]
    assert found.false_alarms == 4
    assert found.quiet_minutes == 5 * 30 + 60
    assert found.false_per_month == pytest.approx(4 * 30 * 1440 / 210)


def test_weeks_count_alarms_by_severity_and_the_first_alert_that_finds() -> None:
    week = 7 * 1440
    mean, tail = MEAN_TICKET, TAIL_TICKET

    def watched(fired: dict[str, tuple[float, ...]]) -> Watched:
        episodes = {alert: [(at, at + 30) for at in since] for alert, since in fired.items()}
        return Watched("x", 2 * week + 360, 2 * week, {mean: 2 * week, tail: 2 * week}, episodes)

    two_weeks_each = Weeks(
        [
            watched({mean: (100, 200, 2 * week + 40), tail: (2 * week + 20,), TAIL_PAGE: (5,), NAIVE_PAGE: (1, 2, 3)}),
            watched({mean: (2 * week - 10,)}),
            watched({}),
        ]
    )

    assert two_weeks_each.number == 6
    assert two_weeks_each.alarms("warning") == [2, 1, 0]
    assert two_weeks_each.alarms("critical") == [1, 0, 0]
    assert two_weeks_each.alarms("critical", naive=True) == [3, 0, 0]
    assert two_weeks_each.per_week("warning") == pytest.approx((0.5, highest_mean([2, 1, 0]) / 2))
    assert two_weeks_each.delays(mean, tail) == [0, 20]  # one that fires already has found it


@pytest.mark.parametrize(
    ("fired", "heard"),
    [
        ([], Told(0, None, 0.0, None)),
        ([(20, 30), (310, 320)], Told(0, None, 0.0, None)),  # before and after
        ([(110, 330)], Told(1, 10, 1.0, 30)),
        ([(90, 330)], Told(1, 0, 1.0, 30)),
        ([(110, 150)], Told(1, 10, 40 / 190, None)),  # it ends by itself
        ([(200, 250), (275, 300)], Told(2, 100, 0.75, 0)),
    ],
)
def test_what_is_heard_of_a_cause_between_two_minutes(fired: list[tuple[float, float]], heard: Told) -> None:
    assert told(fired, 100, 300) == heard


def test_alerts_of_one_time_are_one_page_and_a_wanted_alert_is_one_that_stays() -> None:
    page, other = "SpecDecodeTargetDown critical", "SpecDecodeRestartLoop critical"
    naive: Mapping[str, list[tuple[float, float]]] = {f"{NAIVE[2]} critical": [(101, 102), (103, 104)]}

    def kind(operation: Operation, *fired: Mapping[str, list[tuple[float, float]]]) -> Kind:
        return Kind("x", "exporter", operation, [Watched("x", 400, 100, {}, {**each, **naive}, 300) for each in fired])

    down = Operation(make=OUTAGES["all pods gone"].make, page="SpecDecodeTargetDown", within=20, ends=30)
    well: Mapping[str, list[tuple[float, float]]] = {page: [(110.0, 320.0)], other: [(120.0, 330.0)]}
    quiet = Operation(make=down.make, recurs=True)

    assert together([(5, 9), (1, 2), (2, 4), (6, 7)]) == [(1, 4), (5, 9)]
    assert kind(down, well).number("critical") == 1
    assert kind(down, well).naive(NAIVE[2]) == 2
    assert kind(down, well, well).row().holds
    assert not kind(down, well, {}).row().holds
    assert not kind(down, {page: [(110, 200), (240, 320)]}).row().holds  # a gap
    assert not kind(down, {page: [(125, 320)]}).row().holds  # late
    assert not kind(down, {page: [(110, 335)]}).row().holds  # long after
    assert not kind(down, {other: [(110, 320)]}).row().holds  # another alert
    assert kind(quiet, {}).row().holds
    assert not kind(quiet, well).row().holds
    assert kind(quiet, well).per_month(1) == pytest.approx(30 * 1440 / 400)


def test_a_rollout_changes_one_replica_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_traces, "HISTORY", 60)  # minutes, instead of more than a day
    trace = OPERATIONS[named("k 3 -> 5, a broken head", "exporter")]("chat", random.Random(3))
    positions = [each for each in trace.samples if each.series.startswith("specdec_num_speculative_tokens")]
    up = [each for each in trace.samples if each.series.startswith("specdec_up")]

    for number, each in enumerate(positions):
        first = next(at for at, k in zip(each.at, each.values, strict=True) if k == 5)
        assert (first - START) // MINUTE == 60 + 15 * number + 2
    assert [each.values.count(0.0) for each in up] == [2, 2]  # minutes of the start


def test_who_does_not_answer_depends_on_the_source() -> None:
    def values(what: str, source: Source, family: str) -> list[float]:
        trace = OPERATIONS[named(what, source)]("chat", random.Random(4))
        (found,) = (each for each in trace.samples if each.series.startswith(family + "{"))
        return list(found.values)

    dead, hung = "sidecar dead", "hung engine"

    assert values(dead, "exporter", "up").count(0.0) in (60, 180, 360)
    assert 0.0 not in values(dead, "exporter", "specdec_up")
    for source in ("exporter", "vllm"):
        assert 0.0 not in values(hung, source, "up")
        tokens = values(hung, source, FAMILIES[source]["generation_tokens"])
        assert sum(a == b for a, b in itertools.pairwise(tokens)) in (60, 120)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_bounds_hold_the_share_between_them(counts: tuple[int, int]) -> None:
    found, trials = counts

    assert 0 <= lowest_share(found, trials) <= found / trials <= highest_share(found, trials) <= 1


def test_bounds_are_exact_where_they_are_known() -> None:
    assert highest_share(0, 3000) == pytest.approx(1 - MISSED ** (1 / 3000))
    assert lowest_share(3000, 3000) == pytest.approx(MISSED ** (1 / 3000))
    assert highest_share(5, 100) == pytest.approx(0.1023, abs=1e-4)  # Clopper and Pearson, from tables
    assert highest_count(0) == pytest.approx(-math.log(MISSED))
    assert highest_count(3) == pytest.approx(7.7537, abs=1e-4)  # half of the chi-squared quantile, 8 degrees of freedom
    assert highest_mean([0] * 12) == highest_count(0) / 12
    assert highest_mean([2, 2, 2, 2]) == highest_count(8) / 4
    # Mean 5, deviation 5 / sqrt(2) * sqrt(16 / 15), and Student's quantile of 15 degrees of freedom, 1.753.
    assert highest_mean([10, 5, 5, 0] * 4) == pytest.approx(5 + 1.753 * 5 * math.sqrt(8 / 15) / 4, rel=1e-3)
    # One bad service in sixteen: its ten alarms are not ten events.
    assert highest_mean([10] + [0] * 15) > highest_count(10) / 16
