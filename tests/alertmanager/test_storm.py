"""Fifty of 150 services are down at once: all that people are sent, by a real Alertmanager with the rendered routes.

The alerts are those that the rules make: at the first evaluation that pages, and when the tickets of replicas join.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from alertmanager.catalogue import EXAMPLE, document
from alertmanager.conftest import Release
from alertmanager.fired import Alert, fired
from alertmanager.server import Alertmanager, Receiver, alertmanager, lead_to, receiver
from rules.scenario import Case
from rules.test_fleet import ONSET, fleet

pytestmark = pytest.mark.slow

SERVICES = 50
PAGER = "specdec-pager"
MANY = "SpecDecodeManyServices"
# Another service pages for a cause of its own, and the same in another cluster: neither is held back.
OTHERS = (
    {"alertname": "SpecDecodeAcceptanceLow", "cluster": "eu-1", "inference_service": "code"},
    {"alertname": "SpecDecodeTargetDown", "cluster": "us-1", "inference_service": "chat-000"},
)


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> list[list[Alert]]:
    """What fires first, and half an hour later; each service has two replicas."""
    replicas = [
        dataclasses.replace(one, labels={**one.labels, "instance": f"10.{host}.0.1:{10000 + number}"})
        for host in (1, 2)
        for number, one in enumerate(fleet(150, SERVICES, ends=100))
    ]
    minutes = (ONSET + 6, ONSET + 35)
    # Two runs: services of two cases would be of one cluster.
    return [fired(tmp_path_factory.mktemp("rules"), (m, Case(name="storm", series=replicas)))[0] for m in minutes]


def heard(taking: Receiver, service: str) -> bool:
    return any(body["groupLabels"].get("inference_service") == service for _, body in taking.received)


async def settled(server: Alertmanager, taking: Receiver, name: str) -> None:
    """Wait for all messages about what was posted: two probes, one after the other, take longer."""
    for half in ("a", "b"):
        probe = f"probe-{name}-{half}"
        labels = {"alertname": "Probe", "component": "specdec", "severity": "warning"}
        await server.post({**labels, "inference_service": probe})
        await taking.until(partial(heard, taking, probe))


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """Messages of a storm from its begin to its end. ``pages``: incidents of the pager."""

    pages: int
    messages: int
    text: str


async def told(release: Release, directory: Path, storm: Sequence[Sequence[Alert]], *, many: bool) -> Told:
    """``many``: with the page for all."""
    configuration = document(EXAMPLE.name)
    configuration["route"]["routes"][0] |= {"group_wait": "300ms", "group_interval": "300ms"}
    first, later = ([alert for alert in alerts if many or alert.name != MANY] for alerts in storm)
    own = next(alert for alert in storm[0] if alert.name == MANY)
    async with receiver() as taking:
        lead_to(taking, configuration)
        async with alertmanager(release.server, configuration, directory) as server:

            async def post(alerts: Sequence[Alert], *, ended: bool = False) -> None:
                await server.post(*(alert.labels for alert in alerts), annotations=own.annotations, ended=ended)

            await post(first)
            await server.post(*({"component": "specdec", "severity": "critical", **labels} for labels in OTHERS))
            await settled(server, taking, "first")
            await post(later)
            await settled(server, taking, "later")
            # Pages end, then the page for all, which outlasts them (tests/rules/test_fleet.py).
            await post([alert for alert in later if alert.name != MANY], ended=True)
            await settled(server, taking, "over")
            await post([alert for alert in later if alert.name == MANY], ended=True)
            await settled(server, taking, "end")
        bodies = [(path.strip("/"), body) for path, body in taking.received if "probe" not in str(body["groupLabels"])]
    groups = [(body["groupLabels"].get("cluster"), body["groupLabels"].get("inference_service")) for _, body in bodies]
    theirs = {(labels["cluster"], labels["inference_service"]) for labels in OTHERS}
    mine = [(path, body) for (path, body), group in zip(bodies, groups, strict=True) if group not in theirs]
    assert theirs <= {group for (path, _), group in zip(bodies, groups, strict=True) if path == PAGER}
    pages = {body["groupKey"]: body for path, body in mine if path == PAGER}
    return Told(len(pages), len(mine), " ".join(body["alerts"][0]["annotations"]["description"] for _, body in mine))


async def test_a_storm_is_one_page(release: Release, storm: Sequence[Sequence[Alert]], tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("before", "after")]
    for folder in folders:
        folder.mkdir()

    before, after = await asyncio.gather(
        *(told(release, folder, storm, many=many) for many, folder in zip((False, True), folders, strict=True))
    )

    assert before.pages == SERVICES
    assert before.messages >= 4 * SERVICES
    # Begin and end, each on the pager and in the chat.
    assert after.pages == 1
    assert after.messages == 4
    assert "50 services cannot be read in eu-1: prod/chat-000 prod/chat-001 " in after.text
