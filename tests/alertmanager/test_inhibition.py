"""What silences what: true of the pack's alerts, and of a real Alertmanager."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alertmanager.catalogue import FRAGMENT, Rule, document, rules
from alertmanager.conftest import Release
from alertmanager.inhibition import inhibited, inhibits, matchers, matches
from alertmanager.server import alertmanager, lead_to, receiver

INHIBITION: list[dict[str, Any]] = document(FRAGMENT.name)["inhibit_rules"]
ROUTES: list[dict[str, Any]] = document(FRAGMENT.name)["route"]["routes"][0]["routes"]
PACK = {str(rule): rule for source in ("vllm", "exporter") for rule in rules(source)}
SERVICE = ("cluster", "namespace", "inference_service")

TICKETS = {name for name, rule in PACK.items() if rule.severity != "critical"}
OF_A_SERVICE_THAT_IS_DOWN = TICKETS - {"RestartLoop warning", "DataUntrusted warning several_processes"}
HANGS = {f"EngineStalled critical {reason}" for reason in ("waiting", "running", "service")}
SILENCED = {
    "RestartLoop critical": OF_A_SERVICE_THAT_IS_DOWN | HANGS | {"RestartLoop warning", "TargetDown critical"},
    "TargetDown critical": OF_A_SERVICE_THAT_IS_DOWN | HANGS,
    "Harmful critical": {
        *("AcceptanceLow critical", "AcceptanceLow warning low", "AcceptanceLow warning fell", "AcceptanceLow info"),
        *("P99Regression critical", "P99Regression warning", "NotPayingOff warning"),
        *("LoadTooHigh warning kv_cache", "LoadTooHigh warning queue"),
    },
    "AcceptanceLow critical": {"AcceptanceLow warning low", "AcceptanceLow warning fell", "AcceptanceLow info"},
    "AcceptanceLow warning low": {"AcceptanceLow warning fell"},
    "P99Regression critical": {"P99Regression warning"},
}


def silencing() -> Iterator[tuple[Rule, Rule, Mapping[str, Any]]]:
    """Every alert of the pack with every other that it silences on the same service, and the rule."""
    for rule in INHIBITION:
        for source in PACK.values():
            for target in PACK.values():
                if inhibits(rule, source.example, target.example):
                    yield source, target, rule


def test_a_page_silences_what_needs_nothing_else() -> None:
    found: dict[str, set[str]] = {}
    for source, target, _ in silencing():
        found.setdefault(str(source), set()).add(str(target))

    assert found == SILENCED


def test_nothing_is_silenced_by_what_nobody_hears_of() -> None:
    """Alertmanager lets a silenced alert silence others: whatever silences the one must silence those, too."""
    for first, silent in SILENCED.items():
        for second in silent & SILENCED.keys():
            assert SILENCED[second] <= silent, (first, second)


def test_a_page_that_is_silenced_ends_with_what_silences_it() -> None:
    """Alertmanager does not tell the end of a silenced alert: that of the incident is told by the other."""

    def route(rule: Rule) -> int:
        return next(n for n, each in enumerate(ROUTES) if matches(each.get("matchers", ()), rule.example))

    for source, target, rule in silencing():
        if target.severity == "critical":
            assert route(source) == route(target), rule


def test_labels_in_common_tell_services_apart() -> None:
    for source, target, rule in silencing():
        for label in rule["equal"]:
            assert (label in source.can_have) == (label in target.can_have), (label, str(source), str(target))
        assert {*SERVICE} <= {*rule["equal"]} & {*source.example}


def test_every_alert_that_a_rule_names_exists() -> None:
    texts = [text for rule in INHIBITION for text in rule["source_matchers"] + rule["target_matchers"]]
    named = {name for label, _, value in matchers(texts) if label == "alertname" for name in value.split("|")}

    assert named
    assert named <= {rule.name for rule in rules()}


async def test_a_real_alertmanager_silences_what_the_rules_say(release: Release, tmp_path: Path) -> None:
    """Each source beside each other alert, on a service of their own; and where no alert has a cluster or namespace."""
    posted = []
    for source in SILENCED:
        for target in PACK.keys() - {source}:
            for bare in (False, True):
                own = [
                    {**PACK[one].example, "inference_service": f"{source} {target} {bare}"} for one in (source, target)
                ]
                posted += [{k: v for k, v in one.items() if not bare or k not in SERVICE[:2]} for one in own]
    services: dict[str, list[dict[str, str]]] = {}
    for labels in posted:
        services.setdefault(labels["inference_service"], []).append(labels)
    expected = {
        str(sorted(labels.items())): inhibited(INHIBITION, labels, beside)
        for beside in services.values()
        for labels in beside
    }
    found: dict[str, bool] = {}
    async with receiver() as taking:
        example = document("alertmanager.yaml")
        lead_to(taking, example)
        async with alertmanager(release.server, example, tmp_path) as server:
            await server.post(*posted)
            # What silences may be known a moment after what is silenced.
            for _ in range(50):
                found = {str(sorted(labels.items())): silent for labels, silent in await server.inhibited()}
                if found == expected:
                    break
                await asyncio.sleep(0.2)

    assert found == expected
    assert sum(found.values()) >= 2 * sum(map(len, SILENCED.values()))
