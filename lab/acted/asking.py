"""Prometheus' API, asked until it has what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

SECONDS = 20.0


async def until(url: str, path: str, enough: Callable[[Any], Any]) -> Any:
    """The data of the first answer that is enough."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(SECONDS):
        while True:
            async with session.get(url + path) as answer:
                data = (await answer.json())["data"]
            if enough(data):
                return data
            await asyncio.sleep(0.1)
