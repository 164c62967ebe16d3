"""Every place that ``make demo`` names opens: in a browser, or in a shell."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from demo import pack
from deploy.test_demo import demo
from support.fieldtools import ROOT
from web.browser import Browser

START_SECONDS = 60
# What a reader sees at each place.
SHOWN = {
    "status page": "simulated/target-8b",
    "metrics": "specdec_up",
    "Prometheus": "SpecDecodeHarmful",
    "Alertmanager": "Alertname",
}

pytestmark = pytest.mark.debian


async def printed(process: asyncio.subprocess.Process) -> dict[str, str]:
    """The places by name, as the demo prints them when all its servers run."""
    places: dict[str, str] = {}
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        while len(places) < len(SHOWN):
            line = (await process.stdout.readline()).decode()
            assert line, "the demo ended"
            places |= dict(re.findall(r"^  (\S+(?: \S+)?)  +(.+)$", line))
    return places


async def test_every_place_opens(browser: Browser) -> None:
    async with demo() as process:
        places = await printed(process)
        assert places.keys() == SHOWN.keys()
        for name, place in places.items():
            if place.startswith("http://"):
                await browser.command("POST", "/url", {"url": place})
                await browser.until(f"return document.body.innerText.includes('{SHOWN[name]}')")
            else:
                shell = await asyncio.create_subprocess_shell(place, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
                output, _ = await asyncio.wait_for(shell.communicate(), START_SECONDS)
                assert (shell.returncode, SHOWN[name] in output.decode()) == (0, True)


async def test_every_alert_names_a_runbook_of_this_checkout() -> None:
    rules = json.loads(await pack.text("rules"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]

    assert alerts
    assert [alert["alert"] for alert in alerts if not (ROOT / alert["annotations"]["runbook_url"]).is_file()] == []
