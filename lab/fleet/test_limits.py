"""The first limit of Mimir's defaults, by its name: a tenant of some hundred services."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from fleet.engines import ENGINES, Setting, written
from fleet.remotewrite import Labels, Sample
from fleet.story import Past

MOST_SERIES = 150_000  # max_global_series_per_user
AT_ONCE = 10_000  # below ingestion_burst_size
Series = list[tuple[Labels, list[Sample]]]


def many(begin: int, end: int, at: float) -> Series:
    return [({"__name__": "fleet_limit", "number": str(number)}, [(at, 1.0)]) for number in range(begin, end)]


def batches(at: float) -> Iterator[Series]:
    for begin in range(0, MOST_SERIES, AT_ONCE):
        yield many(begin, begin + AT_ONCE, at)


async def test_mimir_refuses_the_series_of_more_than_some_hundred_services(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    rules = written(tmp_path / "rules.yaml", {"groups": []})
    at = time.time()
    async with ENGINES["mimir"](Setting(tmp_path, Past([], nothing), [], "127.0.0.1:9", rules)) as engine:
        complaints = [await engine.push(batch) for batch in batches(at)]
        one_more = await engine.push(many(MOST_SERIES, MOST_SERIES + 1, at))

    assert set(complaints) == {""}
    assert "err-mimir-max-series-per-user" in one_more
