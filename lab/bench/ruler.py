"""A real Prometheus that evaluates the pack for a fleet, and what each evaluation took."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from bench.fleet import SCRAPE_SECONDS, targets
from bench.rows import BenchError
from support import tsdb
from support.fieldtools import BIN
from support.processes import wait_until
from support.promqllabels import walk
from support.promtool import Promtool
from support.rulelint import Pack, Rule, load

CONFIG = "data.yml"  # of the Prometheus whose data are in "data"
DAY_SECONDS = 86400
PATIENCE_SECONDS = 600.0
# Blocks end before the head begins, which keeps up to three hours.
HEAD_SECONDS = 3 * 3600


@dataclass(frozen=True, slots=True)
class Process:
    """Prometheus' own figures of itself."""

    at_seconds: float
    cpu_seconds: float
    evaluation_seconds: float


class Ruler:
    """A Prometheus that scrapes a fleet and, from ``start_rules`` on, evaluates every group of a rule file."""

    def __init__(self, url: str, folder: Path, fleet: list[dict[str, Any]], pack: Pack) -> None:
        self.url = url
        self._folder = folder
        self._fleet = fleet
        self._pack = pack
        self._intervals = {rule.group: rule.interval_seconds for rule in pack.rules}

    def value(self, expression: str) -> float:
        """The one value of an expression; 0 where there is none."""
        return next(iter(tsdb.query(self.url, expression, time.time()).values()), 0.0)

    def scrape(self, rules: Path | None = None) -> None:
        """From now on scrape at the usual pace, and evaluate the rules of a file, if any."""
        files = [str(rules)] if rules else []
        (self._folder / CONFIG).write_text(_config(self._fleet, SCRAPE_SECONDS, files))
        with urllib.request.urlopen(f"{self.url}/-/reload", b"", timeout=60):
            pass

    def start_rules(self, rules: Path, every_seconds: int) -> None:
        """Evaluate every group so often, whatever its own interval is."""
        document = yaml.safe_load(rules.read_text())
        for group in document["groups"]:
            group["interval"] = f"{every_seconds}s"
        hastened = self._folder / "rules.yaml"
        hastened.write_text(yaml.safe_dump(document))
        self.scrape(hastened)

    def process(self) -> Process:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as response:
            found = dict(re.findall(r"^(\w+) (\S+)$", response.read().decode(), re.MULTILINE))
        return Process(
            time.monotonic(),
            float(found["process_cpu_seconds_total"]),
            float(found["prometheus_rule_evaluation_duration_seconds_sum"]),
        )

    def seconds_per_minute(self, rounds: int) -> float:
        """Wait until every group was evaluated so many times; what they take a minute, each at its own interval."""
        seen: dict[str, dict[str, float]] = defaultdict(dict)
        before = {group["name"]: group["lastEvaluation"] for group in self._groups()}

        def done() -> bool:
            for group in self._groups():
                if (at := group["lastEvaluation"]) != before[group["name"]]:
                    seen[group["name"]][at] = sum(rule["evaluationTime"] for rule in group["rules"])
            return all(len(seen[name]) >= rounds for name in before)

        wait_until(done, seconds=PATIENCE_SECONDS, what="evaluation of all rules", every=1.0)
        return sum(60 * statistics.fmean(taken.values()) / self._intervals[name] for name, taken in seen.items())

    def write_history(self) -> None:
        """Give the records that are read over days a past: as they are now, at the pace of their group."""
        spans = history_spans(self._pack)
        text = self._folder / "history.om"
        end = int(time.time()) - HEAD_SECONDS
        with text.open("w") as file:
            for record, (span, step) in spans.items():
                for series, value in tsdb.query(self.url, record, time.time()).items():
                    labels = ",".join(f'{name}="{label}"' for name, label in series if name != "__name__")
                    head = f"{record}{{{labels}}} {value!r} "
                    file.writelines(f"{head}{at}\n" for at in range(end - span, end, step))
            file.write("# EOF\n")
        blocks = self._folder / "blocks"
        Promtool(Path(_program("promtool3"))).create_blocks(text, blocks)
        for block in blocks.iterdir():
            shutil.move(block, self._folder / "data")
        wait_until(
            lambda: all(
                self.value(f"count(last_over_time({record}[{span}s] offset {HEAD_SECONDS}s))")
                for record, (span, _) in spans.items()
            ),
            seconds=PATIENCE_SECONDS,
            what="history",
            every=0.5,
        )

    def _groups(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/api/v1/rules?exclude_alerts=true", timeout=60) as response:
            groups: list[dict[str, Any]] = json.load(response)["data"]["groups"]
        for group in groups:
            for rule in group["rules"]:
                if rule["health"] == "err":
                    raise BenchError(f"{group['name']}/{rule['name']}: {rule['lastError']}")
        return groups


@contextmanager
def ruler(folder: Path, rules: Path, address: str, services: int) -> Iterator[Ruler]:
    """Start a Prometheus that scrapes a fleet, its past first; the rules are only read."""
    fleet = targets(address, services)
    # The past of a service has 36 times the samples of a scrape.
    _program("prometheus3")
    options = ("--web.enable-lifecycle", "--log.level=warn")
    with tsdb.prometheus(folder / "data", "prometheus3", _config(fleet, max(10, services // 50), []), *options) as url:
        found = Ruler(url, folder, fleet, load(rules, {}))
        wait_until(
            lambda: found.value("count(specdec_up)") == services,
            seconds=PATIENCE_SECONDS,
            what="scrape of the whole fleet",
            every=0.5,
        )
        found.scrape()
        yield found


def history_spans(pack: Pack) -> dict[str, tuple[int, int]]:
    """The records that are read over a day or more: for how long, offset included, and how often they are recorded."""
    intervals = {name: int(rules[0].interval_seconds) for name, rules in pack.records().items()}
    spans: dict[str, int] = {}
    for selector, seconds in _ranges(pack.rules):
        name = selector.name or ""
        if name in intervals and seconds >= DAY_SECONDS:
            spans[name] = max(spans.get(name, 0), seconds)
    return {name: (span, intervals[name]) for name, span in spans.items()}


def _ranges(rules: Sequence[Rule]) -> Iterator[tuple[promql.VectorSelector, int]]:
    for rule in rules:
        for expr in walk(rule.expr):
            if isinstance(expr, promql.MatrixSelector):
                yield expr.vector_selector, int(expr.range.total_seconds())


def _config(fleet: list[dict[str, Any]], scrape_seconds: int, rule_files: list[str]) -> str:
    # JSON is YAML, and is written a hundred times as fast.
    return json.dumps(
        {
            "global": {"scrape_interval": f"{scrape_seconds}s", "scrape_timeout": f"{scrape_seconds}s"},
            "rule_files": rule_files,
            "scrape_configs": [{"job_name": "predictors", "static_configs": fleet}],
        }
    )


def _program(name: str) -> str:
    if (BIN / name).exists():
        return str(BIN / name)
    raise BenchError(f"{name} is missing: make tools")
