"""What silences what: true of the rendered rules, of the pack's alerts, and of a real Alertmanager."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from alertmanager.catalogue import FRAGMENT, Rule, document, rules
from alertmanager.conftest import RELEASES, Release
from alertmanager.inhibition import inhibited, inhibits, matchers, matches
from alertmanager.server import Receiver, alertmanager, lead_to, receiver
from alertmanager.test_configuration import rendered_with
from rules.scenario import groups_with

INHIBITION: list[dict[str, Any]] = document(FRAGMENT.name)["inhibit_rules"]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """Alerts by how :class:`Rule` prints them: one fires beside the others, which are silent for it, or not."""

    fires: str
    silent: tuple[str, ...]
    speaks: tuple[str, ...]


CASES = {
    "down": Case(
        "SpecDecodeTargetDown critical",
        (
            "SpecDecodeTargetDown warning",
            "SpecDecodeAcceptanceLow critical",
            "SpecDecodeDataUntrusted warning inconsistent",
            "SpecDecodeReplicaOutlier warning poor_drafts",
        ),
        ("SpecDecodeRulesLagging warning", "SpecDecodeDataUntrusted warning several_processes"),
    ),
    "loop": Case(
        "SpecDecodeRestartLoop critical",
        (
            "SpecDecodeRestartLoop warning",
            "SpecDecodeTargetDown critical",
            "SpecDecodeTargetDown warning",
            "SpecDecodeP99Regression critical",
        ),
        ("SpecDecodeRulesLagging warning", "SpecDecodeDataUntrusted warning several_processes"),
    ),
    "harmful": Case(
        "SpecDecodeHarmful critical",
        (
            "SpecDecodeAcceptanceLow critical",
            "SpecDecodeLoadTooHigh warning",
            "SpecDecodeNotPayingOff warning",
            "SpecDecodeP99Regression critical",
            "SpecDecodeP99Regression warning",
        ),
        ("SpecDecodeReplicaOutlier warning poor_drafts",),
    ),
    "low": Case(
        "SpecDecodeAcceptanceLow critical",
        ("SpecDecodeAcceptanceLow warning",),
        ("SpecDecodeReplicaOutlier warning poor_drafts", "SpecDecodeP99Regression critical"),
    ),
}
BY_TEXT = {str(rule): rule for rule in rules()}


def of(service: str, text: str, *, bare: bool = False) -> dict[str, str]:
    """Labels of an alert of a service; ``bare``: of a Prometheus that has no cluster and no namespace."""
    labels = dict(BY_TEXT[text].example)
    if "inference_service" in labels:
        labels["inference_service"] = service
    elif "rule_group" in labels:
        labels["rule_group"] += service
    if bare:
        for label in ("cluster", "namespace"):
            labels.pop(label, None)
    return labels


def alerts_of(name: str, case: Case, *, bare: bool) -> dict[str, list[dict[str, str]]]:
    """The case on one service, and the same without what silences on another."""
    service = f"{name}-bare" if bare else name
    return {
        "fires": [of(service, case.fires, bare=bare)],
        "silent": [of(service, text, bare=bare) for text in case.silent],
        "speaks": [of(service, text, bare=bare) for text in case.speaks]
        + [of(f"{service}-other", text, bare=bare) for text in case.silent[:1]],
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a real Alertmanager inhibits an alert, by its labels; and alerts with the receivers told of them."""

    inhibited: Mapping[str, bool]
    told: set[tuple[str, str]]


def key(labels: Mapping[str, str]) -> str:
    return str(sorted(labels.items()))


def receivers_of(labels: Mapping[str, str]) -> set[str]:
    if (labels["alertname"], labels["severity"]) == ("SpecDecodeAcceptanceLow", "info"):
        return {"specdec-nobody"}
    return {"specdec-chat", "specdec-pager"} if labels["severity"] == "critical" else {"specdec-chat"}


def told(taking: Receiver) -> set[tuple[str, str]]:
    return {(key(alert["labels"]), path.strip("/")) for path, body in taking.received for alert in body["alerts"]}


def everything() -> list[dict[str, str]]:
    """All alerts of all cases: services do not touch each other, so one server can have them all."""
    parts = [alerts_of(name, case, bare=bare) for name, case in CASES.items() for bare in (False, True)]
    return [labels for part in parts for alerts in part.values() for labels in alerts]


async def observe(release: Release, directory: Path) -> Outcome:
    alerts = everything()
    speaking = [labels for labels in alerts if not inhibited(INHIBITION, labels, alerts)]
    expected = {(key(labels), name) for labels in speaking for name in receivers_of(labels)}
    configuration = rendered_with("{ alertmanager+: { group_wait_seconds: 2 } }")["example"]
    async with receiver() as taking:
        lead_to(taking, configuration)
        async with alertmanager(release.server, configuration, directory) as server:
            await server.post(*alerts)
            await taking.until(lambda: expected <= told(taking))
            found = await server.inhibited()
    return Outcome({key(labels): silent for labels, silent in found}, told(taking))


