"""Hostile input, one bomb after the other against one exporter. `make soak-memory` has more of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.processes import memory
from soak.bombs import LIMIT_MIB, QUICK, engines, target


@pytest.mark.slow
async def test_the_exporter_survives_within_its_memory(tmp_path: Path) -> None:
    async with target(tmp_path) as on:
        before = memory(on.running.process.pid).now
        for name, bomb in QUICK.items():
            found = await on.survive(bomb)
            assert found.peak_mib < LIMIT_MIB, (name, found)
        kept = memory(on.running.process.pid).now - before
        dropped = await on.dropped()
    assert kept < 16  # MiB; what one bomb keeps, the next adds to
    assert dropped["engines"] > 0
    assert dropped["labels"] == 3
    assert dropped["positions"] > 0
    assert dropped["log_engines"] == 10_000 - 512


async def test_a_long_exposition_is_whole_for_all_readers_and_one_who_leaves_is_no_error(
    tmp_path: Path,
) -> None:
    async with target(tmp_path) as on:
        await on.answers(engines(100), 1)
        url = f"{on.running.url}/metrics"
        async with on.running.session.head(url) as response:
            assert (response.status, await response.read()) == (200, b"")
            length = int(response.headers["Content-Length"])
        plain = {"Accept-Encoding": "identity"}
        _, writer = await asyncio.open_connection("127.0.0.1", int(on.running.url.rpartition(":")[2]))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")  # and goes away without reading
        await writer.drain()
        writer.transport.abort()
        async with on.running.session.get(url, headers=plain) as one, on.running.session.get(url, headers=plain) as two:
            texts = [await each.text() for each in (one, two)]
        assert all(text.count("specdec_drafts_total{") == 100 for text in texts)
        assert length < len(texts[0])  # aiohttp's client accepts gzip
        assert not [line for line in on.running.log if "level=error" in line]
