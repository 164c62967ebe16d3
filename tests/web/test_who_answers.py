"""Whoever answers: predictors of every kind, whose truth is known, and what a real Prometheus counts of them.

The clocks are turned by hand; HTTP, exporter and Prometheus are real.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest

from faults.judge import Increase, Scrape, increase_problems, problems
from faults.kinds import KINDS, Kind
from faults.processes import series
from faults.wire import NO_ANSWER, SOUND, serving
from specdec_exporter.config import PredictorSettings, WebSettings
from specdec_exporter.serving.collector import SpecdecCollector
from support.builders import Clock, started
from support.promtool import promtool
from support.tsdb import ask, prometheus

BEGIN = 1_790_001_000.0
ASKED = ("specdec_generation_tokens_total", "specdec_accepted_tokens_total", "specdec_step_latency_seconds_count")
SPANS = (120, 600, 7200)  # the last is more than any kind's
SCRAPED: dict[str, list[Scrape]] = {}


async def scraped(kind: Kind) -> list[Scrape]:
    """Scrape an exporter in front of such a predictor, once in this run."""
    if kind.name not in SCRAPED:
        SCRAPED[kind.name] = await _scraped(kind)
    return SCRAPED[kind.name]


async def _scraped(kind: Kind) -> list[Scrape]:
    clock, found = Clock(1000.0, BEGIN - 1000.0), []
    quiet = WebSettings(disable_exporter_metrics=True)
    async with serving() as server, started(PredictorSettings(name="svc", url=server.url), web=quiet) as runtime:
        (running,) = runtime.predictors
        state = running.state
        state.clock, state.wall_clock, state.born = clock.monotonic, clock.wall, clock.now
        collector = SpecdecCollector(runtime)
        for number, letter in enumerate(kind.order):
            clock.ahead += kind.set_clock.get(number, 0.0)
            at = clock.now - 1000.0
            process, shown = kind.who.get(letter), at - kind.age(number)
            server.fault = kind.faults.get(number, SOUND) if process else NO_ANSWER
            server.body = process.body(shown, BEGIN + shown) if process else b""
            await runtime.refresh(kind.timeout_seconds)
            samples = (sample for family in collector.collect() for sample in family.samples)
            values = {series(each.name, each.labels): each.value for each in samples}
            figures = process.figures(shown) if process else {}
            found.append(Scrape(at, letter, server.fault, figures, values))
            clock.advance(kind.interval)
    return found


@pytest.mark.parametrize("name", KINDS)
async def test_counts_are_true_whoever_answers(name: str) -> None:
    assert list(problems(KINDS[name], await scraped(KINDS[name]))) == []


@pytest.mark.debian
async def test_a_real_prometheus_counts_what_happened(tmp_path: Path) -> None:
    lines: list[str] = []
    for kind in KINDS.values():
        labelled = f'{{kind="{kind.name}",'
        for scrape in await scraped(kind):
            asked = ((name, value) for name, value in scrape.samples.items() if name.startswith(ASKED))
            lines += [f"{name.replace('{', labelled)} {value} {BEGIN + scrape.at}" for name, value in asked]
    text, data = tmp_path / "samples.txt", tmp_path / "data"
    text.write_text("\n".join([*sorted(lines, key=lambda line: line.partition("{")[0]), "# EOF\n"]))
    promtool().create_blocks(text, data)
    found: dict[str, list[Increase]] = defaultdict(list)
    times = {"start": f"{BEGIN}", "end": f"{BEGIN + 1800}", "step": "60"}
    with prometheus(data) as url:
        for name, seconds, function in product(ASKED, SPANS, ("increase", "rate")):
            for each in ask(url, "query_range", query=f"{function}({name}[{seconds}s])", **times)["result"]:
                kind_name, key = each["metric"].pop("kind"), series(name, each["metric"])
                for at, value in each["values"]:
                    increase = float(value) * (seconds if function == "rate" else 1)
                    found[kind_name].append((key, float(at) - BEGIN, seconds, increase))
    assert found.keys() == KINDS.keys()
    wrong = {name: list(increase_problems(KINDS[name], SCRAPED[name], increases)) for name, increases in found.items()}
    assert {name: problems for name, problems in wrong.items() if problems} == {}
