"""Records of half an hour outlive the metrics that they are of; tables and stats show none of them then."""

from __future__ import annotations

from pathlib import Path

import promql_parser as promql
import pytest
import yaml

from dashboards.conftest import DASHBOARDS
from dashboards.grafana import ALL, SCRAPE_SECONDS, Variable, Window, interpolate
from support.promqllabels import walk
from support.promtool import promtool

pytestmark = pytest.mark.debian

# Dashboard and title of the panels with figures of now.
FIGURES = {
    ("specdec-fleet", "Services"),
    ("specdec-ab", "Measured speed-up"),
    ("specdec-ab", "Mean time per output token"),
    ("specdec-ab", "Acceptance rate"),
    ("specdec-pack", "Baselines"),
}
VERDICTS = {("specdec-fleet", "Services"), ("specdec-service", "Verdict"), ("specdec-service", "What to do")}
UP = "inference_service:specdec_up:max"
# Verdicts end with the metrics, alerts outlast them, a baseline stands.
NO_FIGURES = (":specdec_verdict:", "ALERTS", ":specdec_latency:baseline", ":specdec_acceptance:usual", "_baseline_")
SERVICE = 'cluster="eu-1", namespace="prod", inference_service="chat"'
LABELS = f'{SERVICE}, model_name="llama", sli="tpot", stat="mean", source="file"'
READABLE, GONE = "20m", "28m"
ENDS = {"its pods do not answer": "1x22 0x20", "its pods are no targets": "1x22 _x20"}


def queries(panels: set[tuple[str, str]]) -> list[str]:
    """What these panels ask of the service."""
    asked = []
    for dashboard in DASHBOARDS:
        picks = dict.fromkeys(("inference_service", "compare_with"), "chat")
        variables = {each["name"]: Variable(each, picks.get(each["name"], ALL)) for each in dashboard.variables}
        macros = Window(0, 6 * 3600, SCRAPE_SECONDS).macros
        targets = [panel.targets for panel in dashboard.panels if (dashboard.name, panel.title) in panels]
        asked += [interpolate(target["expr"], variables, macros) for each in targets for target in each]
    return asked


def records(query: str) -> set[str]:
    """The series that a query reads, without :data:`UP`."""
    return {
        each.name for each in walk(promql.parse(query)) if isinstance(each, promql.VectorSelector) and each.name
    } - {UP}


def expect(folder: Path, end: str, counts: dict[tuple[str, str], int], series: set[str]) -> None:
    """Let promtool count what queries give at a time, of a service that ends so; ``series`` never end."""
    inputs = [{"series": f"{UP}{{{SERVICE}}}", "values": ENDS[end]}]
    inputs += [{"series": f"{name}{{{LABELS}}}", "values": "0.72x60"} for name in sorted(series)]
    expected = [
        {
            "expr": f"count({query}) or vector(0)",
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": count}],
        }
        for (query, at), count in counts.items()
    ]
    file = folder / "gone.yaml"
    tests = [{"interval": "1m", "input_series": inputs, "promql_expr_test": expected}]
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": tests}), encoding="utf-8")
    promtool().test_rules(file)


@pytest.mark.parametrize("end", ENDS)
def test_a_service_without_metrics_has_no_figures(end: str, tmp_path: Path) -> None:
    figures = [query for query in queries(FIGURES) if records(query) and not any(name in query for name in NO_FIGURES)]
    counts = {(query, at): count for query in figures for at, count in ((READABLE, 1), (GONE, 0))}

    assert len(figures) == 8 + 2 * 3 + 1
    expect(tmp_path, end, counts, set().union(*map(records, figures)))


@pytest.mark.parametrize("end", ENDS)
def test_the_verdict_of_a_service_without_metrics_says_so(end: str, tmp_path: Path) -> None:
    verdicts = [query for query in queries(VERDICTS) if "no_metrics" in query]
    counts = {(query, at): count for query in verdicts for at, count in ((READABLE, 0), (GONE, 1))}

    assert len(verdicts) == len(VERDICTS)
    expect(tmp_path, end, counts, set())
