"""The alert quality bench measures what it says: its traces, its replay and its scores on cases with known outcomes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import yaml

from bench.alert_replay import Samples, episodes, replay
from bench.alert_scenarios import COLLAPSE, INCIDENTS, LOW_PAGE, SLOW_TICKET
from bench.alert_times import ONSET, rolled_out_and_back
from bench.alert_traces import MINUTE, START, Latency, Minute, replica, samples
from rules.conftest import rendered
from rules.scenario import Case, Pack, pinned
from support.fieldtools import either
from support.promtool import promtool

SLOW = SLOW_TICKET.split()[0]


@pytest.mark.parametrize("name", either("promtool", "promtool3"))
def test_for_and_keep_firing_for_are_as_in_prometheus(name: str, tmp_path: Path) -> None:
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

    promtool(name).test_rules(file)

    assert len(fired) > 3


@pytest.mark.debian
def test_known_incidents_are_caught_and_a_service_that_is_well_is_not(tmp_path: Path) -> None:
    """One database: a collapse, a service that is well, one with a slower body, one with a control."""
    rng = random.Random(11)
    usual = Latency(0.02, 0.3)
    well, slow = {"inference_service": "well"}, {"inference_service": "slow"}
    file = {"tpot": usual.shares(5000, rng)}
    collapse = INCIDENTS[COLLAPSE]("collapse", rng)
    minutes = [Minute(latency={"tpot": usual})] * 110
    slower = [Minute(latency={"tpot": usual.times(1.4)})] * 110
    told: list[Samples] = [
        *collapse.samples,
        *replica(minutes, rng, labels=well),
        *replica(slower, rng, labels=slow),
        *(samples(each) for labels in (well, slow) for each in pinned(110, file, labels=labels)),
    ]

    fired = replay(told, tmp_path, (START + 30 * MINUTE, START + 110 * MINUTE), alerts=(LOW_PAGE.split()[0], SLOW))

    alerts = {(service, each.alert) for service, found in fired.items() for each in found}
    assert {("collapse", "SpecDecodeAcceptanceLow"), ("slow", SLOW)} <= alerts
    assert "well" not in fired
    assert ("collapse", SLOW) not in alerts
    page = next(each for each in fired["collapse"] if each.severity == "critical")
    assert 15 <= (page.since - START) / MINUTE - collapse.due[LOW_PAGE] <= 25


@pytest.mark.parametrize("name", either("promtool", "promtool3"))
def test_a_rollout_that_harms_is_told_as_harm_from_the_first_page_on(name: str, tmp_path: Path) -> None:
    """The old pod's speed-up hides nothing: it is in the window for long."""
    pack = Pack(promtool(name), rendered("exporter"), tmp_path).only("drafts", "latency", "alerts-latency")
    worse, much_worse = (Case(name=f"{gain}x", series=rolled_out_and_back(gain)) for gain in (0.75, 0.5))
    found = pack.firing(worse, much_worse, minutes=range(ONSET, ONSET + 50, 2), every=2)

    for by_minute in found.values():
        pages = {
            minute: {alert["alertname"] for alert in alerts if alert["severity"] == "critical"}
            for minute, alerts in by_minute.items()
        }
        first = min(minute for minute, names in pages.items() if names)
        assert first <= ONSET + 22
        assert all("SpecDecodeHarmful" in names for minute, names in pages.items() if minute >= first)
