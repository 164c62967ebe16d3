"""Layers of rules: two shards and the Prometheus above them tell together what one Prometheus tells."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tsdb
import yamltext
from bench.fleet import exposing
from relabelling import of_shard
from rules.scenario import STEADY, Groups, Phase, Series, groups_with, service, slower
from rules.test_shards import NOTHING, SCRAPING, SHARDS
from running import wait_until
from tsdb import Vector, query

pytestmark = pytest.mark.slow

MANY = "SpecDecodeManyServices"


def rules_of(groups: Groups) -> list[dict[str, Any]]:
    return [rule for group in groups for rule in group["rules"]]


def test_a_shard_has_all_rules_of_a_service_and_the_global_layer_those_about_all_of_them() -> None:
    everything, shard, whole = (
        rules_of(groups_with(f"{{ layer: '{layer}' }}")) for layer in ("all", "shard", "global")
    )
    of_a_service = [rule for rule in everything if rule.get("alert") != MANY]

    # The page of a shard waits until the one for many services can be there.
    (page,) = [rule for rule in shard if (rule.get("alert"), rule.get("for")) == ("SpecDecodeTargetDown", "2m")]
    assert page["labels"]["severity"] == "critical"
    assert [{**rule, "for": rule.get("for") if rule is not page else None} for rule in shard] == [
        {**rule, "for": rule.get("for")} for rule in of_a_service
    ]
    alerts = [rule for rule in whole if "alert" in rule]
    assert {rule["alert"] for rule in alerts} == {MANY, "SpecDecodeRulesLagging"}
    assert [rule for rule in alerts if rule not in everything] == []
    assert all(rule["record"].startswith("cluster:") for rule in whole if "record" in rule)


def test_another_layer_is_refused() -> None:
    with pytest.raises(RuntimeError, match="layer must be 'all', 'shard' or 'global', not 'top'"):
        groups_with("{ layer: 'top' }")


# --- Live ------------------------------------------------------------------------------------------------------------

# Seconds for minutes. No rule of the demo waits for a start that fails.
CONFIG = "(import 'deploy/demo/config.libsonnet') + { cold_start_seconds: 10, layer: '%s' }"
SLIS = ("tpot", "e2e")
LATE = {sli: slower(STEADY[sli], 1.5) for sli in SLIS}
OF_THE_TARGET = ("cluster", "namespace", "inference_service", "pod", "instance", "job")
DOWN = 6


def fleet() -> dict[str, list[Series]]:
    """What each pod serves, by its name; two scenario minutes: at the beginning, and one later."""

    def one(name: str, phase: Phase, pod: int = 0, *, speculative: bool = True) -> tuple[str, list[Series]]:
        labels = {"inference_service": name, "pod": f"{name}-{pod}", "instance": f"{name}-{pod}"}
        return f"{name}-{pod}", service(phase, families=SLIS, speculative=speculative, labels=labels)

    well = Phase(minutes=2)
    return dict(
        (
            *(one(f"down-{number}", well) for number in range(DOWN)),
            *(one(f"well-{number}", well) for number in range(4)),
            *(one("poor", Phase(minutes=2, curve=NOTHING), pod) for pod in range(2)),
            *(one("partly", well, pod) for pod in range(2)),
            one("slow", Phase(minutes=2, latency=LATE)),
            one("slow-control", well, speculative=False),
        )
    )


class Pods:
    """What each pod serves: its counters grow. When they have failed, some cannot be read."""

    def __init__(self) -> None:
        self.pods = fleet()
        self.failed = False
        self._began = time.time() - 3600

    def text(self, pod: str) -> str:
        if self.failed and (pod.startswith("down") or pod == "partly-1"):
            return "specdec_up 0\n"
        return "python_info 1\n" + "".join(self._line(series) for series in self.pods[pod])

    def _line(self, series: Series) -> str:
        first, second = series.values
        assert first is not None
        assert second is not None
        value = second if first == second else (second - first) * (time.time() - self._began)
        own = [f'{name}="{text}"' for name, text in series.labels.items() if name not in OF_THE_TARGET]
        return f"{series.name}{{{','.join(own)}}} {value}\n"

    def targets(self, address: str) -> list[dict[str, Any]]:
        """Each pod with the labels that discovery gives it."""
        labels = {pod: series[0].labels for pod, series in self.pods.items()}
        return [
            {
                "targets": [address],
                "labels": {name: own[name] for name in OF_THE_TARGET if name != "job"} | {"__param_service": pod},
            }
            for pod, own in labels.items()
        ]


@contextlib.contextmanager
def prometheus(program: str, layer: str, config: dict[str, Any], folder: Path) -> Iterator[str]:
    """Evaluate the rules of a layer; yield the URL, which takes remote writes."""
    folder.mkdir()
    rules = folder / "rules.json"
    rules.write_text(json.dumps({"groups": groups_with(CONFIG % layer)}), encoding="utf-8")
    intervals = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    given = {**config, "global": {**intervals, **config.get("global", {})}, "rule_files": [str(rules)]}
    with tsdb.prometheus(folder / "data", program, json.dumps(given), "--web.enable-remote-write-receiver") as url:
        yield url


def firing(*urls: str) -> set[tuple[tuple[str, str], ...]]:
    """The labels of the alerts that fire in any of them, without what tells which of them it is.

    And without `what`: mean and tail are one alert, called by which of them a ruler has seen first.
    """
    found = [query(url, 'ALERTS{alertstate="firing"}', time.time()) for url in urls]
    return {tuple((k, v) for k, v in labels if k not in ("shard", "what")) for vector in found for labels in vector}


def verdicts(*urls: str) -> Vector:
    found = [query(url, "inference_service:specdec_verdict:enum", time.time()) for url in urls]
    return {labels: value for vector in found for labels, value in vector.items()}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("prometheus", id="floor", marks=pytest.mark.debian),
        pytest.param("prometheus3", id="current", marks=pytest.mark.field),
    ],
)
def test_two_shards_and_the_global_layer_alert_as_one_prometheus(program: str, tmp_path: Path) -> None:
    """The one stores all that it scrapes, the shards only what the pack reads."""
    pods = Pods()
    (rendered,) = yamltext.load((SCRAPING / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    (sent,) = yamltext.load((SCRAPING / "remote-write.yaml").read_text(encoding="utf-8"))["remote_write"]
    with exposing(lambda pod: pods.text(pod).encode()) as address, contextlib.ExitStack() as stack:
        job = {"job_name": "predictors", "static_configs": pods.targets(address)}
        one = stack.enter_context(prometheus(program, "all", {"scrape_configs": [job]}, tmp_path / "all"))
        above = stack.enter_context(prometheus(program, "global", {}, tmp_path / "global"))
        shards = []
        for number in range(SHARDS):
            config = {
                "global": {"external_labels": {"shard": str(number)}},
                "scrape_configs": [
                    {
                        **job,
                        "relabel_configs": of_shard(rendered["relabel_configs"], number, SHARDS),
                        "metric_relabel_configs": rendered["metric_relabel_configs"],
                    }
                ],
                "remote_write": [{**sent, "url": f"{above}/api/v1/write"}],
            }
            shards.append(stack.enter_context(prometheus(program, "shard", config, tmp_path / str(number))))
        everyone = (one, above, *shards)

        def names(url: str) -> set[str]:
            return {f"{alert['alertname']} {alert['severity']}" for alert in map(dict, firing(url))}

        expected = {"SpecDecodeAcceptanceLow critical", "SpecDecodeHarmful critical"}
        wait_until(lambda: expected <= names(one), seconds=180, what="alerts of the poor and the slow")
        pods.failed = True
        expected |= {f"{MANY} critical", "SpecDecodeTargetDown critical", "SpecDecodeTargetDown warning"}
        wait_until(lambda: expected <= names(one), seconds=180, what="alerts of those that are down")
        wait_until(lambda: firing(one) == firing(above, *shards), seconds=60, what="the same alerts in layers")
        wait_until(lambda: verdicts(one) == verdicts(*shards), seconds=60, what="the same verdicts")

        many = {dict(alert)["alertname"] for alert in firing(above)} & {MANY}
        assert many == {MANY}
        assert not [alert for alert in firing(*shards) if dict(alert)["alertname"] == MANY]
        assert all(firing(url) for url in everyone)
        now = time.time()
        assert query(one, "python_info", now)
        assert not any(query(url, "python_info", now) for url in shards)
        counted = query(above, "sum(cluster:specdec_services:by_verdict)", time.time())
        assert counted == {(): len(verdicts(one))}
        assert query(above, "cluster:specdec_replicas:up_ratio", time.time())
