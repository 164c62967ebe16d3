"""Alerts of the pack as Alertmanager gets them: labels and annotations that promtool makes of the rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rules.scenario import Case, Pack, groups_with
from support.promtool import promtool

BEGAN = datetime(2026, 1, 12, 14, 3, tzinfo=UTC)
LASTED = timedelta(minutes=42)


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


def pack(directory: Path) -> Pack:
    return Pack(promtool(), groups_with("{}"), directory)


def fired(directory: Path, *asked: tuple[int, Case]) -> list[list[Alert]]:
    """Return what the pack fires at a minute of each case."""
    return [[Alert(one.labels, one.annotations) for one in alerts] for alerts in pack(directory).fired(*asked)]


def group(alerts: Iterable[Alert]) -> dict[str, Any]:
    """Return what templates are given about alerts of one group: Alertmanager's template.Data as JSON."""
    alerts = list(alerts)

    def common(mappings: list[Mapping[str, str]]) -> dict[str, str]:
        shared = set.intersection(*(set(mapping.items()) for mapping in mappings))
        return dict(sorted(shared))

    return {
        "receiver": "specdec-chat",
        "status": "resolved" if all(alert.resolved for alert in alerts) else "firing",
        "alerts": [alert.data() for alert in alerts],
        "groupLabels": {},
        "commonLabels": common([alert.labels for alert in alerts]),
        "commonAnnotations": common([alert.annotations for alert in alerts]),
        "externalURL": "https://alertmanager.example.com",
    }
