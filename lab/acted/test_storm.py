"""A third of a fleet is down, or slower, within two minutes: what people are sent, by a real Alertmanager.

The alerts are those that the rules make, posted minute by minute as a Prometheus does. A minute takes half a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from alertmanager.catalogue import EXAMPLE, document
from alertmanager.conftest import Release
from alertmanager.fired import pack
from alertmanager.server import Labels, alertmanager, lead_to, receiver
from alertmanager.storm import MINUTES, ONSET, SERVICES, STORMS, storm
from rules.scenario import Case
from support.rulelint import seconds

pytestmark = pytest.mark.slow

MINUTE_SECONDS = 0.5


def hasten(route: dict[str, Any]) -> None:
    for key in {"group_wait", "group_interval"} & route.keys():
        route[key] = f"{seconds(route[key]) / 60 * MINUTE_SECONDS * 1000:.0f}ms"
    for child in route.get("routes", ()):
        hasten(child)


async def told(release: Release, directory: Path, firing: Sequence[Sequence[Labels]]) -> list[tuple[str, Any]]:
    """What is sent, and to whom, about alerts that fire minute by minute."""
    configuration = document(EXAMPLE.name)
    hasten(configuration["route"])
    clock = asyncio.get_running_loop().time
    async with receiver() as taking:
        lead_to(taking, configuration)
        async with alertmanager(release.server, configuration, directory) as server:
            began = clock()
            before: Sequence[Labels] = []
            for minute, now in enumerate([*firing, *[[]] * 6]):
                await asyncio.sleep(began + minute * MINUTE_SECONDS - clock())
                await server.post(*(labels for labels in now if labels not in before))
                await server.post(*(labels for labels in before if labels not in now), ended=True)
                before = now
    return taking.received


@pytest.fixture(name="stormy", scope="module", params=STORMS)
def _storm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[list[Labels]]]:
    """A page, and what fires minute by minute, from the first."""
    name: str = request.param
    case = Case(name="storm", series=storm(name))
    directory = tmp_path_factory.mktemp("rules")
    found = pack(directory).firing(case, minutes=range(ONSET, MINUTES), every=1)["storm"]
    firing = [list[Labels](found[minute]) for minute in sorted(found)]
    busy = [minute for minute, now in enumerate(firing) if now]
    return name, firing[busy[0] : busy[-1] + 1]


async def test_a_storm_is_one_page_and_so_is_its_end(
    stormy: tuple[str, list[list[Labels]]], release: Release, tmp_path: Path
) -> None:
    name, firing = stormy
    began = [[labels["alertname"] for labels in now if labels["severity"] == "critical"] for now in firing]
    assert {page for now in began for page in now} == {name}
    assert len(began[0]) < max(map(len, began)) == SERVICES  # they do not come at once

    sent = await told(release, tmp_path, firing)

    for to in ("/specdec-pager", "/specdec-chat"):
        pages = [body for path, body in sent if path == to and body["commonLabels"].get("severity") == "critical"]
        assert len({body["groupKey"] for body in pages}) == 1
        alerts = [Counter(alert["status"] for alert in body["alerts"]) for body in pages]
        assert alerts == [{"firing": SERVICES}, {"resolved": SERVICES}]
