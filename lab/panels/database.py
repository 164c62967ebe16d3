"""A Prometheus that holds the scrapes of the cast and what the pack makes of them: records, alerts that fired.

Prometheus' own ruler works in real time, so the past is filled in (tests/support/backfill.py).
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backfill import record, recording_layers, seconds
from bench.alert_replay import RULES, episodes
from panels.traces import END, HISTORY_HOURS, HOUR, START, Replica, Samples, collect
from support import yamltext
from support.promtool import Promtool, promtool
from support.tsdb import ask_for, prometheus

# Some seconds after the last evaluation: dashboards are opened at any time.
NOW = END + 45
RULES_FROM = START + 1800  # the first whole window


class Database:
    """The API of one Prometheus: each method returns the ``result`` that Grafana gets."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._ask = functools.partial(ask_for, headers or {}, url)

    def instant(self, expression: str, at: float) -> list[dict[str, Any]]:
        """Series with a ``value`` each."""
        data = self._ask("query", query=expression, time=f"{at:.3f}")
        if data["resultType"] == "scalar":
            return [{"metric": {}, "value": data["result"]}]
        found: list[dict[str, Any]] = data["result"]
        return found

    def range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Series with ``values``."""
        found: list[dict[str, Any]] = self._ask(
            "query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step:g}"
        )["result"]
        return found

    def series(self, selector: str, start: float, end: float) -> list[dict[str, str]]:
        """The labels of the series that a selector finds."""
        found: list[dict[str, str]] = self._ask(
            "series", **{"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        )
        return found


@contextlib.contextmanager
def database(data: Path, *, release: str = "") -> Iterator[Database]:
    """Serve the blocks that :func:`fill` made; ``release`` as in backfill.py."""
    with prometheus(data, f"prometheus{release}") as url:
        yield Database(url)


def fill(folder: Path, replicas: Sequence[Replica], *, release: str = "") -> Path:
    """Make blocks of the cast's samples and the pack's; ``folder`` is an empty one. It takes most of a minute."""
    data = folder / "data"
    filling = promtool(f"promtool{release}")
    _write(filling, folder, data, collect(replicas))
    past = _of_the_past()
    for groups in recording_layers(RULES):
        for of_the_past, start in ((True, START - HISTORY_HOURS * HOUR), (False, RULES_FROM)):
            layer = [
                group | {"rules": [rule for rule in group["rules"] if (rule["record"] in past) == of_the_past]}
                for group in groups
            ]
            if layer := [group for group in layer if group["rules"]]:
                record(layer, data, (start, END), release=release)
    with database(data, release=release) as base:
        fired = _alerts(base)
    _write(filling, folder, data, fired)
    return data


def _of_the_past() -> set[str]:
    """The records of each hour, and what they are made of: history begins before all else."""
    groups = yamltext.load(RULES.read_text(encoding="utf-8"))["groups"]
    hourly = [rule for group in groups if seconds(group["interval"]) >= HOUR for rule in group["rules"]]
    layers = recording_layers(RULES, [rule["expr"] for rule in hourly])
    read = {rule["record"] for layer in layers for group in layer for rule in group["rules"]}
    return read | {rule["record"] for rule in hourly}


def _write(filling: Promtool, folder: Path, data: Path, samples: Samples) -> None:
    """Put samples into blocks."""
    file = folder / "samples.om"
    with file.open("w") as output:
        for (name, labels), values in samples.items():
            series = name + "{" + ",".join(f"{label}={json.dumps(text)}" for label, text in labels) + "}"
            output.writelines(f"{series} {value:.17g} {at}\n" for at, value in values)
        output.write("# EOF\n")
    filling.create_blocks(file, data)


def _alerts(base: Database) -> Samples:
    """``ALERTS`` of what fired, minute by minute, and ``ALERTS_FOR_STATE``: since when its condition held."""
    samples: Samples = {}
    for group in yamltext.load(RULES.read_text(encoding="utf-8"))["groups"]:
        step = seconds(group["interval"])
        for rule in (rule for rule in group["rules"] if "alert" in rule):
            for series in base.range(rule["expr"], RULES_FROM, END, step):
                labels = series["metric"] | rule["labels"] | {"alertname": rule["alert"], "alertstate": "firing"}
                labels = {name: text for name, text in labels.items() if name != "__name__"}
                waiting = {name: text for name, text in labels.items() if name != "alertstate"}
                held = [float(at) for at, _ in series["values"]]
                keep, hold = seconds(rule.get("keep_firing_for", "0s")), seconds(rule.get("for", "0s"))
                for since, until in episodes(held, interval=step, hold=hold, keep=keep, end=END):
                    times = range(int(since), int(until) + 1, 60)
                    samples.setdefault(("ALERTS", tuple(sorted(labels.items()))), []).extend((at, 1.0) for at in times)
                    began = samples.setdefault(("ALERTS_FOR_STATE", tuple(sorted(waiting.items()))), [])
                    began.extend((at, since - hold) for at in times)
    return samples
