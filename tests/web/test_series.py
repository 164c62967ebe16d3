"""How many series a predictor costs, and how many of them rules and dashboards read: what docs/metrics.md says.

With ``--update-golden`` the page is written anew.
"""

from __future__ import annotations

import re

import pytest

from generated import filled
from support.builders import CAPTURES
from support.fieldtools import ROOT
from support.running import exporter, predictor

PAGE = ROOT / "docs" / "metrics.md"
CAPTURE = CAPTURES / "0.32.0-draft_model-k3"
DASHBOARDS = (ROOT / "dashboards" / "rendered").glob("*.json")


async def test_the_page_tells_how_many_there_are(request: pytest.FixtureRequest) -> None:
    body = (CAPTURE / "metrics-2-p30.txt").read_bytes()
    log = (f"--predictor.log-path={CAPTURE / 'server.log'}", "--predictor.log-from=start")
    async with predictor(body) as vllm, exporter(f"--predictor.url={vllm.url}", *log) as one:
        names = [name.partition("{")[0] for name in await one.samples()]

    texts = [path.read_text() for path in (ROOT / "rules/rendered/specdec.rules.yaml", *DASHBOARDS)]
    asked = set(re.findall(r"\bspecdec_\w+", "\n".join(texts)))
    series, buckets = len(names), sum(name.endswith("_bucket") for name in names)
    read = sum(name in asked for name in names)
    told = (
        f"One engine of vLLM 0.32.0 that drafts 3 tokens has {series} series: {buckets} are buckets of histograms.\n"
        f"Rules and dashboards read {read}.\n"
    )
    page = filled(PAGE.read_text(encoding="utf-8"), {"series": told})
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == page


def test_no_other_page_has_a_number_of_its_own() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path != PAGE]

    assert [path.name for path in pages if re.search(r"\b[12]\d\d series\b", path.read_text())] == []
