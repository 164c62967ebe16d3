"""What leaves a real Alertmanager: the rendered example, with nothing changed but addresses and waiting times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from alertmanager.catalogue import TEMPLATES
from alertmanager.conftest import Release
from alertmanager.fired import fired
from alertmanager.server import Receiver, alertmanager, receiver
from alertmanager.test_configuration import rendered_with
from alertmanager.test_pages import LOW

GRAFANA = "https://grafana.mine.net"


def configured(taking: Receiver, directory: Path) -> Any:
    """The example, whose secrets are files here and whose integrations lead to the receiver."""
    (directory / "slack-webhook-url").write_text(f"{taking.url}/slack", encoding="utf-8")
    (directory / "pagerduty-routing-key").write_text("0123456789abcdef0123456789abcdef", encoding="utf-8")
    (directory / "webhook-token").write_text("secret", encoding="utf-8")
    example = rendered_with(
        f"""{{ grafana_url: '{GRAFANA}', alertmanager+: {{
            group_wait_seconds: 1,
            group_interval_seconds: 1,
            secrets_directory: '{directory}',
            templates: ['{TEMPLATES}/*.tmpl'],
            webhook_url: '{taking.url}/webhook',
            chat: ['slack', 'webhook'],
        }} }}"""
    )["example"]
    (pager,) = (one for one in example["receivers"] if "pagerduty_configs" in one)
    pager["pagerduty_configs"][0]["url"] = f"{taking.url}/pagerduty"
    return example


async def test_a_page_reaches_chat_pager_and_webhook_and_its_end_does_too(release: Release, tmp_path: Path) -> None:
    (alerts,) = fired(tmp_path, (55, LOW))
    alerts = [alert for alert in alerts if alert.labels["severity"] != "info"]
    assert {alert.labels["severity"] for alert in alerts} == {"critical", "warning"}
    async with receiver() as taking:
        async with alertmanager(release.server, configured(taking, tmp_path), tmp_path) as server:
            labels = [alert.labels for alert in alerts]
            page = next(alert for alert in alerts if alert.labels["severity"] == "critical")
            annotations = {**page.annotations, "dashboard_url": f"{GRAFANA}/d/specdec-service"}
            await server.post(*labels, annotations=annotations)
            (slack,), (paged,), (hook,) = await asyncio.gather(
                *(taking.got(path) for path in ("/slack", "/pagerduty", "/webhook"))
            )
            await server.post(*labels, annotations=annotations, ended=True)
            (_, over), (_, closed) = await asyncio.gather(*(taking.got(path, 2) for path in ("/slack", "/pagerduty")))

    # One alert: the ticket of the same name is silenced by the page.
    title = "[FIRING:1] eu-1/prod/chat (llama) accepts almost no draft token: at most 4% in 15m."
    (message,) = slack["attachments"]
    assert (message["title"], message["color"]) == (title, "danger")
    assert message["text"].startswith("*CRITICAL SpecDecodeAcceptanceLow*, since ")
    assert message["title_link"] == "https://alertmanager.example.com/#/alerts?receiver=specdec-chat"

    assert paged["event_action"] == "trigger"
    assert paged["payload"]["summary"] == title
    assert paged["payload"]["severity"] == "critical"
    assert paged["payload"]["component"] == "eu-1/prod/chat"
    assert paged["payload"]["class"] == "SpecDecodeAcceptanceLow"
    assert annotations["description"] in paged["payload"]["custom_details"]["firing"]
    assert [link["text"] for link in paged["links"]] == ["Runbook", "Dashboard"]
    assert paged["links"][0]["href"].endswith("runbooks/SpecDecodeAcceptanceLow.md")
    assert paged["links"][1]["href"] == annotations["dashboard_url"]
    assert paged["routing_key"] == "0123456789abcdef0123456789abcdef"

    (told,) = hook["alerts"]
    assert told["annotations"] == annotations
    assert hook["groupLabels"] == {"cluster": "eu-1"}

    (message,) = over["attachments"]
    assert (message["title"], message["color"]) == ("[RESOLVED:1] eu-1/prod/chat: SpecDecodeAcceptanceLow", "good")
    assert "*RESOLVED SpecDecodeAcceptanceLow* (critical) after " in message["text"]
    assert (closed["event_action"], closed["dedup_key"]) == ("resolve", paged["dedup_key"])


@pytest.mark.parametrize(("first", "worse"), [("P99Regression", "Harmful"), ("TargetDown", "RestartLoop")])
async def test_what_gets_worse_stays_one_incident_and_ends(
    first: str, worse: str, release: Release, tmp_path: Path
) -> None:
    """Even if what paged first ends while it is silenced."""
    common = {"component": "specdec", "severity": "critical", "inference_service": "chat"}
    before, after = ({"alertname": f"SpecDecode{name}", **common} for name in (first, worse))
    async with receiver() as taking:
        async with alertmanager(release.server, configured(taking, tmp_path), tmp_path) as server:
            await server.post(before)
            (paged,) = await taking.got("/pagerduty")
            await server.post(after)
            (_, again) = await taking.got("/pagerduty", 2)
            await server.post(before, ended=True)
            await asyncio.sleep(2.5)  # two intervals
            await server.post(after, ended=True)
            (*_, last) = await taking.got("/pagerduty", 3)

    assert [paged["event_action"], again["event_action"], last["event_action"]] == ["trigger", "trigger", "resolve"]
    assert paged["dedup_key"] == again["dedup_key"] == last["dedup_key"]
    assert worse in again["payload"]["class"]
