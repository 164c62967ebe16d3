"""What leaves a real Alertmanager: the rendered example, with nothing changed but addresses and waiting times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from alertmanager.catalogue import TEMPLATES
from alertmanager.conftest import Release
from alertmanager.fired import fired
from alertmanager.server import Receiver, alertmanager, receiver
from alertmanager.test_configuration import rendered_with
from alertmanager.test_pages import LOW

GRAFANA = "https://grafana.mine.net"
RUNBOOK = "runbooks/SpecDecodeAcceptanceLow.md"


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
    assert {alert.labels["severity"] for alert in alerts} == {"critical", "warning"}
    async with receiver() as taking:
        async with alertmanager(release.server, configured(taking, tmp_path), tmp_path) as server:
            labels = [alert.labels for alert in alerts]
            annotations = {**alerts[0].annotations, "dashboard_url": f"{GRAFANA}/d/specdec-service"}
            await server.post(*labels, annotations=annotations)
            (slack,), (page,), (hook,) = await asyncio.gather(
                *(taking.got(path) for path in ("/slack", "/pagerduty", "/webhook"))
            )
            await server.post(*labels, annotations=annotations, ended=True)
            after = await asyncio.gather(*(taking.got(path, 2) for path in ("/slack", "/pagerduty", "/webhook")))

    # One alert: the ticket of the same name is silenced by the page.
    title = "[FIRING:1] eu-1/prod/chat: SpecDecodeAcceptanceLow"
    (message,) = slack["attachments"]
    assert (message["title"], message["color"]) == (title, "danger")
    assert message["text"].startswith("*CRITICAL SpecDecodeAcceptanceLow*, since ")
    assert "Acceptance is 4% over the last 5m and 4% over 30m on eu-1/prod/chat (llama)." in message["text"]
    assert "tokens (mean acceptance length); at this load (4 running) about 2.50 pay off, assumed." in message["text"]
    assert message["title_link"] == "https://alertmanager.example.com/#/alerts?receiver=specdec-chat"

    assert page["event_action"] == "trigger"
    assert page["payload"]["summary"] == title
    assert page["payload"]["severity"] == "critical"
    assert page["payload"]["component"] == "eu-1/prod/chat"
    assert page["payload"]["class"] == "SpecDecodeAcceptanceLow"
    assert RUNBOOK in page["payload"]["custom_details"]["firing"]
    assert [link["text"] for link in page["links"]] == ["Runbook", "Dashboard"]
    assert page["links"][0]["href"].endswith(RUNBOOK)
    assert page["links"][1]["href"] == annotations["dashboard_url"]
    assert page["routing_key"] == "0123456789abcdef0123456789abcdef"

    (told,) = hook["alerts"]
    assert told["annotations"] == annotations
    assert hook["groupLabels"] == {"cluster": "eu-1", "namespace": "prod", "inference_service": "chat"}

    # Two: when the page is over, nothing silences the end of the ticket any more.
    (_, over), (_, closed), (_, hooked) = after
    (message,) = over["attachments"]
    assert (message["title"], message["color"]) == ("[RESOLVED:2] eu-1/prod/chat: SpecDecodeAcceptanceLow", "good")
    assert "*RESOLVED SpecDecodeAcceptanceLow* (critical) after " in message["text"]
    assert (closed["event_action"], closed["dedup_key"]) == ("resolve", page["dedup_key"])
    assert hooked["status"] == "resolved"


async def test_what_gets_worse_stays_one_incident(release: Release, tmp_path: Path) -> None:
    common = {"component": "specdec", "severity": "critical", "inference_service": "chat", "model_name": "llama"}
    low, harm = ({"alertname": f"SpecDecode{name}", **common} for name in ("AcceptanceLow", "Harmful"))
    async with receiver() as taking:
        async with alertmanager(release.server, configured(taking, tmp_path), tmp_path) as server:
            await server.post(low)
            (first,) = await taking.got("/pagerduty")
            await server.post(harm)
            (_, second) = await taking.got("/pagerduty", 2)
            await server.post(low, harm, ended=True)
            (*_, last) = await taking.got("/pagerduty", 3)

    assert [first["event_action"], second["event_action"], last["event_action"]] == ["trigger", "trigger", "resolve"]
    assert first["dedup_key"] == second["dedup_key"] == last["dedup_key"]
    assert "SpecDecodeHarmful" in second["payload"]["summary"]
