"""A current Prometheus that converts histograms to native ones: what it leaves of ours, and what the pack says."""

from __future__ import annotations

import re
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.fleet import exposing
from deploy.manifests import KUBERNETES, read
from rules.conftest import rendered
from support.fieldtools import ROOT
from support.processes import wait_until
from support.tsdb import prometheus, query

CONVERTED = {"convert_classic_histograms_to_nhcb": True}
# The operator writes the field of a PodMonitor as the setting of a scrape.
(MONITOR, *MONITORS) = (read(path)["spec"] for path in sorted(KUBERNETES.glob("monitoring/*podmonitor*.yaml")))
KEPT = {"always_scrape_classic_histograms": MONITOR["scrapeClassicHistograms"]}
# Settings of a scrape by name; the name is the namespace of its series.
SCRAPES: dict[str, dict[str, bool]] = {
    "as-it-is": {},
    "converted": CONVERTED,
    "converted-and-kept": CONVERTED | KEPT,
}
REASON = "histograms_missing"


def test_every_monitor_keeps_classic_histograms() -> None:
    assert MONITORS
    assert {monitor["scrapeClassicHistograms"] for monitor in (MONITOR, *MONITORS)} == {True}


def the_alert_and_its_records() -> dict[str, Any]:
    """One group that runs every second: the alert without its `for`, and the records that it reads."""
    rules = [rule for group in rendered("exporter") for rule in group["rules"]]
    (alert,) = (rule for rule in rules if rule.get("labels", {}).get("reason") == REASON)
    records = [rule for rule in rules if rule.get("record", "?") in alert["expr"]]
    now = {key: alert[key] for key in ("alert", "expr", "labels")}
    return {"groups": [{"name": "alert", "interval": "1s", "rules": [*records, now]}]}


@pytest.mark.field
def test_converted_histograms_raise_an_alert_unless_the_classic_ones_are_kept(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(the_alert_and_its_records()), encoding="utf-8")
    text, scrapes = (ROOT / "tests/golden/two-engines.txt").read_text(encoding="utf-8"), count(1)

    def page(_: str) -> bytes:
        """Of the exporter, with a million tokens more at every scrape."""
        return re.sub(r"(?m)^(specdec_generation_tokens_total\{.*\}) .*", rf"\1 {next(scrapes)}e6", text).encode()

    with exposing(page) as served:
        jobs = [
            {
                "job_name": name,
                "scrape_interval": "1s",
                "params": {"service": [name]},
                "static_configs": [{"targets": [served], "labels": {"namespace": name}}],
                **settings,
            }
            for name, settings in SCRAPES.items()
        ]
        config = yaml.safe_dump({"rule_files": [f"{tmp_path}/rules.yaml"], "scrape_configs": jobs})
        with prometheus(tmp_path / "data", "prometheus3", config) as url:

            def by_namespace(expression: str) -> list[str]:
                return sorted(dict(labels)["namespace"] for labels in query(url, expression, time.time()))

            every = "inference_service:specdec_generation_tokens:rate5m >= 1"
            wait_until(lambda: by_namespace(every) == sorted(SCRAPES), seconds=60, what="tokens of all")
            firing = f'ALERTS{{reason="{REASON}"}}'
            wait_until(lambda: bool(by_namespace(firing)), seconds=60, what="alert")

            assert by_namespace(firing) == ["converted"]
            buckets = by_namespace("group by (namespace) (specdec_time_per_output_token_seconds_bucket)")
            assert buckets == ["as-it-is", "converted-and-kept"]
