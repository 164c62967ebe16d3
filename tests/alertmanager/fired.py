"""Alerts of the pack as Alertmanager gets them: labels and annotations that promtool makes of the rendered rules."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from promtool import Promtool, PromtoolError
from rules.scenario import Case, run

BEGAN = datetime(2026, 1, 12, 14, 3, tzinfo=UTC)
LASTED = timedelta(minutes=42)

_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


@dataclasses.dataclass(frozen=True, slots=True)
class Alert:
    """One alert, firing since 14:03 or, when ``resolved``, until 14:45."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    resolved: bool = False

    @property
    def name(self) -> str:
        return self.labels["alertname"]

    def ended(self) -> Alert:
        return dataclasses.replace(self, resolved=True)

    def data(self) -> dict[str, Any]:
        return {
            "status": "resolved" if self.resolved else "firing",
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "startsAt": BEGAN.isoformat(),
            "endsAt": (BEGAN + LASTED).isoformat() if self.resolved else "0001-01-01T00:00:00Z",
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Asking(Case):
    """A case that expects no alert at the minute, so that promtool tells which there are."""

    minute: int
    names: tuple[str, ...]

    def text(self) -> dict[str, object]:
        tests = [{"eval_time": f"{self.minute}m", "alertname": name, "exp_alerts": []} for name in self.names]
        # Not super(): a dataclass with slots is another class than the one that its methods were written in.
        return Case.text(self) | {"alert_rule_test": tests}


def fired(promtool: Promtool, rules: Path, directory: Path, case: Case, minute: int) -> list[Alert]:
    """Return what fires at the minute of the case, sorted by labels."""
    names = tuple(sorted(set(re.findall(r"alert: (\w+)", rules.read_text(encoding="utf-8")))))
    asking = _Asking(name=case.name, series=case.series, minute=minute, names=names)
    try:
        run(promtool, rules, directory, asking)
    except PromtoolError as told:
        got = re.findall(r"Labels:\{(.*?)\}\s*Annotations:\{(.*)\}", str(told))
        alerts = [Alert(_pairs(labels), _pairs(annotations)) for labels, annotations in got]
        return sorted(alerts, key=lambda alert: sorted(alert.labels.items()))
    return []


def _pairs(text: str) -> dict[str, str]:
    return {name: json.loads(quoted) for name, quoted in _PAIR.findall(text)}


def group(alerts: Iterable[Alert], group_by: Iterable[str], receiver: str = "specdec-chat") -> dict[str, Any]:
    """Return what templates are given about alerts of one group: Alertmanager's template.Data as JSON."""
    alerts = list(alerts)

    def common(mappings: list[Mapping[str, str]]) -> dict[str, str]:
        shared = set.intersection(*(set(mapping.items()) for mapping in mappings))
        return dict(sorted(shared))

    labels = common([alert.labels for alert in alerts])
    return {
        "receiver": receiver,
        "status": "resolved" if all(alert.resolved for alert in alerts) else "firing",
        "alerts": [alert.data() for alert in alerts],
        "groupLabels": {name: labels[name] for name in group_by if name in labels},
        "commonLabels": labels,
        "commonAnnotations": common([alert.annotations for alert in alerts]),
        "externalURL": "https://alertmanager.example.com",
    }
