"""Each alert has a runbook of one shape, and what stands in it can be copied: commands, queries, snippets, links."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import rulelint
import yamltext
from fieldtools import ROOT
from rules.scenario import evaluated, groups_with, rule_groups
from rules.test_lint import CHECKS
from specdec_exporter import __version__

RENDERED = ROOT / "rules" / "rendered" / "specdec.rules.yaml"
RUNBOOKS = ROOT / "rules" / "runbooks"
INDEX = RUNBOOKS / "README.md"
METRICS = ROOT / "docs" / "metrics.md"
PAGES = sorted(RUNBOOKS.glob("*.md"))
SECTIONS = [
    "What it means",
    "What users feel",
    "How to confirm",
    "Likely causes, in order",
    "What to do now",
    "When to close",
]
# Changing speculation is no answer to these; their pages only link to how it is done. All others show it.
ABOUT_PACK_OR_TRAFFIC = {
    "SpecDecodeReplicaOutlier",
    "SpecDecodeDataUntrusted",
    "SpecDecodeRulesLagging",
    "SpecDecodeManyServices",
}


def alerts() -> dict[str, None]:
    """Their names, in the pack's order."""
    return {rule["alert"]: None for group in groups_with("{}") for rule in group["rules"] if "alert" in rule}


def code(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@cache
def served() -> dict[str, str]:
    """Types of the series that the exporter serves, by name, from the page that is held against its code."""
    families = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \|", METRICS.read_text(), re.MULTILINE)
    return rulelint.series_types("".join(f"# TYPE {name} {kind}\n" for name, kind in families))


@cache
def pack_config() -> dict[str, Any]:
    """The pack's ``_config``."""
    config: dict[str, Any] = evaluated("mixin._config")
    return config


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
    path.write_text(yaml.safe_dump({"groups": [*groups_with("{}"), group]}))
    return path


def test_a_threshold_of_the_pack_and_one_of_the_policy_share_a_name_only_if_they_share_a_value() -> None:
    config, policy = pack_config(), pack_config()["policy"]
    windows = {"short_window_seconds"}  # no threshold: the page and the rules look back over times of their own

    for section in (policy, policy["latency"]):
        shared = config.keys() & section.keys() - windows
        assert {key: config[key] for key in shared} == {key: section[key] for key in shared}


# --- Which there are -------------------------------------------------------------------------------------------------


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in PAGES} - {INDEX.stem} == set(alerts())


def test_an_alert_links_to_its_own_runbook() -> None:
    for group in rule_groups(RENDERED):
        for rule in group["rules"]:
            if "alert" in rule:
                assert rule["annotations"]["runbook_url"].endswith(f"/rules/runbooks/{rule['alert']}.md")


def test_links_lead_to_the_release_that_the_files_belong_to() -> None:
    """The runbooks on the main branch are those of other rules."""
    folders = ("rules/rendered", "dashboards/rendered", "dashboards/provisioning", "deploy/helm/specdec-exporter")
    texts = {file: file.read_text(encoding="utf-8") for one in folders for file in (ROOT / one).rglob("*.*")}
    linked = {file: set(re.findall(r"/specdec-exporter/(?:blob|tree)/([^/]+)/", text)) for file, text in texts.items()}

    assert len([refs for refs in linked.values() if refs]) > len(folders)
    assert {file.name: refs for file, refs in linked.items() if refs - {f"v{__version__}"}} == {}


@pytest.mark.parametrize("alert", alerts())
def test_a_runbook_has_the_shape_of_all(alert: str) -> None:
    """It begins with one command; it has queries to confirm, causes to tell apart, and how to change speculation."""
    text = (RUNBOOKS / f"{alert}.md").read_text()
    title, *sections = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    first = code(sections[1], "sh")[0].splitlines()
    causes = re.findall(r"^\| .+ \| .+ \| .+ \|$", text, re.MULTILINE)

    assert title == f"# {alert}\n\n"
    assert sections[::2] == SECTIONS
    assert all(section.strip() for section in sections[1::2])
    assert len(text.split()) <= 450
    assert sections[1].startswith("\n```sh\n")
    assert len([line for line in first if not line.startswith(("NS=", "PROMETHEUS=", "#"))]) == 1
    assert code(text, "promql")
    assert causes[0] == "| Cause | How to tell | What to do |"
    assert len(causes) >= 4
    if alert in ABOUT_PACK_OR_TRAFFIC:
        assert all(f"README.md#{anchor}" in text for anchor in ("lower-k", "switch-off", "roll-back"))
    else:
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
    recorded = {rule["record"] for group in groups_with("{}") for rule in group["rules"] if "record" in rule}
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
        assumed = pack_config()["policy"]["assumed"]
        assert parsed["method"] in {
            *assumed["published"],
            *(m for row in assumed["rows"] for m in row.get("methods", ())),
        }
        assert parsed["num_speculative_tokens"] >= 1
        for first, last, k in parsed.get("num_speculative_tokens_per_batch_size", []):
            assert first <= last
            assert 0 <= k <= parsed["num_speculative_tokens"]


# --- What it refers to -----------------------------------------------------------------------------------------------


def test_warnings_that_are_named_are_known(page: Path) -> None:
    from specdec_exporter.predictor.versions import WARNINGS

    named = re.findall(r"warning `(\w+)`|warning=\\?\"(\w+)\\?\"", page.read_text())
    assert {name for pair in named for name in pair if name} <= WARNINGS.keys()
