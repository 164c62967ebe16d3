"""The examples of docs/autoscale.md: both autoscalers do the same, and the queries give what the page says."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import parse
from support.fieldtools import ROOT
from support.promtool import promtool
from unit.test_docs import code, section, tables

PAGE = (ROOT / "docs" / "autoscale.md").read_text(encoding="utf-8")
TOLERANCE = 0.1  # Kubernetes' own
REPLICAS = 4


def example(name: str) -> Any:
    (found,) = parse((ROOT / "docs" / "autoscaling" / name).read_text(encoding="utf-8"))
    return found


SCALED = example("keda.yaml")
RULES = {rule["name"]["as"]: rule for rule in example("adapter.yaml")["externalRules"]}
SCALER = example("hpa.yaml")
TRIGGERS = {trigger["name"]: trigger for trigger in SCALED["spec"]["triggers"]}


def flat(query: str) -> str:
    return " ".join(query.split())


def of_adapter(name: str) -> str:
    """The query as the adapter puts it for the example's HPA."""
    matchers = 'namespace="prod", inference_service="chat"'
    return flat(RULES[name]["metricsQuery"]).replace("<<.LabelMatchers>>", matchers)


def test_both_autoscalers_do_the_same() -> None:
    external = {metric["external"]["metric"]["name"]: metric["external"] for metric in SCALER["spec"]["metrics"]}

    assert external.keys() == RULES.keys()
    assert SCALED["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == SCALER["spec"]["behavior"]
    assert flat(TRIGGERS["load"]["metadata"]["query"]) == of_adapter("specdec_requests")
    assert f"({flat(TRIGGERS['slowdown']['metadata']['query'])}) or vector(0)" == of_adapter("specdec_slowdown")
    for trigger, name in (("load", "specdec_requests"), ("slowdown", "specdec_slowdown")):
        target = external[name]["target"]
        assert target["type"] == TRIGGERS[trigger]["metricType"]
        limit = target["averageValue" if target["type"] == "AverageValue" else "value"]
        assert limit == TRIGGERS[trigger]["metadata"]["threshold"]


def test_the_rule_is_the_trigger() -> None:
    (rule,) = code(section(PAGE, "The rule"), "promql")

    assert flat(rule) == flat(TRIGGERS["slowdown"]["metadata"]["query"])


# --- What the queries give --------------------------------------------------------------------------------------------


def answers(folder: Path, queries: dict[str, float | None], speedup: float | None, concurrency: float) -> None:
    """Let promtool check what the queries give for two replicas; ``None``: nothing."""
    labels = 'namespace="prod", inference_service="chat", model_name="llama"'
    series = []
    for pod in ("chat-0", "chat-1"):
        own = f'{labels}, pod="{pod}"'
        series.append(
            {"series": f'specdec_step_latency_seconds_sum{{{own}, engine="0"}}', "values": f"0+{60 * concurrency}x20"}
        )
        for state, count in (("running", concurrency), ("waiting", 1)):
            series.append({"series": f'specdec_requests_{state}{{{own}, engine="0"}}', "values": f"{count}x20"})
        if speedup is not None:
            series.append({"series": f'specdec_speedup_ratio{{{own}, basis="measured"}}', "values": f"{speedup}x20"})
    expected = [
        {
            "expr": query,
            "eval_time": "15m",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for query, value in queries.items()
    ]
    file = folder / "queries.yaml"
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": expected}]
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": tests}), encoding="utf-8")
    promtool().test_rules(file)


def wanted(value: float, replicas: int) -> int:
    """What an HPA wants for a metric of the type Value with the target 1."""
    return replicas if abs(value - 1) <= TOLERANCE else math.ceil(value * replicas)


ROWS = list(tables(section(PAGE, "The rule")))


@pytest.mark.parametrize("row", ROWS, ids=[row["Situation"] for row in ROWS])
def test_the_table_is_what_the_queries_give(row: dict[str, str], tmp_path: Path) -> None:
    there = re.match(r"a speed-up of ([\d.]+), (\d+) requests", row["Situation"])
    speedup, concurrency = (float(there[1]), int(there[2])) if there else (None, 16)
    nothing = row["The query gives"] == "nothing"
    slowdown = 1 / speedup if speedup and not nothing else None

    answers(
        tmp_path,
        {
            flat(TRIGGERS["slowdown"]["metadata"]["query"]): slowdown,
            of_adapter("specdec_slowdown"): slowdown or 0.0,
            flat(TRIGGERS["load"]["metadata"]["query"]): 2.0 * (concurrency + 1),
        },
        speedup,
        concurrency,
    )
    says = row[f"The autoscaler wants, with {REPLICAS} replicas"]
    if slowdown is None:
        assert says == "the trigger by load decides"
    else:
        assert float(row["The query gives"]) == pytest.approx(slowdown, abs=0.005)
        assert says.startswith(str(wanted(slowdown, REPLICAS)))


def test_the_hysteresis_is_the_one_of_the_page() -> None:
    (found,) = re.findall(r"speed-up of (0\.\d+), and it lets the service scale in only above\s+(1\.\d+)", PAGE)
    out, back = map(float, found)

    assert wanted(1 / (out - 0.01), REPLICAS) > REPLICAS == wanted(1 / (out + 0.01), REPLICAS)
    assert wanted(1 / (back + 0.01), 100) < 100 == wanted(1 / (back - 0.01), 100)
