"""The rule pack over samples of the past, by Prometheus itself: which alert fired for which service, and when.

Prometheus' own ruler works in real time, so its parts are used: the recording rules are filled in (tests/backfill.py),
and range queries say when an alert's expression held. Only `for` and `keep_firing_for` are applied here
(:func:`episodes`), as Prometheus does it; tests/rules/test_alert_quality.py holds that against promtool's unit tests.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from backfill import Groups, record, recording_layers, seconds
from bench.rows import BenchError
from fieldtools import BIN, ROOT, tool
from promtool import Promtool
from tsdb import ask, prometheus

RULES = ROOT / "rules" / "rendered" / "specdec.rules.yaml"

HOUR = 3600

# What anybody would write first. The first two have the pack's own patience (`for`), so that only the idea is compared.
NAIVE_ACCEPTANCE = "acceptance < 0.5 over 5m"
NAIVE_P99 = "P99 / baseline P99 > 1.25"
NAIVE_DOWN = "up == 0 for 1m"
NAIVE_DAY = "P99 > 1.3x P99 a day ago"
NAIVE = (NAIVE_ACCEPTANCE, NAIVE_P99, NAIVE_DOWN, NAIVE_DAY)
_LEVEL = "cluster, namespace, inference_service, model_name"


def _either(exporter: str, vllm: str, window: str) -> str:
    """The rate of a counter of the exporter, or of vLLM itself."""
    return f'rate({{__name__=~"{exporter}|{vllm}"}}[{window}])'


_ACCEPTED = _either("specdec_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total", "5m")
_DRAFTED = _either("specdec_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total", "5m")
_BUCKETS = _either(
    "specdec_time_per_output_token_seconds_bucket", "vllm:request_time_per_output_token_seconds_bucket", "30m"
)
_P99 = f"histogram_quantile(0.99, sum by ({_LEVEL}, le) ({_BUCKETS}))"
_NAIVE = {
    "name": "naive",
    "interval": "1m",
    "rules": [
        {
            "alert": NAIVE_ACCEPTANCE,
            "expr": f"sum by ({_LEVEL}) ({_ACCEPTED}) / sum by ({_LEVEL}) ({_DRAFTED}) < 0.5",
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
        {
            "alert": NAIVE_DOWN,
            "expr": 'group by (cluster, namespace, inference_service) ({__name__=~"up|specdec_up"} == 0)',
            "for": "1m",
            "labels": {"severity": "critical"},
        },
        {
            "alert": NAIVE_DAY,
            "expr": f"{_P99} > 1.3 * {_P99.replace('[30m]', '[30m] offset 1d')}",
            "for": "10m",
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


def replay(
    samples: Iterable[Samples],
    directory: Path,
    span: tuple[int, int],
    *,
    past: int = 0,
    alerts: Sequence[str] = (),
    rules: Path = RULES,
    memory: bool = False,
    rounds: int = 1,
) -> Mapping[str, list[Episode]]:
    """Return what fired within ``span`` (from and until, seconds since the epoch), by inference service.

    ``past``: seconds before ``span`` of which the pack records the hours, for its history. ``alerts``: only these, by
    name. ``directory``: an empty one, for samples and blocks. ``memory``: a rule sees what it recorded itself; without
    it, which takes less time, it does not. ``rounds``: rules see the alerts of the round before; in the first, none.
    Raises :class:`BenchError` or :class:`PromtoolError` with the tools' words.
    """
    release = _release()
    data = directory / "data"
    _create_blocks(samples, data, release)
    judged = [rule for rule in alert_rules(rules) if not alerts or rule.name in alerts]
    layers = recording_layers(rules, [rule.expression for rule in judged])
    raw = _blocks(data)
    for last in range(rounds - 1, -1, -1):
        _record(layers, data, span, past=past, memory=memory, release=release)
        fired: dict[str, list[Episode]] = collections.defaultdict(list)
        firing = list[Samples]()
        with prometheus(data, f"prometheus{release}") as url:
            for rule in judged:
                for labels, episode in _fired(url, rule, span):
                    fired[labels.get("inference_service", "")].append(episode)
                    at = range(math.ceil(episode.since), math.ceil(episode.until), rule.interval)
                    firing.append(Samples(_alerts_series(labels, episode), at, [1.0] * len(at)))
        if last:
            for block in _blocks(data) - raw:
                shutil.rmtree(block)
            _create_blocks(firing, data, release)
    return fired


def _blocks(data: Path) -> set[Path]:
    """A Prometheus that ran on the data leaves other files as well, but no samples in them."""
    return {meta.parent for meta in data.glob("*/meta.json")}


def _create_blocks(samples: Iterable[Samples], data: Path, release: str) -> None:
    text = data.with_name("samples.om")
    with text.open("w") as file:
        file.writelines(each.lines() for each in samples)
        file.write("# EOF\n")
    Promtool(Path(tool(f"promtool{release}"))).create_blocks(text, data)
    text.unlink()


def _record(
    layers: Sequence[Groups], data: Path, span: tuple[int, int], *, past: int, memory: bool, release: str
) -> None:
    start, end = span
    for groups in layers:
        if hourly := [group for group in groups if seconds(group["interval"]) == HOUR]:
            record(hourly, data, (start - past, end), release=release)
        others = [group for group in groups if group not in hourly]
        if own := _with_rules(others, lambda rule: memory and rule["record"] in rule["expr"]):
            _remembering(own, data, span, release)
        if some := _with_rules(others, lambda rule: not memory or rule["record"] not in rule["expr"]):
            record(some, data, span, release=release)


def _fired(url: str, rule: AlertRule, span: tuple[int, int]) -> Iterator[tuple[dict[str, str], Episode]]:
    """When an alert fired, with the labels of its expression."""
    start, end = span
    times = {"start": f"{start}", "end": f"{end}", "step": f"{rule.interval}"}
    for series in ask(url, "query_range", query=rule.expression, **times)["result"]:
        labels, held = series["metric"], [float(at) for at, _ in series["values"]]
        for since, until in episodes(held, interval=rule.interval, hold=rule.hold, keep=rule.keep, end=end):
            yield labels, Episode(rule.name, rule.severity, rule.sli or labels.get("sli", ""), since, until)


def _alerts_series(labels: Mapping[str, str], episode: Episode) -> str:
    """The series that Prometheus writes while an alert fires."""
    own = {"alertname": episode.alert, "alertstate": "firing", "severity": episode.severity, "sli": episode.sli}
    told = {name: value for name, value in {**labels, **own}.items() if value and name != "__name__"}
    return "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in told.items()) + "}"


def _with_rules(groups: Groups, wanted: Callable[[dict[str, str]], bool]) -> Groups:
    some = [group | {"rules": [rule for rule in group["rules"] if wanted(rule)]} for group in groups]
    return [group for group in some if group["rules"]]


def _remembering(groups: Groups, data: Path, span: tuple[int, int], release: str) -> None:
    """Record rules that read their own record: again and again, each time with what the time before gave.

    The pack's rules look back on themselves for two hours, so each time reaches two hours further.
    """
    before: set[Path] = set()
    for _ in range(1 + (span[1] - span[0]) // (2 * HOUR)):
        there = _blocks(data)
        record(groups, data, span, release=release)
        for block in before:
            shutil.rmtree(block)
        before = _blocks(data) - there


def _release() -> str:
    """How the names of Prometheus' programs end: the current release where it was built, else Debian's."""
    if (BIN / "prometheus3").exists():
        return "3"
    if shutil.which("prometheus") is None:
        raise BenchError("prometheus is missing: tests/debian.sh prometheus")
    return ""
