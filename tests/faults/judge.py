"""What was counted of a kind of predictor, beside the truth."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise

from faults.kinds import Kind
from faults.processes import Figures
from faults.wire import Fault

Increase = tuple[str, float, float, float]  # series, seconds after the first scrape, of the span, value
RATIOS = {"specdec_acceptance_ratio": 0.6, "specdec_mean_acceptance_length": 2.8}  # of every process


@dataclasses.dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape, ``at`` seconds after the first. ``figures``: what ``process`` truly answered."""

    at: float
    process: str
    fault: Fault
    figures: Figures
    samples: Mapping[str, float]

    @property
    def up(self) -> bool:
        return self.samples.get("specdec_up{}") == 1


@dataclasses.dataclass(slots=True)
class Truth:
    """One series over all scrapes. ``least`` and ``most`` are growth since the first scrape as far as it was seen.

    Growth between two answers of a process was seen. What a process counted before its first answer was not, but if it
    began after the first scrape, it may count. ``room``: how much more may be counted.
    """

    least: list[float] = dataclasses.field(default_factory=list)
    most: list[float] = dataclasses.field(default_factory=list)
    room: float = 0.0


def truths(kind: Kind, scrapes: Sequence[Scrape]) -> dict[str, Truth]:
    """What happened, by series."""
    names = {name for scrape in scrapes for name in scrape.figures}
    found = {name: Truth() for name in names}
    highest: dict[tuple[str, str], float] = {}
    least, most = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for scrape in scrapes:
        for name, value in scrape.figures.items() if scrape.fault.up else ():
            known = highest.get((scrape.process, name))
            seen = 0.0 if known is None else max(value - known, 0.0)
            least[name] += seen
            most[name] += value if known is None and kind.who[scrape.process].began >= 0 else seen
            highest[scrape.process, name] = max(value, known or 0.0)
        for name, truth in found.items():
            truth.least.append(least[name])
            truth.most.append(most[name])
    for before, now in islice(pairwise(scrapes), 0, None, 3):  # the pace is steady
        growth: dict[str, float] = defaultdict(float)
        for process in map(kind.who.get, set(kind.order)):
            if process and process.began < now.at:
                earlier = process.figures(before.at) if process.began < before.at else {}
                for name, value in process.figures(now.at).items():
                    growth[name] += value - min(earlier.get(name, 0.0), value)
        for name in names:
            found[name].room = max(found[name].room, kind.over * (growth[name] + 1))  # 1: counts are whole
    return found


def counted(scrapes: Sequence[Scrape], name: str) -> list[float]:
    """Growth since the first scrape, as Prometheus counts it: a fall is a restart."""
    total, before, found = 0.0, None, []
    for scrape in scrapes:
        value = scrape.samples.get(name)
        if value is not None:
            if before is not None:
                total += value - before if value >= before else value
            before = value
        found.append(total)
    return found


def problems(kind: Kind, scrapes: Sequence[Scrape]) -> Iterator[str]:
    """Say what is wrong."""
    for number, scrape in enumerate(scrapes):
        yield from (f"{number}: {problem}" for problem in _problems_of(kind, scrape))
    for name, truth in truths(kind, scrapes).items():
        values = counted(scrapes, name)
        lowest, worst = math.inf, 0.0
        for value, most in zip(values, truth.most, strict=True):
            lowest = min(lowest, value - most)
            worst = max(worst, value - most - lowest)
        if worst > truth.room:
            yield f"{name} increased by {worst:g} more than in truth, expected at most {truth.room:g}"
        if values[-1] < kind.least_of(name) * truth.least[-1] - 1e-6:
            yield f"{name} increased by {values[-1]:g}, in truth by {truth.least[-1]:g}"
    told = [scrape.samples.get("specdec_predictor_processes{}", math.nan) for scrape in scrapes if scrape.up]
    if told[-1] != kind.processes or max(told) > max(kind.most, kind.processes):
        yield f"{told[-1]:g} processes, at most {max(told):g}; expected {kind.processes}"


def _problems_of(kind: Kind, scrape: Scrape) -> Iterator[str]:
    if odd := [name for name, value in scrape.samples.items() if not math.isfinite(value)]:
        yield f"not finite: {odd}"
    if scrape.up != scrape.fault.up:
        yield f"{scrape.fault.name}: up is {scrape.up}"
    shown = {name: scrape.samples[name] for name in scrape.figures if name in scrape.samples}
    if not scrape.up and shown:
        yield f"not up, and shows {shown}"
    if kind.exact and scrape.up and shown != scrape.figures:
        wrong = {name: (shown.get(name), value) for name, value in scrape.figures.items() if shown.get(name) != value}
        yield f"shown and true: {wrong}"
    for name, value in scrape.samples.items() if not kind.loses else ():
        expected = RATIOS.get(name.partition("{")[0], value)
        if abs(value - expected) > 0.03:
            yield f"{name} is {value:g}, expected {expected}"


def increase_problems(kind: Kind, scrapes: Sequence[Scrape], increases: Iterable[Increase]) -> Iterator[str]:
    """Compare with the truth what Prometheus says, which extrapolates by at most 1.1 intervals at each end."""
    found = truths(kind, scrapes)
    for name, at, seconds, value in increases:
        inside = [
            number for number, each in enumerate(scrapes) if at - seconds <= each.at <= at and name in each.samples
        ]
        first, last, truth = inside[0], inside[-1], found[name]
        covered = scrapes[last].at - scrapes[first].at
        stretched = min(seconds, covered * (1 + 2.2 / (len(inside) - 1))) / covered
        happened = truth.most[last] - truth.most[first]
        if value > (happened + truth.room) * stretched:
            yield f"increase({name}[{seconds:g}s]) at {at} is {value:g}, in truth {happened:g}"
        if first == 0 and last == len(scrapes) - 1 and value < kind.least_of(name) * truth.least[-1]:
            yield f"increase({name}[{seconds:g}s]) at {at} is {value:g}, in truth {truth.least[-1]:g}"
