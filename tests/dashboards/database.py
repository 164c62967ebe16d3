"""A Prometheus that holds the scrapes of the cast and what the pack makes of them: records, alerts that fired.

Prometheus' own ruler works in real time, so the past is filled in (tests/backfill.py).
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yamltext
from backfill import RULES_FILE, record, recording_layers, seconds
from bench.alert_replay import RULES, episodes
from dashboards.traces import END, HISTORY_HOURS, HOUR, START, Replica, Samples, collect
from promtool import Promtool, promtool
from tsdb import ask_for, prometheus

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
    _write(filling, folder, data, {**collect(replicas), **_of_the_ruler()})
    begin = {True: START - HISTORY_HOURS * HOUR, False: RULES_FROM}
    for groups in recording_layers(RULES):
        for past, start in begin.items():
            if layer := [group for group in groups if _of_the_past(group) == past]:
                record(layer, data, (start, END), release=release)
    with database(data, release=release) as base:
        fired = _alerts(base)
    _write(filling, folder, data, fired)
    return data


def _of_the_past(group: dict[str, Any]) -> bool:
    """Whether a group of records makes history, is what history is sorted by, or is what it counts."""
    return seconds(group["interval"]) >= HOUR or group["name"] in ("specdec-epoch", "specdec-speculation")


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


def _of_the_ruler() -> Samples:
    """What a Prometheus says about the pack's groups: all of them evaluated in time, none missed."""
    samples: Samples = {}
    times = range(START, END + 1, 60)
    for group in yamltext.load(RULES.read_text(encoding="utf-8"))["groups"]:
        interval = seconds(group["interval"])
        size = len(group["rules"])
        labels = (
            ("instance", "prometheus:9090"),
            ("job", "prometheus"),
            ("rule_group", f"/etc/prometheus/{RULES_FILE};{group['name']}"),
        )
        evaluations = [(at, (at - START) // interval) for at in times]
        families: Mapping[str, list[float]] = {
            "prometheus_rule_group_last_duration_seconds": [0.002 * size + 0.001 * (at // 60 % 3) for at in times],
            "prometheus_rule_group_interval_seconds": [interval for _ in times],
            "prometheus_rule_group_last_evaluation_timestamp_seconds": [at - at % interval for at in times],
            "prometheus_rule_group_iterations_total": [count for _, count in evaluations],
            "prometheus_rule_group_iterations_missed_total": [0.0 for _ in times],
            "prometheus_rule_group_rules": [size for _ in times],
            "prometheus_rule_evaluations_total": [count * size for _, count in evaluations],
            "prometheus_rule_evaluation_failures_total": [0.0 for _ in times],
        }
        for name, values in families.items():
            samples[name, labels] = [(at, float(value)) for at, value in zip(times, values, strict=True)]
    return samples
