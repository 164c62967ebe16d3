"""Every alert of the pack with the labels that it really has, told from its expression; and the rendered files."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rules.scenario import groups_with
from support import rulelint, yamltext
from support.fieldtools import ROOT
from support.promqllabels import NONE, Labels, labels

RENDERED = ROOT / "alertmanager" / "rendered"
FRAGMENT = RENDERED / "specdec.fragment.yaml"
EXAMPLE = RENDERED / "alertmanager.yaml"
OBJECT = RENDERED / "specdec.alertmanagerconfig.yaml"
TEMPLATES = ROOT / "alertmanager" / "templates"

VALUES = {
    "cluster": "eu-1",
    "namespace": "prod",
    "inference_service": "chat",
    "model_name": "llama",
    "llm_isvc_role": "prefill",
    "pod": "chat-0",
    "instance": "10.0.0.1:10409",
    "engine": "0",
}
REASONS = ("baselines_differ", "several_processes")  # of an alert whose reason is that of a series


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One alerting rule: what its alerts can be labelled with, and an example of one."""

    name: str
    can_have: Labels
    example: Mapping[str, str]

    @property
    def severity(self) -> str:
        return self.example["severity"]

    def __str__(self) -> str:
        told = (self.name.removeprefix("SpecDecode"), self.severity, self.example.get("reason"))
        return " ".join(filter(None, told))


@cache
def rules(source: str = "exporter") -> tuple[Rule, ...]:
    """The alerting rules of the pack, in its order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        path.write_text(json.dumps({"groups": groups_with(f"{{ source: '{source}' }}")}))
        pack = rulelint.load(path, {})
    records = rulelint.recorded_labels(pack)

    def known() -> Iterator[Rule]:
        for rule in pack.rules:
            if not rule.is_alert:
                continue
            own = (labels(rule.expr, records.get) or NONE).add(rule.labels)
            usual = {name: value for name, value in VALUES.items() if name in own}
            told = "reason" in rule.labels or "reason" not in own
            for reason in [{}] if told else [{"reason": reason} for reason in REASONS]:
                yield Rule(rule.name, own, {"alertname": rule.name, **usual, **rule.labels, **reason})

    return tuple(known())


def document(name: str) -> Any:
    """A rendered file of Alertmanager, by its name; the caller's own to change."""
    return yamltext.load((RENDERED / name).read_text(encoding="utf-8"))
