"""What people are sent: rendered by amtool from alerts that the rules really make, and kept in messages.txt."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from alertmanager.catalogue import FRAGMENT, TEMPLATES, document
from alertmanager.conftest import Release
from alertmanager.fired import Alert, fired, group
from alertmanager.inhibition import inhibited
from fieldtools import ROOT
from rules.scenario import Case, Phase, pinned, service, slower
from rules.test_descriptions import SLIS, USUAL

MESSAGES = Path(__file__).parent / "messages.txt"
README = ROOT / "alertmanager" / "README.md"
GROUP_BY: list[str] = document(FRAGMENT.name)["route"]["routes"][0]["group_by"]
INHIBITION = document(FRAGMENT.name)["inhibit_rules"]

POOR = (0.5, 0.2, 0.1)
BROKEN = (0.09, 0.03, 0.0)
LOW = Case(name="almost nothing is accepted", series=service(Phase(minutes=60, curve=BROKEN)))
HARM = Case(
    name="harm",
    series=service(
        Phase(minutes=60, curve=POOR, latency={**USUAL, "tpot": slower(USUAL["tpot"], 1.5)}, kv_cache=0.95),
        families=SLIS,
    )
    + pinned(60, USUAL),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """One sample: its heading, the templates that make it, and the alerts of its group."""

    heading: str
    parts: tuple[str, ...]
    alerts: Callable[[Sequence[Alert], Sequence[Alert]], list[Alert]]
    remark: str = ""


SAMPLES = (
    Page("Slack: acceptance is low", ("title", "slack.text"), lambda low, _: list(low)),
    Page("Slack: it is over", ("title", "slack.text"), lambda low, _: [alert.ended() for alert in low]),
    Page(
        "PagerDuty: speculation does harm",
        ("title", "text.firing"),
        lambda _, harm: [alert for alert in harm if alert.labels["severity"] == "critical"],
        "These are the incident's title and its detail `firing`. The incident also links to the runbook.",
    ),
    Page(
        "E-mail and webhooks: several alerts of one service, one of them over",
        ("title", "text"),
        lambda low, harm: [*harm, *(alert.ended() for alert in low)],
        "These are the subject and the text. The HTML part says the same, with links.",
    ),
)


Alerts = tuple[list[Alert], list[Alert]]


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Alerts:
    """What fires in each case, without what is silenced."""

    def speaking(found: list[Alert]) -> list[Alert]:
        everyone = [alert.labels for alert in found]
        return [alert for alert in found if not inhibited(INHIBITION, alert.labels, everyone)]

    low, harm = fired(tmp_path_factory.mktemp("rules"), (55, LOW), (55, HARM))
    return speaking(low), speaking(harm)


Render = Callable[..., str]


@pytest.fixture
def render(release: Release, tmp_path: Path) -> Render:
    """What a release makes of a template and the data of a group of alerts."""

    def rendered(template: str, data: dict[str, Any], kind: str = "text") -> str:
        file = tmp_path / "data.json"
        file.write_text(json.dumps(data), encoding="utf-8")
        answer = release.amtool(
            *("template", "render", f"--template.glob={TEMPLATES}/*.tmpl", f"--template.text={template}"),
            *(f"--template.type={kind}", f"--template.data={file}"),
        )
        assert answer.returncode == 0, answer.stdout
        return answer.stdout.rstrip("\n")

    return rendered


def named(name: str) -> str:
    return f'{{{{ template "specdec.{name}" . }}}}'


def shown(text: str) -> str:
    return f"```text\n{text}\n```\n"


def test_the_samples_are_what_is_sent(render: Render, alerts: Alerts, pytestconfig: pytest.Config) -> None:
    sections = []
    for page in SAMPLES:
        data = group(page.alerts(*alerts), GROUP_BY)
        parts = [render(named(part), data) for part in page.parts]
        remark = f"{page.remark}\n\n" if page.remark else ""
        sections.append(f"== {page.heading}\n\n{remark}" + "\n".join(shown(part) for part in parts))
    text = "\n".join(sections)
    if pytestconfig.getoption("--update-golden"):
        MESSAGES.write_text(text, encoding="utf-8")

    assert "<no value>" not in text
    assert "unknown" not in text
    assert text == MESSAGES.read_text(encoding="utf-8")
    samples = re.findall(r"^```text\n.*?^```\n", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert samples
    assert all(sample in text for sample in samples)


class Links(html.parser.HTMLParser):
    """Text and links of a document."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def test_the_html_part_of_an_email_says_what_its_text_says(render: Render, alerts: Alerts) -> None:
    data = group([*alerts[1], *(alert.ended() for alert in alerts[0])], GROUP_BY)

    page = Links(render(named("email.html"), data, "html"))
    text = render(named("text"), data)

    decoded = {urllib.parse.unquote(link) for link in page.links}
    assert decoded == {urllib.parse.unquote(word) for word in text.split() if "://" in word}
    said = {word.rstrip(":") for word in page.words}
    assert {word.rstrip(":") for word in text.split() if "://" not in word} <= said


