"""The rule pack over samples of the past, by Prometheus itself: which alert fired for which service, and when.

Prometheus' own ruler works in real time, so its parts are used. promtool fills in the recording rules layer by layer,
at the times at which the ruler evaluates each group, and range queries say when an alert's expression held. Only `for`
and `keep_firing_for` are applied here (:func:`episodes`), as Prometheus does it; tests/rules/test_alert_quality.py
holds that against promtool's unit tests.

One difference remains: where a recorded series ends, the ruler marks the end and here nothing does, so its last value
stands for Prometheus' look-back of five minutes.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.processes import run
from bench.rows import BenchError
from fieldtools import BIN, ROOT, tool
from tsdb import prometheus

RULES = ROOT / "rules" / "rendered" / "specdec.rules.yaml"
BLOCK_SPAN = "--max-block-duration=162h"  # else promtool reads its input anew for every two hours
QUERY_SECONDS = 300

# What anybody would write first. Each has the pack's own patience (`for`), so that only the idea is compared.
NAIVE_ACCEPTANCE = "acceptance < 0.5 over 5m"
NAIVE_P99 = "P99 / baseline P99 > 1.25"
_LEVEL = "cluster, namespace, inference_service, model_name"
_NAIVE = {
    "name": "naive",
    "interval": "1m",
    "rules": [
        {
            "alert": NAIVE_ACCEPTANCE,
            "expr": f"sum by ({_LEVEL}) (rate(specdec_accepted_tokens_total[5m]))"
            f" / sum by ({_LEVEL}) (rate(specdec_draft_tokens_total[5m])) < 0.5",
            "for": "5m",
            "labels": {"severity": "critical"},
        },
        {
            "alert": NAIVE_P99,
            "expr": 'inference_service:specdec_latency_seconds:quantile30m{quantile="0.99"}'
            f" / on ({_LEVEL}, sli) inference_service:specdec_latency_seconds:p99_baseline > 1.25",
            "for": "15m",
            "labels": {"severity": "critical"},
        },
    ],
}


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
    sli: str
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
    sli: str


def seconds(text: str) -> int:
    """Prometheus' durations of one unit, ``90s`` to ``7d``."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]


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
    """Every alerting rule of the pack, and the naive ones."""
    groups = [*yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"], _NAIVE]
    return [
        AlertRule(
            name=rule["alert"],
            severity=rule["labels"]["severity"],
            expression=rule["expr"],
            interval=seconds(group["interval"]),
            hold=seconds(rule.get("for", "0s")),
            keep=seconds(rule.get("keep_firing_for", "0s")),
            sli=rule["labels"].get("sli", ""),
        )
        for group in groups
        for rule in group["rules"]
        if "alert" in rule
    ]


def recording_layers(rules: Path = RULES, expressions: Iterable[str] | None = None) -> list[list[dict[str, Any]]]:
    """The recording rules as groups, split so that a layer reads raw series and the layers before it only.

    ``expressions``: without the rules that these do not need.
    """
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    reads: dict[str, set[str]] = collections.defaultdict(set)
    for rule in (rule for group in groups for rule in group["rules"] if "record" in rule):
        reads[rule["record"]] |= _records(rule["expr"]) - {rule["record"]}

    @cache
    def depth(record: str) -> int:
        return max((1 + depth(other) for other in reads[record]), default=0)

    wanted, found = set(reads) if expressions is None else set[str]().union(*map(_records, expressions)), set[str]()
    while wanted:
        found |= wanted
        wanted = set[str]().union(*(reads[record] for record in wanted)) - found

    def layer(number: int) -> list[dict[str, Any]]:
        kept = [
            group | {"rules": [r for r in group["rules"] if r.get("record") in found and depth(r["record"]) == number]}
            for group in groups
        ]
        return [group for group in kept if group["rules"]]

    return [layer(number) for number in range(1 + max(map(depth, found), default=-1))]


def _records(expression: str) -> set[str]:
    """Names of the pack's records in an expression."""
    return set(re.findall(r"\binference_service:\w+:\w+", expression))


def replay(
    samples: Iterable[Samples],
    directory: Path,
    span: tuple[int, int],
    *,
    alerts: Sequence[str] = (),
    rules: Path = RULES,
) -> Mapping[str, list[Episode]]:
    """Return what fired within ``span`` (from and until, seconds since the epoch), by inference service.

    ``alerts``: only these, by name. ``directory``: an empty one, for samples and blocks.
    Raises :class:`BenchError` with the tools' words.
    """
    start, end = span
    server, promtool = _program("prometheus"), _program("promtool")
    data = directory / "data"
    text = directory / "samples.om"
    with text.open("w") as file:
        file.writelines(each.lines() for each in samples)
        file.write("# EOF\n")
    run(tool(promtool), "tsdb", "create-blocks-from", BLOCK_SPAN, "openmetrics", "--quiet", text, data)
    text.unlink()
    layer = directory / "layer.yaml"  # one name: a group's times of evaluation depend on it
    judged = [rule for rule in alert_rules(rules) if not alerts or rule.name in alerts]
    for groups in recording_layers(rules, [rule.expression for rule in judged]):
        layer.write_text(yaml.safe_dump({"groups": groups}))
        with prometheus(data, server) as url:
            where = (f"--start={start}", f"--end={end}", f"--output-dir={data}", f"--url={url}")
            run(tool(promtool), "tsdb", "create-blocks-from", BLOCK_SPAN, "rules", *where, layer)
    fired: dict[str, list[Episode]] = collections.defaultdict(list)
    with prometheus(data, server) as url:
        for rule in judged:
            for labels, held in _query_range(url, rule.expression, start, end, rule.interval):
                fired[labels.get("inference_service", "")] += [
                    Episode(rule.name, rule.severity, rule.sli or labels.get("sli", ""), since, until)
                    for since, until in episodes(held, interval=rule.interval, hold=rule.hold, keep=rule.keep, end=end)
                ]
    return fired


def _program(name: str) -> str:
    """The current release where it was built, else Debian's."""
    if (BIN / f"{name}3").exists():
        return f"{name}3"
    if shutil.which(name) is None:
        raise BenchError(f"{name} is missing: tests/debian.sh {name}")
    return name


def _query_range(
    url: str, expression: str, start: int, end: int, step: int
) -> Iterator[tuple[Mapping[str, str], list[float]]]:
    """Labels of each series of the result, and when it was there."""
    parameters = {"query": expression, "start": f"{start}", "end": f"{end}", "step": f"{step}"}
    body = urllib.parse.urlencode(parameters).encode()
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query_range", body, timeout=QUERY_SECONDS) as response:
            found = json.load(response)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise BenchError(f"{expression}: {error.read().decode()}") from error
    for series in found:
        yield series["metric"], [float(at) for at, _ in series["values"]]