@pytest.fixture(scope="module", params=RELEASES)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return asyncio.run(observe(request.param, tmp_path_factory.mktemp("alertmanager")))


@pytest.mark.parametrize("bare", [False, True], ids=["labelled", "bare"])
@pytest.mark.parametrize("name", CASES)
def test_a_real_alertmanager_silences_what_is_needless(name: str, bare: bool, outcome: Outcome) -> None:
    alerts = alerts_of(name, CASES[name], bare=bare)

    for labels in alerts["silent"]:
        assert outcome.inhibited[key(labels)], labels
        assert not {receiver for alert, receiver in outcome.told if alert == key(labels)}
    for labels in alerts["fires"] + alerts["speaks"]:
        assert not outcome.inhibited[key(labels)], labels
        assert {receiver for alert, receiver in outcome.told if alert == key(labels)} == receivers_of(labels)


def test_what_a_real_alertmanager_silences_is_what_the_rules_say(outcome: Outcome) -> None:
    alerts = everything()

    assert {key(labels): inhibited(INHIBITION, labels, alerts) for labels in alerts} == outcome.inhibited


def sides() -> Iterator[tuple[list[str], list[str], str]]:
    """Matchers of every side of every rule, its labels in common, and where the pack's figures come from."""
    for source in ("exporter", "vllm"):
        for rule in rendered_with(f"{{ source: '{source}' }}")["fragment"]["inhibit_rules"]:
            yield rule["source_matchers"], rule["equal"], source
            yield rule["target_matchers"], rule["equal"], source


def test_every_alert_that_a_rule_names_exists() -> None:
    known = {rule.name for rule in rules()}

    for texts, _, _ in sides():
        for name, _, value in matchers(texts):
            if name == "alertname":
                assert set(value.split("|")) <= known
        assert any(matches(texts, rule.example) for rule in rules()), texts


def test_every_label_in_common_is_carried_by_all_alerts_concerned() -> None:
    for texts, equal, source in sides():
        for rule in rules(source):
            if matches(texts, rule.example):
                assert [label for label in equal if label not in rule.can_have] == [], (rule, texts)


def silencing() -> Iterator[tuple[Rule, Rule]]:
    """Every alert of the pack with every other that it silences on the same service."""
    for source in rules():
        for target in rules():
            if any(inhibits(rule, source.example, target.example) for rule in INHIBITION):
                yield source, target


def test_no_two_alerts_silence_each_other() -> None:
    pairs = {(str(source), str(target)) for source, target in silencing()}

    assert pairs
    assert not [pair for pair in pairs if pair[::-1] in pairs]


def test_nothing_is_silenced_by_what_nobody_hears_of() -> None:
    # Alertmanager lets a silenced alert silence others: whatever silences the one must silence those, too.
    pairs = {(str(source), str(target)) for source, target in silencing()}

    gaps = {(a, x, y) for a, x in pairs for x2, y in pairs if x == x2 and (a, y) not in pairs}
    # What a service that is down silences of itself stays silent, for its page was told: among those of many services.
    assert not {gap for gap in gaps if "ManyServices" not in gap[0]}


@pytest.mark.parametrize(("reason", "held"), [("down", "TargetDown"), ("slower", "P99Regression")])
def test_a_page_about_many_services_holds_back_the_pages_of_its_kind_in_its_cluster(reason: str, held: str) -> None:
    many = of("chat", f"SpecDecodeManyServices critical {reason}")
    page = f"SpecDecode{held} critical"
    silent = {str(rule) for rule in rules() if any(inhibits(each, many, rule.example) for each in INHIBITION)}

    assert silent == {page}
    assert inhibited(INHIBITION, of("code", page), [many])
    assert not inhibited(INHIBITION, {**of("code", page), "cluster": "us-1"}, [many])


def test_a_page_silences_its_own_ticket() -> None:
    pairs = {(str(source), str(target)) for source, target in silencing()}

    pages = [rule for rule in rules() if rule.severity == "critical"]
    for page in pages:
        same = {name: value for name, value in page.example.items() if name != "severity"}
        for ticket in rules():
            if ticket.severity == "warning" and same.items() <= ticket.example.items():
                assert (str(page), str(ticket)) in pairs


def test_nothing_silences_what_is_more_severe_than_itself() -> None:
    order = ["info", "warning", "critical"]

    assert not [(s, t) for s, t in silencing() if order.index(t.severity) > order.index(s.severity)]


def test_harm_fires_with_the_slowdown_that_it_silences() -> None:
    """A ruler evaluates two groups up to an interval apart, and that is longer than Alertmanager waits."""
    group = next(group for group in groups_with("{}") if group["name"] == "specdec-alerts-latency")
    pages = [rule for rule in group["rules"] if rule["labels"]["severity"] == "critical"]
    waits = {rule["alert"]: rule.get("for", "0m") for rule in pages}

    assert waits == {"SpecDecodeManyServices": "0m", "SpecDecodeHarmful": "5m", "SpecDecodeP99Regression": "5m"}
