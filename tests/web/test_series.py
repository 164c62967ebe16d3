"""How many series a predictor costs, and that the rules do without those that docs/metrics.md lets you drop."""

from __future__ import annotations

import re

from builders import CAPTURES
from fieldtools import ROOT
from running import exporter, predictor

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
(DROPPED,) = re.findall(r"^    regex: (.*)$", PAGE, re.MULTILINE)


def test_no_rule_reads_what_may_be_dropped() -> None:
    rules = (ROOT / "rules" / "rendered" / "specdec.rules.yaml").read_text(encoding="utf-8")

    assert [name for name in re.findall(r"\bspecdec_\w+", rules) if re.fullmatch(DROPPED, name)] == []


async def test_the_page_tells_how_many_there_are() -> None:
    series, buckets = map(int, re.search(r"has about (\d+) series, (\d+) of them buckets", PAGE).groups())  # type: ignore[union-attr]
    (fewer,) = map(int, re.findall(r"you can drop (\d+) series", PAGE))
    capture = CAPTURES / "0.32.0-draft_model-k3"
    body = (capture / "metrics-2-p30.txt").read_bytes()
    log = f"--predictor.log-path={capture / 'server.log'}"
    async with (
        predictor(body) as vllm,
        exporter(f"--predictor.url={vllm.url}", log, "--predictor.log-from=start") as one,
    ):
        found = await one.samples()

    names = [name.partition("{")[0] for name in found]
    assert abs(len(names) - series) <= series / 20
    assert abs(sum(name.endswith("_bucket") for name in names) - buckets) <= buckets / 20
    assert abs(sum(re.fullmatch(DROPPED, name) is not None for name in names) - fewer) <= fewer / 20
