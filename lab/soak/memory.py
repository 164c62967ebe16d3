#!/usr/bin/env python3
"""``make soak-memory``: every bomb against one exporter; ``--record`` writes into docs/evidence/reliability.md."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from report import EVIDENCE, measured_by, record, recording
from soak.bombs import ALL, LIMIT_MIB, target


async def main(*, recorded: bool) -> int:
    """Run the bombs one after the other in one process, so that leaks add up; 1 if memory went beyond the limit."""
    rows, worst = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        async with target(Path(folder)) as on:
            for name, bomb in ALL.items():
                found = await on.survive(bomb)
                worst = max(worst, found.peak_mib)
                up = {(1.0,): "read", (0.0,): "refused", (0.0, 1.0): "read or refused"}[tuple(sorted(found.up))]
                dropped = ", ".join(f"{number:,} {what}" for what, number in found.dropped.items())
                rows.append(
                    (
                        name,
                        up,
                        f"{found.peak_mib:.0f} MiB",
                        f"{found.scrape_seconds:.2f} s",
                        f"{found.health_seconds:.2f} s",
                        dropped,
                    )
                )
                sys.stdout.write("\t".join(rows[-1]) + "\n")
                sys.stdout.flush()
    header = ("Bomb", "Predictor's metrics", "Peak memory", "Longest scrape", "Longest wait for health", "Dropped")
    if recorded:
        record(EVIDENCE / "reliability.md", "memory", header, rows, measured_by("make soak-memory ARGS=--record"))
    return worst > LIMIT_MIB


if __name__ == "__main__":
    sys.exit(asyncio.run(main(recorded=recording(__doc__).parse_args().record)))
