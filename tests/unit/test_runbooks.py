"""Each alert has a runbook of one shape, and what stands in it can be copied: commands, queries, snippets, links."""

from __future__ import annotations

import json
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rjsonnet
import yaml

from rules.test_lint import CHECKS
from specdec_exporter.speculation.policy import load_policy
from support import rulelint, yamltext
from support.fieldtools import ROOT

RUNBOOKS = ROOT / "rules" / "runbooks"
INDEX = RUNBOOKS / "README.md"
METRICS = ROOT / "docs" / "metrics.md"
PAGES = sorted(RUNBOOKS.glob("*.md"))
SECTIONS = ["What it means", "How to confirm", "Likely causes, in order", "What to do now", "When to close"]
MOST_WORDS = 400  # with queries and commands: three minutes


@cache
def pack() -> dict[str, Any]:
    """The groups of the mixin, and its ``_config``."""
    snippet = """
        local mixin = import 'mixin/mixin.libsonnet';
        { groups: mixin.prometheusRules.groups + mixin.prometheusAlerts.groups, config: mixin._config }
    """
    evaluated: dict[str, Any] = json.loads(rjsonnet.evaluate_snippet("", snippet, jpathdir=[str(ROOT)]))
    return evaluated


def rules(kind: str) -> list[dict[str, Any]]:
    """Those that ``alert``, or those that ``record``, in the pack's order."""
    return [rule for group in pack()["groups"] for rule in group["rules"] if kind in rule]


def alerts() -> dict[str, None]:
    """Their names."""
    return {rule["alert"]: None for rule in rules("alert")}


def code(page: str, language: str) -> list[str]:
    """Blocks of code, also those in a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


@cache
def served() -> dict[str, str]:
    """Types of the series that the exporter serves, by name, from the page that is held against its code."""
    families = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \|", METRICS.read_text(), re.MULTILINE)
    return rulelint.series_types("".join(f"# TYPE {name} {kind}\n" for name, kind in families))


@pytest.fixture(params=PAGES, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack with one more group, of all queries in the runbooks; each rule is named by its page."""
    group = {
        "name": "runbooks",
        "interval": "1m",
        "rules": [
            {"record": f"{path.stem}:query:{number}", "expr": query}
            for path in PAGES
            for number, query in enumerate(code(path.read_text(), "promql"))
        ],
    }
    path = tmp_path_factory.mktemp("runbooks") / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [*pack()["groups"], group]}))
    return path


# --- Which there are -------------------------------------------------------------------------------------------------


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in PAGES} - {INDEX.stem} == set(alerts())


def test_an_alert_links_to_its_own_runbook() -> None:
    for rule in rules("alert"):
        assert rule["annotations"]["runbook_url"].endswith(f"/rules/runbooks/{rule['alert']}.md")


def test_a_runbook_tells_every_reason_of_its_alert() -> None:
    reasons = {(rule["alert"], rule["labels"]["reason"]) for rule in rules("alert") if "reason" in rule["labels"]}
    told = {(alert, reason) for alert, reason in reasons if f"`{reason}`" in (RUNBOOKS / f"{alert}.md").read_text()}

    assert reasons - told == set()


@pytest.mark.parametrize("alert", alerts())
def test_a_runbook_has_the_shape_of_all(alert: str) -> None:
    """It begins to confirm with one command; it has queries, causes to tell apart, and numbered steps."""
    text = (RUNBOOKS / f"{alert}.md").read_text()
    title, *sections = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    _, confirm, causes, steps, _ = sections[1::2]
    first = code(confirm, "sh")[0].splitlines()
    rows = re.findall(r"^\| .+ \| .+ \| .+ \|$", causes, re.MULTILINE)

    assert title == f"# {alert}\n\n"
    assert sections[::2] == SECTIONS
    assert all(section.strip() for section in sections[1::2])
    assert len(text.split()) <= MOST_WORDS
    assert confirm.startswith("\n```sh\nNS=prod SVC=chat POD=chat-predictor-0 ")
    assert len(first) == 2
    assert 1 <= len(code(confirm, "promql")) <= 2
    assert rows[0].startswith("| Cause | ")
    assert re.search(r" \| What to do( by day)? \|$", rows[0])
    assert len(rows) >= 4
    assert steps.startswith("\n1. ")


@pytest.mark.parametrize("alert", alerts())
def test_after_nothing_tonight_all_advice_is_for_the_day(alert: str) -> None:
    text = (RUNBOOKS / f"{alert}.md").read_text()
    (section,) = re.findall(r"^## What to do now\n\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    first, *later = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]

    quiet = first.startswith("Nothing tonight")
    assert (" | What to do by day |\n" in text) == quiet
    assert not quiet or all(step.startswith("By day, ") for step in later)


def test_the_index_shows_how_to_change_speculation() -> None:
    text = INDEX.read_text()

    assert 'kubectl -n "$NS" edit inferenceservice "$SVC"' in text
    assert any("--speculative-config" in block for block in code(text, "yaml"))
    assert '"canaryTrafficPercent": 0' in text


# --- What can be copied ----------------------------------------------------------------------------------------------


def test_a_query_names_service_and_namespace(page: Path) -> None:
    """Two namespaces may have services of one name."""
    for query in code(page.read_text(), "promql"):
        for selector in re.findall(r"\{(.*?)\}", query):
            assert "inference_service=" not in selector or 'namespace="prod"' in selector, query


@pytest.mark.parametrize("check", CHECKS)
def test_a_query_finds_what_it_asks_for(check: str, queries: Path) -> None:
    pack = rulelint.load(queries, served() | rulelint.OF_PROMETHEUS)

    assert [finding for finding in CHECKS[check](pack) if finding.startswith("runbooks/")] == []


def test_every_metric_that_is_mentioned_exists(page: Path) -> None:
    recorded = {rule["record"] for rule in rules("record")}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in served()}

    mentioned = set(re.findall(r"\binference_service:\w+:\w+", page.read_text()))
    assert mentioned <= recorded
    mentioned = set(re.findall(r"(?<![:/])\bspecdec_[a-z]\w*", page.read_text()))
    assert mentioned <= served().keys() | families


def test_every_speculative_configuration_is_one(page: Path) -> None:
    for block in code(page.read_text(), "yaml"):
        flag, configuration = yamltext.load(block)
        assert flag == "--speculative-config"
        parsed = json.loads(configuration)
        assert parsed["method"] in load_policy().assumed.published
        assert parsed["num_speculative_tokens"] >= 1
        for first, last, k in parsed.get("num_speculative_tokens_per_batch_size", []):
            assert first <= last
            assert 0 <= k <= parsed["num_speculative_tokens"]


# --- What it refers to -----------------------------------------------------------------------------------------------


def test_warnings_that_are_named_are_known(page: Path) -> None:
    from specdec_exporter.predictor.versions import WARNINGS

    named = re.findall(r"warning `(\w+)`|warning=\\?\"(\w+)\\?\"", page.read_text())
    assert {name for pair in named for name in pair if name} <= WARNINGS.keys()
