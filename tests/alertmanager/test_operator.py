"""The AlertmanagerConfig is what its CRD allows, and says what the fragment says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from alertmanager.catalogue import FRAGMENT, OBJECT, document
from alertmanager.test_configuration import KINDS, rendered_with
from support.crd import faults, schema

KNOWN = ("AlertmanagerConfig", "monitoring.coreos.com/v1alpha1")


def of_kind(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = rendered_with(f"{{ alertmanager+: {{ chat: ['{kind}'] }} }}")["object"]
    return found


@pytest.mark.field
@pytest.mark.parametrize("kind", KINDS)
def test_the_crd_allows_it(kind: str) -> None:
    rendered = of_kind(kind)

    assert list(faults(schema(*KNOWN), rendered["spec"])) == []
    assert (rendered["kind"], rendered["apiVersion"]) == KNOWN


@pytest.mark.field
@pytest.mark.parametrize(
    ("part", "value", "fault"),
    [
        ("groupWait", "soon", ".groupWait: 'soon' has not the form"),
        ("group_wait", "30s", ".group_wait does not exist"),
        ("continue", "true", ".continue: 'true' is no boolean"),
        ("matchers", [{"name": "a", "matchType": "~", "value": "b"}], ".matchers[0].matchType: '~' is none of"),
        ("matchers", [{"value": "b"}], ".matchers[0].name is missing"),
    ],
)
def test_the_check_itself_finds_faults(part: str, value: Any, fault: str) -> None:
    (found,) = faults(schema(*KNOWN)["properties"]["route"], {part: value})

    assert found.startswith(fault)


def test_secrets_are_keys_of_a_secret() -> None:
    for kind, integration in (("slack", "apiURL"), ("email", "authPassword"), ("pagerduty", "routingKey")):
        (one,) = of_kind(kind)["spec"]["receivers"][0][f"{kind}Configs"]
        assert one[integration].keys() == {"name", "key"}
    (hook,) = of_kind("webhook")["spec"]["receivers"][0]["webhookConfigs"]
    assert hook["httpConfig"]["authorization"]["credentials"].keys() == {"name", "key"}


def text(matchers: list[dict[str, str]]) -> list[str]:
    return [f'{one["name"]}{one["matchType"]}"{one["value"]}"' for one in matchers]


def test_it_inhibits_and_routes_what_the_fragment_does() -> None:
    spec, fragment = document(OBJECT.name)["spec"], document(FRAGMENT.name)

    def spelt(name: str) -> str:
        return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)

    def route(node: dict[str, Any]) -> dict[str, Any]:
        changed = {
            "matchers": text(node.get("matchers", [])),
            "routes": [route(each) for each in node.get("routes", [])],
        }
        return {spelt(name): value for name, value in {**node, **changed}.items() if value}

    sides = [(text(rule["sourceMatch"]), text(rule["targetMatch"]), rule["equal"]) for rule in spec["inhibitRules"]]
    assert sides == [
        (rule["source_matchers"], rule["target_matchers"], rule["equal"]) for rule in fragment["inhibit_rules"]
    ]
    assert route(spec["route"]) == fragment["route"]["routes"][0]
