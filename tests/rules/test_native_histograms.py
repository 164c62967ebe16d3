"""A current Prometheus that converts histograms to native ones: what it leaves of ours, and what the pack says."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from demo.processes import free_port, running
from deploy.asking import until
from deploy.manifests import KUBERNETES, read
from fieldtools import ROOT, tool
from rules.conftest import RENDERED
from rules.scenario import rule_groups

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
    rules = [rule for group in rule_groups(RENDERED / "specdec.rules.yaml") for rule in group["rules"]]
    (alert,) = (rule for rule in rules if rule.get("labels", {}).get("reason") == REASON)
    records = [rule for rule in rules if rule.get("record", "?") in alert["expr"]]
    now = {key: alert[key] for key in ("alert", "expr", "labels")}
    return {"groups": [{"name": "alert", "interval": "1s", "rules": [*records, now]}]}


@asynccontextmanager
async def exposition() -> AsyncIterator[int]:
    """A page of the exporter that counts a million tokens more at every scrape; yields its port."""
    text = (ROOT / "tests/golden/two-engines.txt").read_text(encoding="utf-8")
    scrapes = count(1)

    async def metrics(_: web.Request) -> web.Response:
        tokens = f"{next(scrapes)}e6"
        return web.Response(text=re.sub(r"(?m)^(specdec_generation_tokens_total\{.*\}) .*", rf"\1 {tokens}", text))

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield port
    finally:
        await runner.cleanup()


@pytest.mark.field
async def test_converted_histograms_raise_an_alert_unless_the_classic_ones_are_kept(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(the_alert_and_its_records()), encoding="utf-8")
    port = free_port()
    prometheus = [
        tool("prometheus3"),
        f"--config.file={tmp_path}/prometheus.yaml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    async with exposition() as served:
        jobs = [
            {
                "job_name": name,
                "scrape_interval": "1s",
                "static_configs": [{"targets": [f"127.0.0.1:{served}"], "labels": {"namespace": name}}],
                **settings,
            }
            for name, settings in SCRAPES.items()
        ]
        config = {"rule_files": ["rules.yaml"], "scrape_configs": jobs}
        (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        async with running("prometheus", prometheus, port=port, ready="/-/ready", directory=tmp_path) as server:

            async def by_namespace(query: str, enough: int) -> list[str]:
                found = await until(
                    server.url, f"/api/v1/query?query={query}", lambda data: len(data["result"]) >= enough
                )
                return sorted(sample["metric"]["namespace"] for sample in found["result"])

            every = await by_namespace("inference_service:specdec_generation_tokens:rate5m >= 1", len(SCRAPES))
            firing = await by_namespace(f'ALERTS{{reason="{REASON}"}}', 1)
            buckets = await by_namespace("group by (namespace) (specdec_time_per_output_token_seconds_bucket)", 1)

    assert every == sorted(SCRAPES)
    assert firing == ["converted"]
    assert buckets == ["as-it-is", "converted-and-kept"]
