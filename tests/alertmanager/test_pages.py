"""What people are sent: rendered by amtool from alerts that the rules really make, and kept in messages.txt."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from alertmanager.catalogue import FRAGMENT, TEMPLATES, document
from alertmanager.conftest import Release
from alertmanager.fired import Alert, fired, group
from alertmanager.inhibition import inhibited
from alertmanager.storm import ONSET, storm
from rules.scenario import STEADY, Case, Phase, Shares, measured, pinned, service, slower, with_tail
from support.fieldtools import ROOT

MESSAGES = Path(__file__).parent / "messages.txt"
README = ROOT / "alertmanager" / "README.md"
INHIBITION = document(FRAGMENT.name)["inhibit_rules"]

SLIS = ("tpot", "ttft", "e2e")
# No share of 1 %: where P99 is the edge of a bucket, releases of Prometheus round to either side.
USUAL: Mapping[str, Shares] = {sli: with_tail(shares, 3 * shares[-1][0], 0.02) for sli, shares in STEADY.items()}
SLOW = Phase(minutes=60, latency={**USUAL, "tpot": slower(USUAL["tpot"], 1.5)}, kv_cache=0.95)
POOR = dataclasses.replace(SLOW, curve=(0.5, 0.2, 0.1))
LOW = Case(name="almost nothing is accepted", series=service(Phase(minutes=60, curve=(0.09, 0.03, 0.0))))
CASES = {
    "low": (55, LOW),
    "slow": (55, Case(name="long tokens", series=service(SLOW, families=SLIS) + pinned(60, USUAL))),
    "harm": (
        55,
        Case(
            name="harm",
            series=service(POOR, families=SLIS) + pinned(60, USUAL) + measured(60, 0.67, (0.64, 0.7)),
        ),
    ),
}
STORM = (ONSET + 8, Case(name="storm", series=storm("SpecDecodeTargetDown")))
Alerts = Mapping[str, list[Alert]]


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """One sample: its heading, the templates that make it, and the alerts of its group."""

    heading: str
    parts: tuple[str, ...]
    alerts: Callable[[Alerts], list[Alert]]
    remark: str = ""


def pages(alerts: list[Alert]) -> list[Alert]:
    return [alert for alert in alerts if alert.labels["severity"] == "critical"]


def ended(alerts: list[Alert]) -> list[Alert]:
    return [alert.ended() for alert in alerts]


INCIDENT = "These are the incident's title and its detail `firing`. The incident also links to the runbook."
SAMPLES = (
    Page("Slack: acceptance is low", ("title", "slack.text"), lambda of: pages(of["low"])),
    Page("Slack: it is over", ("title", "slack.text"), lambda of: ended(pages(of["low"]))),
    Page("PagerDuty: a service is slower", ("title", "text.firing"), lambda of: pages(of["slow"]), INCIDENT),
    Page("PagerDuty: 50 services are down", ("title", "text.firing"), lambda of: of["storm"]),
    Page("Slack: they are up again", ("title", "slack.text"), lambda of: ended(of["storm"])),
    Page(
        "E-mail and webhooks: several alerts of one service, one of them over",
        ("title", "text"),
        lambda of: [*of["harm"], *ended(pages(of["low"]))],
        "These are the subject and the text. The HTML part says the same, with links.",
    ),
)


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Alerts:
    """What fires in each case, without what is silenced."""

    def speaking(found: list[Alert]) -> list[Alert]:
        everyone = [alert.labels for alert in found]
        return [alert for alert in found if not inhibited(INHIBITION, alert.labels, everyone)]

    found = fired(tmp_path_factory.mktemp("rules"), *CASES.values())
    (storm,) = fired(tmp_path_factory.mktemp("storm"), STORM)  # alone: it has a hundred healthy services
    return {name: speaking(each) for name, each in zip([*CASES, "storm"], [*found, storm], strict=True)}


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
        data = group(page.alerts(alerts))
        parts = [render(named(part), data) for part in page.parts]
        remark = f"{page.remark}\n\n" if page.remark else ""
        sections.append(f"== {page.heading}\n\n{remark}" + "\n".join(shown(part) for part in parts))
    text = "\n".join(sections)
    if pytestconfig.getoption("--update-golden"):
        MESSAGES.write_text(text, encoding="utf-8")

    assert "<no value>" not in text
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


@pytest.mark.parametrize("firing", ["harm", "storm"])
def test_the_html_part_of_an_email_says_what_its_text_says(firing: str, render: Render, alerts: Alerts) -> None:
    data = group([*alerts[firing], *ended(alerts["low"])])

    page = Links(render(named("email.html"), data, "html"))
    text = render(named("text"), data)

    decoded = {urllib.parse.unquote(link) for link in page.links}
    assert decoded == {urllib.parse.unquote(word) for word in text.split() if "://" in word}
    assert {word.rstrip(":") for word in text.split() if "://" not in word} <= {word.rstrip(":") for word in page.words}


def test_messages_link_to_the_dashboard_where_the_address_of_grafana_is_known(render: Render, alerts: Alerts) -> None:
    alert = alerts["slow"][0]
    path = alert.annotations["dashboard_url"]
    known = dataclasses.replace(alert, annotations={**alert.annotations, "dashboard_url": f"https://grafana{path}"})

    assert path.startswith("/d/specdec-service?")
    for template, kind in (("text", "text"), ("slack.text", "text"), ("email.html", "html")):
        for firing, over in ((alert, known), (known, alert)):
            text = render(named(template), group([firing, over.ended()]), kind)
            assert text.count("/d/specdec-service") == text.count("https://grafana/d/specdec-service") == 1, template


HOSTILE = {"model_name": 'org/a b+c&d <e> "f" \\g', "inference_service": "chat|x.(y"}


def test_a_silence_link_names_the_alert_and_its_service_exactly(render: Render, alerts: Alerts) -> None:
    alert = alerts["slow"][0]
    alert = dataclasses.replace(alert, labels={**alert.labels, **HOSTILE})

    text = render(named("text"), group([alert]))
    page = Links(render(named("email.html"), group([alert]), "html"))

    names = ("alertname", "cluster", "inference_service", "model_name", "namespace", "component")
    filters = ",".join(f"{name}={json.dumps(alert.labels[name], ensure_ascii=False)}" for name in names)
    (link,) = (word for word in text.split() if "/silences/" in word)
    assert link.startswith("https://alertmanager.example.com/#/silences/new?filter=%7B")
    for found in (link, *(each for each in page.links if "/silences/" in each)):
        assert urllib.parse.unquote(found.partition("filter=")[2]) == f"{{{filters}}}"


def test_what_pages_comes_first(render: Render, alerts: Alerts) -> None:
    page = pages(alerts["low"])[0]
    ticket = dataclasses.replace(alerts["slow"][0], labels={**alerts["slow"][0].labels, "severity": "warning"})
    data = group([ticket, page, ticket])

    assert render(named("title"), data) == f"[FIRING:3] {page.annotations['summary']}"
    assert render(named("names"), data) == f"{page.name}, {ticket.name}"
    assert render(named("text"), data).startswith(f"CRITICAL {page.name}, since 12 Jan 14:03 UTC\n")


@pytest.mark.parametrize(
    ("services", "where"),
    [
        ([{}, {}], "eu-1/prod/chat"),
        ([{"cluster": "", "namespace": ""}], "chat"),
        ([{}, {"inference_service": "code"}], "2 services of eu-1"),
        ([{}, {"namespace": "dev"}, {"cluster": "us-1", **HOSTILE}, HOSTILE], "3 services"),
    ],
)
def test_it_says_where(services: list[dict[str, str]], where: str, render: Render, alerts: Alerts) -> None:
    one = alerts["low"][0]
    each = [{name: value for name, value in {**one.labels, **labels}.items() if value} for labels in services]

    assert render(named("where"), group([dataclasses.replace(one, labels=labels) for labels in each])) == where
