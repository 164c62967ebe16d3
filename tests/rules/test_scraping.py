"""What a shard stores: all that the pack reads, by the parsed expressions, and little else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

import rulelint
import yamltext
from dashboards.grafana import Dashboard
from dashboards.test_usage import names
from deploy.manifests import KUBERNETES, read
from fieldtools import ROOT, either, run
from promqllabels import labels, walk
from relabelling import relabelled
from rules.conftest import RENDERED
from rules.scenario import (
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    evaluated,
    groups_with,
    pinned,
    replica,
    service,
    slower,
)
from rules.test_shards import SCRAPING

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "scale.md"
CONFIGS = ["{}", "{ source: 'vllm' }", "{ source: 'vllm', vllm_prefix: 'vllm:' }"]


def kept(config: str = "{}") -> re.Pattern[str]:
    """The names that a shard stores."""
    (job,) = evaluated("mixin.specdecScraping", config)["prometheus"]["scrape_configs"]
    (rule,) = job["metric_relabel_configs"]
    assert (rule["source_labels"], rule["action"]) == (["__name__"], "keep")
    return re.compile(rule["regex"])


def selected(expr: promql.Expr) -> Iterator[str]:
    """The names of raw series in an expression, or the patterns of such names."""
    for each in walk(expr):
        if isinstance(each, promql.VectorSelector):
            yield from [each.name] if each.name else [m.value for m in each.matchers.matchers if m.name == "__name__"]


def read_by(config: str) -> set[str]:
    """Everything that rules, their texts and dashboards ask for, and no ruler records or has of itself."""
    rules = [rule for group in groups_with(config) for rule in group["rules"]]
    found = {name for rule in rules for name in selected(promql.parse(rule["expr"]))}
    texts = " ".join(text for rule in rules for text in rule.get("annotations", {}).values())
    found |= set(re.findall(r"(?<![:\w])(specdec_\w+)", texts))
    for name, dashboard in evaluated("mixin.grafanaDashboards", config).items():
        found |= {series for _, tree in Dashboard(name, dashboard).expressions for series in selected(tree)}
    return {name for name in found if not re.match(r"\w+:specdec_|ALERTS|up$|scrape_|prometheus_rule_", name)}


@pytest.mark.parametrize("config", CONFIGS)
def test_everything_that_is_read_is_stored(config: str) -> None:
    pattern = kept(config)
    alternatives = set(pattern.pattern.split("|")) if "(ray_)?" not in pattern.pattern else None
    found = read_by(config)

    assert len(found) > 40
    if alternatives is not None:
        assert found - alternatives == set()
    else:  # a pattern of names is stored as it is selected
        assert [name for name in found if f"|{name}|" not in f"|{pattern.pattern}|"] == []


def test_nothing_is_stored_that_is_not_read() -> None:
    """But what the texts of dashboards name: a look at it takes the name from there."""
    told = json.dumps(evaluated("mixin.grafanaDashboards"))
    unread = set(kept().pattern.split("|")) - read_by("{}")

    assert [name for name in unread if not re.search(rf"(?<![:\w]){name}(?!\w)", told)] == []


@pytest.mark.parametrize("name", ["vllm:inter_token_latency_seconds_bucket", "vllm:request_prompt_tokens_bucket"])
def test_what_nothing_reads_of_vllms_own_is_dropped(name: str) -> None:
    assert not kept("{ source: 'vllm' }").fullmatch(name)


@pytest.mark.parametrize("name", ["ray_vllm_generation_tokens", "vllm:generation_tokens_total"])
def test_all_spellings_of_vllm_are_stored(name: str) -> None:
    assert kept("{ source: 'vllm' }").fullmatch(name)


# --- Summed before it is stored --------------------------------------------------------------------------------------


def summed(series: Iterable[Series], names: re.Pattern[str]) -> list[Series]:
    """The replicas of a service as one, of the series with these names, as an agent adds up counters."""
    found, groups = [], dict[str, list[Series]]()
    for one in series:
        if not names.fullmatch(one.name):
            found.append(one)
            continue
        own = {name: text for name, text in one.labels.items() if name not in ("pod", "instance", "engine")}
        groups.setdefault(json.dumps([one.name, own]), []).append(one)
    for key, parts in groups.items():
        name, own = json.loads(key)
        columns = zip(*(part.values for part in parts), strict=True)
        found.append(Series(name, own, [sum(v for v in column if v is not None) for column in columns]))
    return found


SLIS = ("tpot", "ttft", "e2e")
LATE = {sli: slower(shares, 1.5) for sli, shares in STEADY.items()}


def replicas(number: int, phase: Phase) -> list[Series]:
    return [one for n in range(number) for one in service(phase, families=SLIS, labels=replica(n))]


def fired(pack: Pack, cases: Iterable[Case]) -> dict[str, set[tuple[tuple[str, str], ...]]]:
    found = pack.firing(*cases, minutes=[45, 69], every=1)
    return {name: {tuple(a.items()) for alerts in by.values() for a in alerts} for name, by in found.items()}


BUCKETS = re.compile(r"specdec_(time_per_output_token|time_to_first_token|request_latency)_seconds_bucket")


def test_buckets_of_replicas_may_be_summed(pack: Pack) -> None:
    well, late = Phase(minutes=70, requests_per_minute=200), Phase(minutes=70, latency=LATE, requests_per_minute=200)
    slow = replicas(2, late) + pinned(70, requests_per_minute=400)
    cases = [Case(name="slow", series=slow), Case(name="well", series=replicas(2, well))]
    after = [Case(name=case.name, series=summed(case.series, BUCKETS)) for case in cases]

    found = fired(pack, cases)
    assert found["slow"]
    assert fired(pack, after) == found


def replica_alerts() -> set[str]:
    """Alerts that name a replica: their result has a label that tells replicas apart."""
    pack = rulelint.load(RENDERED / "specdec.rules.yaml", {})
    known = rulelint.recorded_labels(pack)
    found = set()
    for rule in pack.rules:
        own = labels(rule.expr, known.get) if rule.is_alert else None
        if own is not None and not own.any_but and own.names & {"pod", "instance", "engine"}:
            found.add(rule.name)
    return found


def test_the_page_names_the_alerts_that_lose_their_replica() -> None:
    (line,) = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "lose their replica" in line]

    assert set(re.findall(r"SpecDecode\w+", line)) == replica_alerts()


# --- The snippets in their own programs ------------------------------------------------------------------------------


@pytest.mark.parametrize("program", either("promtool", "promtool3"))
@pytest.mark.parametrize("file", ["prometheus.yaml", "remote-write.yaml"])
def test_prometheus_takes_it(file: str, program: str) -> None:
    answer = run(program, "check", "config", SCRAPING / file)

    assert answer.returncode == 0, answer.stdout


@pytest.mark.debian
def test_vmagent_takes_it(tmp_path: Path) -> None:
    def check(file: Path) -> Any:
        return run("vmagent", "-dryRun", f"-promscrape.config={file}", "-remoteWrite.url=http://127.0.0.1:9/")

    answer = check(SCRAPING / "prometheus.yaml")
    assert answer.returncode == 0, answer.stdout
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((SCRAPING / "prometheus.yaml").read_text(encoding="utf-8").replace("source_labels", "source"))
    assert check(wrong).returncode != 0


def test_alloy_gets_the_rules_that_prometheus_gets() -> None:
    """Its language is the same rules in blocks."""
    text = (SCRAPING / "config.alloy").read_text(encoding="utf-8")
    blocks = [
        {key: json.loads(value) for key, value in re.findall(r"^\t+(\w+) += (.+)$", block, re.MULTILINE)}
        for block in re.findall(r"^\trule \{\n(.*?)^\t\}", text, re.MULTILINE | re.DOTALL)
    ]
    (job,) = yamltext.load((SCRAPING / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]

    assert blocks == job["relabel_configs"] + job["metric_relabel_configs"]


@pytest.mark.parametrize("file", ["podmonitor.yaml", "podmonitor-llm.yaml"])
def test_our_podmonitors_have_what_shards_need(file: str) -> None:
    (endpoint,) = read(KUBERNETES / "monitoring" / file)["spec"]["podMetricsEndpoints"]

    assert endpoint["relabelings"][-3:] == evaluated("mixin.specdecScraping.podMonitor.relabelings")


def test_what_is_sent_to_the_global_layer_is_what_its_rules_read() -> None:
    groups = groups_with("{ layer: 'global' }")
    (job,) = yamltext.load((SCRAPING / "remote-write.yaml").read_text(encoding="utf-8"))["remote_write"]
    (rule,) = job["write_relabel_configs"]
    asked = {name for group in groups for one in group["rules"] for name in names(promql.parse(one["expr"]))}

    sent = {name for name in asked if relabelled({"__name__": name}, [rule])}
    assert sent == {name for name in asked if name == "ALERTS" or name.startswith("inference_service:")}
    assert sent == set(rule["regex"].split("|"))
