"""The exporter killed at random moments loses and doubles nothing that it has promised to keep."""

from __future__ import annotations

import random
from pathlib import Path

from soak.killed import run


async def test_five_kills(tmp_path: Path) -> None:
    """Each needs a process to kill and another to look; `make soak-killed` does 200."""
    tally, _ = await run(5, random.Random(16), tmp_path)
    assert tally.kills >= 5
    assert (tally.torn, tally.lost, tally.doubled) == (0, 0, 0)
