"""The Helm chart as tests see it: rendered with values, and installed values by path."""

from __future__ import annotations

import functools
import json
import subprocess
from typing import Any

from deploy.manifests import DEPLOY
from support import yamltext
from support.fieldtools import tool
from support.processes import ran

CHART = DEPLOY / "helm" / "specdec-exporter"
KUBERNETES_VERSION = "1.35.4"
NAMESPACE = "monitoring"
Object = dict[str, Any]


def helm(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm to its end."""
    return ran(tool("helm"), *arguments, told=stdin)


@functools.cache
def _rendered(values: str, namespace: str) -> str:
    where = ("--namespace", namespace, "--kube-version", KUBERNETES_VERSION, "--values", "-")
    answer = helm("template", "pack", str(CHART), *where, stdin=values)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def text_of(values: Any, namespace: str = NAMESPACE) -> str:
    """What Helm makes of the chart with values beside the defaults, as text."""
    return _rendered(json.dumps(values), namespace)


def rendered(values: Any) -> list[Object]:
    """The same, as objects."""
    return [one for one in yamltext.load_all(text_of(values)) if one]


def refused(values: Any) -> str:
    """What Helm says to values that the chart does not take."""
    answer = helm(
        *("template", "pack", str(CHART), "--kube-version", KUBERNETES_VERSION, "--values", "-"),
        stdin=json.dumps(values),
    )
    assert answer.returncode != 0
    return answer.stderr


def named(objects: list[Object], kind: str, name: str = "") -> Object:
    """The one object of a kind, whose name begins so after the release's if there are several."""
    prefix = "pack-specdec-exporter" + (f"-{name}" if name else "")
    (found,) = (one for one in objects if one["kind"] == kind and one["metadata"]["name"].startswith(prefix))
    return found


def nested(values: dict[str, Any]) -> Object:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    whole: Object = {}
    for path, value in values.items():
        *above, last = path.split(".")
        place = whole
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return whole
