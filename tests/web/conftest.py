"""A browser for tests of what it shows."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from support.fieldtools import tool
from web.browser import Browser

CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="module")
def session_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One WebDriver session in a fresh profile, for as long as the module's tests run."""
    arguments = [*CHROMIUM_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]
    capabilities = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
    with subprocess.Popen([tool("chromedriver"), "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            started = next(line for line in driver.stdout if "started successfully on port" in line)
            url = f"http://127.0.0.1:{started.split()[-1].rstrip('.')}/session"
            body = json.dumps({"capabilities": {"alwaysMatch": capabilities}}).encode()
            with urllib.request.urlopen(urllib.request.Request(url, body, method="POST")) as response:
                url += f"/{json.load(response)['value']['sessionId']}"
            yield url
            with urllib.request.urlopen(urllib.request.Request(url, method="DELETE")):
                pass  # ends Chromium
        finally:
            driver.terminate()


@pytest.fixture
async def browser(session_url: str) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as http:
        browser = Browser(http, session_url)
        await browser.resize(1100)
        await browser.colours("light")
        yield browser
        await browser.command("POST", "/url", {"url": "about:blank"})
        await browser.complaints()
