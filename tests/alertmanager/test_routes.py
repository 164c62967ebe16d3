"""Who is told: every alert of the pack, with the labels that it really has, ends where it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from alertmanager.catalogue import EXAMPLE, Rule, document, rules
from alertmanager.conftest import RELEASES, Release
from alertmanager.server import alertmanager, lead_to, receiver

# By labels, since routes see nothing else: the two sources differ in a few.
PACK = {str(sorted(rule.example.items())): rule for source in ("exporter", "vllm") for rule in rules(source)}.values()
TOLD = {"critical": "specdec-pager,specdec-chat", "warning": "specdec-chat", "info": "specdec-nobody"}


def routed(release: Release, labels: dict[str, str], receivers: str) -> str:
    pairs = [f"{name}={value}" for name, value in labels.items()]
    options = (f"--config.file={EXAMPLE}", f"--verify.receivers={receivers}", "--tree")
    answer = release.amtool("config", "routes", "test", *options, *pairs)
    return "" if answer.returncode == 0 else answer.stdout


@pytest.mark.parametrize("release", RELEASES[:1])
@pytest.mark.parametrize("rule", PACK, ids=str)
def test_an_alert_ends_where_it_should(rule: Rule, release: Release) -> None:
    assert not routed(release, dict(rule.example), TOLD[rule.severity])


OTHERS = {
    "of a severity of somebody else's": ({"component": "specdec", "severity": "page"}, "specdec-chat"),
    "of somebody else": ({"severity": "critical"}, "everything-else"),
}


@pytest.mark.parametrize(("labels", "told"), OTHERS.values(), ids=OTHERS)
def test_an_alert_that_is_not_the_packs_ends_somewhere(labels: dict[str, str], told: str, release: Release) -> None:
    assert not routed(release, {"alertname": "Watchdog", **labels}, told)
    assert routed(release, {"alertname": "Watchdog", **labels}, "specdec-pager")  # the check itself can fail


@pytest.mark.parametrize(("open_now", "told"), [(True, {"info", "warning"}), (False, {"warning"})])
async def test_context_is_told_in_business_hours_alone(
    open_now: bool, told: set[str], release: Release, tmp_path: Path
) -> None:
    async with receiver() as taking:
        example = document(EXAMPLE.name)
        lead_to(taking, example)
        if not open_now:
            example["time_intervals"][0]["time_intervals"] = [{"years": ["1999"]}]
        example["route"]["routes"][0] |= {"group_wait": "100ms", "group_interval": "100ms"}
        async with alertmanager(release.server, example, tmp_path) as server:
            common = {"component": "specdec", "inference_service": "chat"}
            await server.post({"alertname": "SpecDecodeDataUntrusted", "severity": "info", **common})
            if open_now:
                await taking.got("/specdec-chat")
            await server.post({"alertname": "SpecDecodeLoadTooHigh", "severity": "warning", **common})
            await taking.got("/specdec-chat", len(told))

    severities = [alert["labels"]["severity"] for _, body in taking.received for alert in body["alerts"]]
    assert set(severities) == told
