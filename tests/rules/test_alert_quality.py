"""The alert quality bench measures what it says: its traces, its replay and its scores on cases with known outcomes."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench.alert_quality import Watched, score
from bench.alert_replay import Samples, episodes, replay
from bench.alert_scenarios import COLLAPSE, INCIDENTS, LOW_PAGE, LOW_TICKET, MEAN_TICKET, TAIL_TICKET
from bench.alert_traces import MINUTE, START, Latency, Minute, Observations, pinned, replica, scaled
from promtool import Promtool

LABELS = {"inference_service": "chat", "model_name": "m"}
MEAN, TAIL = (alert.split()[0] for alert in (MEAN_TICKET, TAIL_TICKET))


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
