"""Every engine loads the rendered rules as they are, and wakes the right people; and how the engines differ."""

from __future__ import annotations

import asyncio
import re

import pytest

from fleet.engines import ENGINES
from fleet.story import PAGES, PHASES, RULES
from fleet.telling import MADE_OF_A_RECORD, MADE_OF_SAMPLES, SLOW_SECONDS, Seen, told
from fleet.traits import HEADER, TRAITS, Traits, rows
from generated import filled, table
from support import yamltext
from support.fieldtools import ROOT

PAGE = ROOT / "docs" / "scale.md"
MINUTE = 60.0
HOUR = 60 * MINUTE


@pytest.fixture(scope="session")
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """The story as it was for all engines whose tests are run."""
    chosen = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    return asyncio.run(told([name for name in ENGINES if name in chosen], tmp_path_factory.mktemp("fleet")))


@pytest.fixture(params=ENGINES)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def seen(story: dict[str, Seen], name: str) -> Seen:
    found = story[name]
    assert not found.failure, found.failure
    return found


@pytest.fixture
def traits(name: str) -> Traits:
    return TRAITS[name]


def test_it_evaluates_every_rule_of_the_file_as_it_is(seen: Seen) -> None:
    wanted = [
        (group["name"], sorted(rule.get("alert") or rule["record"] for rule in group["rules"]))
        for group in yamltext.load(RULES.read_text(encoding="utf-8"))["groups"]
    ]
    found = [(group["name"], sorted(rule["name"] for rule in group["rules"])) for group in seen.groups]
    wrong = {
        rule["name"]: rule
        for group in seen.groups
        for rule in group["rules"]
        if rule["health"] == "err" or (rule["health"] != "ok" and group["interval"] < HOUR)
    }

    assert [group for group in wanted if group not in found] == []
    assert not wrong


def test_it_wakes_people_once_for_each_cause(seen: Seen) -> None:
    assert seen.paged() == sorted(PAGES.items())


def test_a_predictor_that_is_down_is_told_within_nine_minutes(seen: Seen) -> None:
    assert 5 * MINUTE < seen.seconds_until_down() < 9 * MINUTE


def test_it_has_a_record_of_each_service_that_answers(seen: Seen) -> None:
    assert seen.tokens.keys() == PHASES.keys()


def test_an_alert_outlasts_its_cause(seen: Seen) -> None:
    """``keep_firing_for``: else an outage that flaps would page again and again."""
    assert seen.kept is True


def test_what_leaves_a_page_is_gone_at_once(seen: Seen) -> None:
    assert seen.gone is True


def test_what_ends_without_a_mark_stays_for_five_minutes(seen: Seen) -> None:
    assert seen.unmarked == {120: True, 420: False}


def test_how_much_a_counter_grew_at_the_edge_of_a_window(seen: Seen, traits: Traits) -> None:
    assert seen.increase == pytest.approx(traits.increase)


def test_when_a_rule_reads_what_was_just_recorded(seen: Seen, traits: Traits) -> None:
    late = seen.first[MADE_OF_A_RECORD] - seen.first[MADE_OF_SAMPLES]

    assert late == pytest.approx(0.0 if traits.records_at_once else MINUTE, abs=1.0)


def test_how_a_slow_record_is_stamped(seen: Seen, traits: Traits) -> None:
    assert seen.slow_phases
    assert (seen.slow_phases == {0.0}) is traits.aligned, f"seconds after multiples of {SLOW_SECONDS}"


def test_how_far_back_it_evaluates(seen: Seen, traits: Traits) -> None:
    least, most = traits.behind

    assert least - 5 < seen.behind < most + 5


def test_whether_it_takes_late_samples(seen: Seen, traits: Traits) -> None:
    assert (not seen.late) is traits.takes_late, seen.late


def test_a_series_with_too_many_labels(seen: Seen, traits: Traits) -> None:
    """Those of the rules have less than any engine's limit."""
    assert seen.labels < 20
    assert (traits.many_labels in seen.many_labels, seen.many_labels_kept) == (True, traits.many_labels_kept)
    assert bool(seen.many_labels) is bool(traits.many_labels)


@pytest.mark.parametrize("name", ["mimir"])
def test_mimir_reads_across_tenants_and_bounds_groups(seen: Seen) -> None:
    assert seen.federated == len(PHASES)
    assert "rule group" in seen.long_group
    assert max(len(group["rules"]) for group in seen.groups) <= 20


def test_vllms_metrics_by_otlp_are_read_or_refused(seen: Seen, traits: Traits) -> None:
    """The rules for vLLM's own metrics read ``vllm:`` and ``vllm_`` (mixin/series.libsonnet), and no other name."""
    wanted = {"vllm:spec_decode_num_draft_tokens_total", "vllm:num_requests_running"}
    wanted |= {f"vllm:time_to_first_token_seconds_{part}" for part in ("bucket", "sum", "count")}
    found = {re.sub("^vllm[:_]", "vllm:", name) for name in seen.names}

    assert (seen.otlp, found) == (traits.otlp, wanted) if not traits.otlp else traits.otlp in seen.otlp


def test_the_page_tells_the_differences(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    wanted = filled(page, {"engines": table(HEADER, rows())})
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")

    assert page == wanted or request.config.getoption("--update-golden")
    assert {f"test_{row[-1][1:-1]}" for row in rows()} <= globals().keys()
