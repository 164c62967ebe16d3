"""The rule pack over samples of the past, by Prometheus itself: which alert fired for which service, and when.

Prometheus' own ruler works in real time, so its parts are used: the recording rules are filled in
(tests/support/backfill.py), and range queries say when an alert's expression held. Only `for` and `keep_firing_for` are
applied here (:func:`episodes`), as Prometheus does it; lab/bench/test_alert_quality.py holds that against promtool's
unit tests.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from backfill import record, recording_layers, seconds
from bench.rows import BenchError
from support import yamltext
from support.fieldtools import BIN, ROOT
from support.promtool import promtool
from support.tsdb import ask, prometheus

RULES = ROOT / "rules" / "rendered" / "specdec.rules.yaml"

HOUR = 3600


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """One series, ``name{labels}``, with its samples; times are seconds since the epoch, ascending."""

    series: str
    at: Sequence[int]
    values: Sequence[float]

    def lines(self) -> str:
        """OpenMetrics text."""
        pairs = zip(self.values, self.at, strict=True)
        return "".join([f"{self.series} {value:.10g} {at}\n" for value, at in pairs])


@dataclasses.dataclass(frozen=True, slots=True)
class Episode:
    """An alert that fired. Times are seconds since the epoch; one that goes on ends with the replay."""

    alert: str
    severity: str
    since: float
    until: float


@dataclasses.dataclass(frozen=True, slots=True)
class AlertRule:
    """An alerting rule as rendered; times are seconds."""

    name: str
    severity: str
    expression: str
    interval: int
    hold: int
    keep: int


def episodes(
    held: Iterable[float], *, interval: float, hold: float, keep: float, end: float
) -> list[tuple[float, float]]:
    """When an alert fires whose expression holds at the times ``held``, multiples of ``interval`` apart.

    It fires once it has held for ``hold`` seconds, and on until it has not held for ``keep`` seconds.
    """
    kept = math.ceil(keep / interval) * interval
    fired: list[tuple[float, float]] = []
    active = last = -math.inf  # when it began to hold, and when it held last
    since: float | None = None  # when it began to fire
    for at in held:
        missed = last + interval
        if since is not None and at - interval - missed >= keep:
            fired.append((since, missed + kept))
            since = None
        if since is None and at > missed:
            active = at
        if since is None and at - active >= hold:
            since = at
        last = at
    if since is not None:
        fired.append((since, min(last + interval + kept, end)))
    return fired


def alert_rules(rules: Path = RULES) -> list[AlertRule]:
    """Every alerting rule of the pack."""
    return [
        AlertRule(
            name=rule["alert"],
            severity=rule["labels"]["severity"],
            expression=rule["expr"],
            interval=seconds(group["interval"]),
            hold=seconds(rule.get("for", "0s")),
            keep=seconds(rule.get("keep_firing_for", "0s")),
        )
        for group in yamltext.load(rules.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]


def replay(
    samples: Iterable[Samples],
    directory: Path,
    span: tuple[int, int],
    *,
    past: int = 0,
    alerts: Sequence[str] = (),
    rules: Path = RULES,
) -> Mapping[str, list[Episode]]:
    """Return what fired within ``span`` (from and until, seconds since the epoch), by inference service.

    ``past``: seconds before ``span`` of which the pack records the hours, for its history. ``alerts``: only these, by
    name. ``directory``: an empty one, for samples and blocks. A rule that reads its own record finds nothing there.
    Raises :class:`BenchError` or :class:`PromtoolError` with the tools' words.
    """
    release = _release()
    data = directory / "data"
    text = directory / "samples.om"
    with text.open("w") as file:
        file.writelines(each.lines() for each in samples)
        file.write("# EOF\n")
    promtool(f"promtool{release}").create_blocks(text, data)
    text.unlink()
    judged = [rule for rule in alert_rules(rules) if not alerts or rule.name in alerts]
    start, end = span
    for groups in recording_layers(rules, [rule.expression for rule in judged]):
        for hourly, since in ((True, start - past), (False, start)):
            if some := [group for group in groups if (seconds(group["interval"]) == HOUR) == hourly]:
                record(some, data, (since, end), release=release)
    fired: dict[str, list[Episode]] = collections.defaultdict(list)
    with prometheus(data, f"prometheus{release}") as url:
        for rule in judged:
            for service, episode in _fired(url, rule, span):
                fired[service].append(episode)
    return fired


def _fired(url: str, rule: AlertRule, span: tuple[int, int]) -> Iterator[tuple[str, Episode]]:
    """When an alert fired, and for which inference service."""
    start, end = span
    times = {"start": f"{start}", "end": f"{end}", "step": f"{rule.interval}"}
    for series in ask(url, "query_range", query=rule.expression, **times)["result"]:
        held = [float(at) for at, _ in series["values"]]
        for since, until in episodes(held, interval=rule.interval, hold=rule.hold, keep=rule.keep, end=end):
            yield series["metric"].get("inference_service", ""), Episode(rule.name, rule.severity, since, until)


def _release() -> str:
    """How the names of Prometheus' programs end: the current release where it was built, else Debian's."""
    if (BIN / "prometheus3").exists():
        return "3"
    if shutil.which("prometheus") is None:
        raise BenchError("prometheus is missing: tests/debian.sh prometheus")
    return ""
