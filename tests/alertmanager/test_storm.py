"""Fifty of 150 services are down at once: what people are sent, by a real Alertmanager with the rendered routes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from alertmanager.catalogue import rules
from alertmanager.conftest import Release
from alertmanager.server import Labels, alertmanager, lead_to, receiver
from alertmanager.test_configuration import rendered_with

SERVICES = 50
PAGER, CHAT = "/specdec-pager", "/specdec-chat"
BY_TEXT = {str(rule): rule for rule in rules()}
MANY = BY_TEXT["SpecDecodeManyServices critical down"].example


def storm() -> Iterator[Labels]:
    """Of each service its page, the tickets of two replicas, and what was left over from before."""
    for number in range(SERVICES):
        service = {"inference_service": f"chat-{number}"}
        yield {**BY_TEXT["SpecDecodeTargetDown critical"].example, **service}
        yield {**BY_TEXT["SpecDecodeP99Regression warning"].example, **service}
        for text, rule in BY_TEXT.items():
            if text.startswith("SpecDecodeTargetDown warning"):
                for pod in ("chat-0", "chat-1"):
                    yield {**rule.example, **service, "pod": pod}


async def messages(release: Release, directory: Path, *, many: bool) -> tuple[int, int]:
    """How many reach the pager and the chat. ``many``: the pack tells that many are down, before their pages come."""
    configuration = rendered_with("{ alertmanager+: { group_wait_seconds: 1 } }")["example"]
    # Another service pages for a cause of its own, after all others: it is never held back.
    last = {**BY_TEXT["SpecDecodeAcceptanceLow critical"].example, "inference_service": "code"}
    async with receiver() as taking:
        lead_to(taking, configuration)
        async with alertmanager(release.server, configuration, directory) as server:
            if many:
                await server.post(MANY)
                await taking.got(PAGER)
            await server.post(*storm())
            if not many:
                await taking.got(PAGER, SERVICES)
                await taking.got(CHAT, SERVICES)
            await server.post(last)
            await taking.until(
                lambda: {PAGER, CHAT} <= {path for path, body in taking.received if "'code'" in str(body)}
            )
        return len(taking.at(PAGER)) - 1, len(taking.at(CHAT)) - 1


async def test_one_page_for_a_storm(release: Release, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()

    assert await messages(release, before, many=False) == (SERVICES, SERVICES)
    assert await messages(release, after, many=True) == (1, 1)
