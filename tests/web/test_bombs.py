"""Hostile input, one bomb after the other against one exporter. `make soak-memory` has more of them."""

from __future__ import annotations

from pathlib import Path

from soak.bombs import LIMIT_MIB, QUICK, target


async def test_the_exporter_survives_within_its_memory(tmp_path: Path) -> None:
    async with target(tmp_path) as on:
        for name, bomb in QUICK.items():
            found = await on.survive(bomb)
            assert found.peak_mib < LIMIT_MIB, (name, found)
        dropped = await on.dropped()
    assert dropped["engines"] > 0
    assert dropped["labels"] == 3
    assert dropped["positions"] > 0
    assert dropped["log_engines"] == 10_000 - 512
