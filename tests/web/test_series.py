"""How many series a predictor costs, and how many of them rules and dashboards read: what docs/metrics.md says."""

from __future__ import annotations

import re

from support.builders import CAPTURES
from support.fieldtools import ROOT
from support.running import exporter, predictor

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


async def test_the_page_tells_how_many_there_are() -> None:
    series, buckets = map(int, re.search(r"has about (\d+) series, (\d+) of them buckets", PAGE).groups())  # type: ignore[union-attr]
    (read,) = map(int, re.findall(r"dashboards read about (\d+) of them", PAGE))
    capture = CAPTURES / "0.32.0-draft_model-k3"
    body = (capture / "metrics-2-p30.txt").read_bytes()
    log = f"--predictor.log-path={capture / 'server.log'}"
    async with (
        predictor(body) as vllm,
        exporter(f"--predictor.url={vllm.url}", log, "--predictor.log-from=start") as one,
    ):
        found = await one.samples()

    names = [name.partition("{")[0] for name in found]
    texts = [
        path.read_text()
        for path in (ROOT / "rules/rendered/specdec.rules.yaml", *(ROOT / "dashboards/rendered").glob("*"))
    ]
    asked = set(re.findall(r"\bspecdec_\w+", "\n".join(texts)))
    assert abs(len(names) - series) <= series / 20
    assert abs(sum(name.endswith("_bucket") for name in names) - buckets) <= buckets / 20
    assert abs(sum(name in asked for name in names) - read) <= read / 20
