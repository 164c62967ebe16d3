"""The rendered configurations hold no secret, and are the fragment and nothing else.

The example loads as compose.yaml mounts it (tests/deploy/test_compose.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rjsonnet
import yaml

from alertmanager.catalogue import EXAMPLE, FRAGMENT, RENDERED, document
from alertmanager.conftest import Release
from support.fieldtools import ROOT
from support.rulelint import seconds

KINDS = ("slack", "email", "pagerduty", "webhook")


def walk(node: Any) -> Iterator[tuple[str, Any]]:
    """Every key and its value, at any depth."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from walk(value)
    elif isinstance(node, list):
        for item in node:
            yield from walk(item)


@cache
def _evaluated(override: str) -> str:
    snippet = f"((import 'mixin/mixin.libsonnet') + {{ _config+:: {override} }}).specdecAlertmanager"
    return rjsonnet.evaluate_snippet("override", snippet, jpathdir=[str(ROOT)])


def rendered_with(override: str) -> Any:
    """What the mixin makes of other values of its configuration; the caller's own to change."""
    return json.loads(_evaluated(override))


def test_the_example_is_the_fragment_and_a_place_for_the_rest() -> None:
    """So the fragment loads in a configuration of somebody else, as the example does."""
    example, fragment = document(EXAMPLE.name), document(FRAGMENT.name)

    assert example["route"].pop("receiver") == "everything-else"
    example["receivers"].remove({"name": "everything-else"})
    assert example == fragment


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_integration_loads_tells_of_the_end_and_has_its_secrets_in_files(
    kind: str, release: Release, tmp_path: Path
) -> None:
    example = rendered_with(f"{{ alertmanager+: {{ chat: ['{kind}'] }} }}")["example"]
    example["templates"] = [str(RENDERED / path) for path in example["templates"]]
    (tmp_path / "alertmanager.yaml").write_text(yaml.safe_dump(example), encoding="utf-8")

    answer = release.amtool("check-config", tmp_path / "alertmanager.yaml")

    assert answer.returncode == 0, answer.stdout
    chat = example["receivers"][0]
    assert [one["send_resolved"] for one in chat[f"{kind}_configs"]] == [True]
    secrets = {"api_url", "routing_key", "service_key", "auth_password", "auth_secret", "credentials", "password"}
    assert not secrets & {key for key, _ in walk(example["receivers"])}
    assert [value for key, value in walk(chat) if key.endswith("_file")]


def test_an_integration_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"may hold slack, email, pagerduty and webhook, not \[\"fax\""):
        rendered_with("{ alertmanager+: { chat: ['fax'] } }")


def test_pages_are_repeated_before_alertmanager_forgets_them() -> None:
    kept_seconds = 120 * 3600  # --data.retention
    intervals = [value for key, value in walk(document(EXAMPLE.name)) if key == "repeat_interval"]

    assert intervals
    assert all(seconds(interval) < kept_seconds for interval in intervals)