def test_messages_link_to_the_dashboard_where_the_address_of_grafana_is_known(render: Render, alerts: Alerts) -> None:
    alert = alerts[1][0]
    path = alert.annotations["dashboard_url"]
    known = dataclasses.replace(alert, annotations={**alert.annotations, "dashboard_url": f"https://grafana{path}"})

    assert path.startswith("/d/specdec-service?")
    for template, kind in (("text", "text"), ("slack.text", "text"), ("email.html", "html")):
        for firing, over in ((alert, known), (known, alert)):
            text = render(named(template), group([firing, over.ended()], GROUP_BY), kind)
            assert text.count("/d/specdec-service") == text.count("https://grafana/d/specdec-service") == 1, template


HOSTILE = {"model_name": 'org/a b+c&d <e> "f" \\g', "inference_service": "chat|x", "what": "mean"}


def hostile(alert: Alert) -> Alert:
    labels = {**alert.labels, **HOSTILE}
    annotations = {**alert.annotations, "description": f"On {HOSTILE['model_name']}."}
    return dataclasses.replace(alert, labels=labels, annotations=annotations)


def test_a_silence_link_names_the_alert_and_its_service_exactly(render: Render, alerts: Alerts) -> None:
    alert = hostile(alerts[1][0])

    text = render(named("text"), group([alert], GROUP_BY))
    page = Links(render(named("email.html"), group([alert], GROUP_BY), "html"))

    names = ("cluster", "inference_service", "model_name", "namespace", "alertname")
    filters = ",".join(f"{name}={json.dumps(alert.labels[name], ensure_ascii=False)}" for name in names)
    (link,) = (word for word in text.split() if "/silences/" in word)
    assert link.startswith("https://alertmanager.example.com/#/silences/new?filter=%7B")
    for found in (link, *(each for each in page.links if "/silences/" in each)):
        assert urllib.parse.unquote(found.partition("filter=")[2]) == f"{{{filters}}}"


def severities(alerts: Sequence[Alert], *wanted: str) -> list[Alert]:
    return [
        dataclasses.replace(alert, labels={**alert.labels, "severity": severity})
        for alert, severity in zip(alerts, wanted, strict=False)
    ]


def test_what_pages_comes_first(render: Render, alerts: Alerts) -> None:
    first, second = severities([alerts[1][0], alerts[0][0]], "warning", "critical")
    data = group([first, second, first], GROUP_BY)

    title = render(named("title"), data)
    text = render(named("text"), data)

    assert title == f"[FIRING:3] eu-1/prod/chat: {second.name}, {first.name}"
    assert text.startswith(f"CRITICAL {second.name}, since 12 Jan 14:03 UTC\n")


NO_PLACE = {"inference_service": "", "namespace": "", "cluster": ""}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ([{}], "eu-1/prod/chat"),
        ([{"cluster": "", "namespace": ""}], "chat"),
        ([{"inference_service": "", "namespace": ""}], "eu-1"),
        ([NO_PLACE], "the rule pack"),
        ([{}, {"inference_service": "code"}], "several services"),
        ([{**NO_PLACE, "alertname": "SpecDecodeManyServices"}], "many services"),
    ],
)
def test_the_title_says_where(changes: list[dict[str, str]], where: str, render: Render, alerts: Alerts) -> None:
    given = [{name: value for name, value in {**alerts[0][0].labels, **labels}.items() if value} for labels in changes]
    data = group([dataclasses.replace(alerts[0][0], labels=labels) for labels in given], GROUP_BY)

    assert render(named("title"), data) == f"[FIRING:{len(given)}] {where}: {given[0]['alertname']}"
