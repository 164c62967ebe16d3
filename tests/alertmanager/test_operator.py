"""The AlertmanagerConfig is what its CRD allows, and says what the fragment says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from alertmanager.catalogue import FRAGMENT, OBJECT, document
from alertmanager.test_configuration import KINDS, rendered_with
from support import yamltext
from support.fieldtools import schema_file

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "number": (int, float),
}
CHECKED = {"type", "properties", "required", "items", "enum", "pattern", "minLength", "minItems", "minimum", "maximum"}
# What a schema has besides: words for people, hints for the API server's merging, and rules in CEL (see below).
ASIDE = {"description", "default", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
ASIDE |= {"x-kubernetes-map-type", "x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields"}
ASIDE |= {"additionalProperties"}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The schema of v1alpha1 in the operator's module, which ``make tools`` fetches."""
    file = schema_file("monitoring.coreos.com_alertmanagerconfigs.yaml")
    definition = yamltext.load(file.read_text(encoding="utf-8"))
    (version,) = (one for one in definition["spec"]["versions"] if one["name"] == "v1alpha1" and one["storage"])
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def faults(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """What of a value its structural schema does not allow; a field that it does not know would be dropped."""
    assert schema.keys() <= CHECKED | ASIDE, schema.keys() - CHECKED - ASIDE
    if "type" not in schema:
        return
    if not isinstance(value, TYPES[schema["type"]]):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if isinstance(value, dict) and "properties" in schema:
        yield from (f"{path}.{key} is missing" for key in schema.get("required", ()) if key not in value)
        for key, item in value.items():
            if key in schema["properties"]:
                yield from faults(schema["properties"][key], item, f"{path}.{key}")
            else:
                yield f"{path}.{key} does not exist"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{path} has too few items"
        for number, item in enumerate(value):
            yield from faults(schema.get("items", {}), item, f"{path}[{number}]")
    if isinstance(value, str):
        # RE2 takes a flag anywhere, Python at the start alone.
        pattern = schema.get("pattern", "")
        flags = re.IGNORECASE if "(?i)" in pattern else re.NOFLAG
        if len(value) < schema.get("minLength", 0) or not re.search(pattern.replace("(?i)", ""), value, flags):
            yield f"{path}: {value!r} has not the form {schema.get('pattern', '.+')}"
        if value not in schema.get("enum", [value]):
            yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of range"


def of_kind(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = rendered_with(f"{{ alertmanager+: {{ chat: ['{kind}'] }} }}")["object"]
    return found


@pytest.mark.field
@pytest.mark.parametrize("kind", KINDS)
def test_the_crd_allows_it(kind: str, schema: dict[str, Any]) -> None:
    rendered = of_kind(kind)

    assert list(faults(schema["properties"]["spec"], rendered["spec"])) == []
    assert (rendered["apiVersion"], rendered["kind"]) == ("monitoring.coreos.com/v1alpha1", "AlertmanagerConfig")


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
def test_the_check_itself_finds_faults(part: str, value: Any, fault: str, schema: dict[str, Any]) -> None:
    (found,) = faults(schema["properties"]["spec"]["properties"]["route"], {part: value})

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
