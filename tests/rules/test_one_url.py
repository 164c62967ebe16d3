"""Two replicas behind one URL, from the text of vLLM through the exporter to the alerts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from dashboards.cast import BUSY
from dashboards.traces import END, SCRAPE_SECONDS, START, Replica, scraped
from promtool import Promtool
from rules.scenario import Case, Series
from rules.test_outages import PRESENCE, SEVERAL, pack_of

MINUTES = (END - START) // SCRAPE_SECONDS


@pytest.fixture(scope="module")
def samples() -> list[Series]:
    """What Prometheus has of one exporter whose URL leads to another replica at every scrape, every minute."""
    calm = replace(BUSY, load="0.1/s", seed=3)
    found = asyncio.run(scraped(Replica(service="chat", pod="chat-0", settings=BUSY, behind=calm, reads_log=False)))
    return [
        Series(
            name,
            dict(labels),
            [by_time.get(at) for at in range(START + SCRAPE_SECONDS, END + 1, SCRAPE_SECONDS)],
        )
        for (name, labels), values in found.items()
        if name.startswith("specdec_") and (by_time := dict(values))
    ]


def test_they_are_told_and_are_no_restart_loop(samples: list[Series], promtool: Promtool, tmp_path: Path) -> None:
    pack = pack_of(promtool, tmp_path, PRESENCE, "{}")
    pack.run(
        Case(
            name="in turn",
            series=samples,
            firing={minute: {SEVERAL} for minute in range(30, MINUTES, 20)},
            values={
                MINUTES - 1: {
                    "min_over_time(specdec_up[3h])": 1,
                    "resets(specdec_generation_tokens_total[3h])": 0,
                }
            },
        )
    )
