"""The exporter killed at random moments loses and doubles nothing that it has promised to keep."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from soak.killed import run

NEW_EVERY_TIME = random.randrange(2**32)


@pytest.mark.parametrize(
    ("kills", "seed"), [(5, 16), pytest.param(100, NEW_EVERY_TIME, id="many", marks=pytest.mark.nightly)]
)
async def test_kills(kills: int, seed: int, tmp_path: Path) -> None:
    """Each needs a process to kill and another to look."""
    tally = await run(kills, random.Random(seed), tmp_path)
    assert tally.kills >= kills
    assert (tally.torn, tally.lost, tally.doubled) == (0, 0, 0), f"seed {seed}"
