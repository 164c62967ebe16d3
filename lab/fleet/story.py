"""What happens to some services: their past, which every engine is given, and their pages as it goes on.

The rules are loaded as they are, so their windows are minutes: everything before :attr:`Story.now` is written to the
engine at once, with the records that a Prometheus would have made of it, and everything after is scraped.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backfill import record, recording_layers
from fleet.remotewrite import Labels, Sample
from rules.scenario import STEADY, Phase, Series, pinned, service, slower, with_tail
from support.fieldtools import ROOT
from support.promtool import promtool
from support.tsdb import ask, prometheus

RULES = ROOT / "rules" / "rendered" / "specdec.rules.yaml"
CLUSTER = "eu-1"
PAST_MINUTES = 120
RECORDED_MINUTES = 50  # more than any alert of the story looks back
TROUBLE_MINUTES = 45  # what collapses and regresses did so before engines begin: pages wait for full windows
LIVE_MINUTES = 60
SLIS = ("tpot", "e2e")
# Labels that come from the target, as a PodMonitor gives them.
TARGET = ("cluster", "namespace", "inference_service", "pod", "instance", "job")
# A counter that is written to the past only, and grows once: by 60 between two of its samples.
PROBE = "fleet_probe_total"
PROBE_STEP = 60.0

_WELL = Phase(minutes=PAST_MINUTES + LIVE_MINUTES)
_BEFORE = Phase(minutes=PAST_MINUTES - TROUBLE_MINUTES)
_AFTER = TROUBLE_MINUTES + LIVE_MINUTES
STEADY_ONE, COLLAPSED, SLOWER, DOWN, NEW = "steady", "collapsed", "slower", "down", "new"
PHASES: Mapping[str, Sequence[Phase]] = {
    STEADY_ONE: [_WELL],
    COLLAPSED: [_BEFORE, Phase(minutes=_AFTER, curve=(0.06, 0.01, 0.0))],
    SLOWER: [_BEFORE, Phase(minutes=_AFTER, latency={**STEADY, "tpot": with_tail(STEADY["tpot"], 0.09, 0.3)})],
    DOWN: [_WELL],
    NEW: [_WELL],
}
# Who is woken, and by what.
PAGES = {
    COLLAPSED: "SpecDecodeAcceptanceLow",
    SLOWER: "SpecDecodeP99Regression",
    DOWN: "SpecDecodeTargetDown",
}
NAMESPACES = {STEADY_ONE: "prod", COLLAPSED: "prod", SLOWER: "dev", DOWN: "dev", NEW: "dev"}


def place(name: str) -> dict[str, str]:
    """Labels of a service's target."""
    number = list(PHASES).index(name)
    return {
        "cluster": CLUSTER,
        "namespace": NAMESPACES[name],
        "inference_service": name,
        "pod": f"{name}-0",
        "instance": f"10.0.{number}.1:10409",
        "job": "predictors",
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Past:
    """All samples until the story begins, raw and recorded: the samples of each series in order."""

    series: Sequence[tuple[Labels, Sequence[Sample]]]
    blocks: Path  # the same, as Prometheus keeps it

    def lines(self, *, milliseconds: bool = False) -> Iterator[str]:
        """Text exposition with times."""
        for labels, samples in self.series:
            text = _text(labels["__name__"], {name: labels[name] for name in labels if name != "__name__"})
            for at, value in samples:
                yield f"{text} {value!r} {round(at * 1000) if milliseconds else at}\n"

    def slices(self, namespace: str, *, seconds: int) -> Iterator[list[tuple[Labels, Sequence[Sample]]]]:
        """The samples of a namespace, some time after the other."""
        own = [(labels, samples) for labels, samples in self.series if labels.get("namespace") == namespace]
        times = {int(at) // seconds for _, samples in own for at, _ in samples}
        for piece in sorted(times):
            within = [(labels, [one for one in samples if int(one[0]) // seconds == piece]) for labels, samples in own]
            yield [(labels, samples) for labels, samples in within if samples]


class Story:
    """Services from :data:`PAST_MINUTES` before ``now`` (Unix time, a whole minute) on."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.began = now - 60 * PAST_MINUTES
        self.down: set[str] = set()  # whose predictor does not answer
        self._series = {name: list(_series(name, phases)) for name, phases in PHASES.items()}

    def page(self, service: str) -> bytes:
        """What the exporter of a service says now."""
        minute = (time.time() - self.began) / 60
        wanted = self._series[service]
        if service in self.down:
            return b"specdec_up 0\n"
        # `up` is the scraper's.
        return "".join(line for one in wanted if one.name != "up" and (line := _sample(one, minute))).encode()

    def targets(self, address: str, services: Sequence[str] = tuple(PHASES)) -> list[dict[str, Any]]:
        """Static configurations of Prometheus; see :func:`bench.fleet.exposing`."""
        # The job's name is the scraper's.
        return [
            {
                "targets": [address],
                "labels": {**{k: v for k, v in place(name).items() if k != "job"}, "__param_service": name},
            }
            for name in services
        ]

    def past(self, folder: Path) -> Path:
        """Write blocks with all that was scraped and recorded so far, except of the service that is new."""
        data = folder / "made"
        text = folder / "past.om"
        text.write_text("".join(self._raw()) + "# EOF\n")
        promtool().create_blocks(text, data)
        for groups in recording_layers(RULES):
            record(groups, data, (self.now - 60 * RECORDED_MINUTES, self.now - 60))
        return data

    def read_past(self, folder: Path) -> Past:
        """The past that :meth:`past` has written, in one block."""
        with prometheus(self.past(folder)) as url:
            found = ask(url, "query", query=f'{{__name__=~".+"}}[{PAST_MINUTES + 1}m]', time=str(self.now))["result"]
        series = [(each["metric"], [(at, float(value)) for at, value in each["values"]]) for each in found]
        made = Past(series, folder / "blocks")
        text = folder / "all.om"
        text.write_text("".join(made.lines()) + "# EOF\n")
        promtool().create_blocks(text, made.blocks)
        return made

    def _raw(self) -> Iterator[str]:
        probe = [
            (PROBE, {"cluster": CLUSTER, "namespace": "dev"}, [1000.0] * (PAST_MINUTES - 3) + [1000.0 + PROBE_STEP] * 3)
        ]
        pages = [
            (one.name, one.labels, one.values) for name in self._series if name != NEW for one in self._series[name]
        ]
        for name, labels, values in itertools.chain(probe, pages):
            for minute, value in enumerate(values[:PAST_MINUTES]):
                if value is not None:
                    yield f"{_text(name, labels)} {value!r} {self.began + 60 * minute}\n"


def _series(name: str, phases: Sequence[Phase]) -> Iterator[Series]:
    labels = place(name)
    yield from service(*phases, families=SLIS, labels=labels)
    if name == SLOWER:  # where speculation was seen to pay, nobody is woken for low acceptance
        baselines = {sli: slower(STEADY[sli], 1.3) for sli in SLIS}
        yield from pinned(PAST_MINUTES + LIVE_MINUTES, baselines, load=1.0, labels=labels)


def _sample(one: Series, minute: float) -> str:
    before = int(minute)
    low, high = one.values[before], one.values[before + 1]
    if low is None or high is None:
        return ""
    own = {name: value for name, value in one.labels.items() if name not in TARGET}
    return f"{_text(one.name, own)} {low + (high - low) * (minute - before)!r}\n"


def _text(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels.items())}}}"
