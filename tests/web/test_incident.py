"""A predictor that breaks in every way, an hour of scrapes, and what a real Prometheus makes of them.

The clocks are turned by hand; HTTP, exporter and Prometheus are real. `make soak-incident` does the same live.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from builders import Clock
from faults.incident import (
    FAULTS,
    SLOW,
    Increase,
    Judgement,
    Scrape,
    Step,
    increase_problems,
    judge,
    play,
    steps,
)
from faults.predictor import COUNTERS, World, serving
from promtool import promtool
from specdec_exporter.config import Duration, PredictorSettings, Settings
from specdec_exporter.predictor.metrics.continuity import Continuity
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.runtime import ExporterRuntime
from tsdb import ask, prometheus

SCRAPE_SECONDS = 15
WINDOW_SECONDS = 300
SOUND_SCRAPES = 3  # after each step
LABELS = ("engine", "inference_service", "model_name")


async def scraped(incident: Iterable[Step], timeout_seconds: float) -> tuple[list[Scrape], Judgement]:
    """Scrape an exporter through the steps."""
    clock = Clock()
    world = World(clock.wall)
    async with serving(world, clock.wall) as predictor:
        settings = Settings(
            predictors=(PredictorSettings(name="svc", url=predictor.url),), window=Duration(WINDOW_SECONDS)
        )
        runtime = ExporterRuntime(settings, lambda: settings)
        await runtime.start()
        (running,) = runtime.predictors
        state = running.state
        state._clock, state._wall_clock, state._born = clock.monotonic, clock.wall, clock.now
        running._continuity = Continuity(clock.monotonic, clock.wall)
        collector = SpecdecCollector(runtime)
        scrapes: list[Scrape] = []
        try:
            for step in (Step("start", []), *incident):
                clock.advance(1)
                play(predictor, step)
                sound = SOUND_SCRAPES
                while predictor.plan or sound:
                    sound -= not predictor.plan
                    clock.advance(SCRAPE_SECONDS)
                    at = clock.wall()
                    await runtime.refresh(timeout_seconds)
                    samples = (sample for family in collector.collect() for sample in family.samples)
                    scrapes.append(Scrape(at, {_key(each.name, each.labels): each.value for each in samples}))
        finally:
            await runtime.stop()
    return scrapes, judge(scrapes, predictor.answers)


def _key(name: str, labels: dict[str, str]) -> str:
    more = {label: value for label, value in labels.items() if label not in LABELS}
    return f"{name}{more or ''}"


@pytest.mark.debian
async def test_nothing_is_counted_twice_and_only_faults_leave_gaps(tmp_path: Path) -> None:
    scrapes, judgement = await scraped(steps(), 5.0)
    assert judgement.wrong == []
    assert +judgement.gaps == {}
    for fault in FAULTS:
        assert judgement.failed[fault.name] == 3, fault.name
    assert list(increase_problems(_increases(scrapes, tmp_path), scrapes)) == []


def _increases(scrapes: list[Scrape], folder: Path) -> list[Increase]:
    """What Prometheus computes of the scrapes, over several windows."""
    lines = []
    for name in COUNTERS:
        lines.append(f"# TYPE {name.removesuffix('_total')} counter")
        lines += [f"{name} {scrape.values[name]} {scrape.at}" for scrape in scrapes if name in scrape.values]
    text, data = folder / "samples.txt", folder / "data"
    text.write_text("\n".join([*lines, "# EOF\n"]))
    promtool().create_blocks(text, data)
    begin, end = (f"{scrape.at:.3f}" for scrape in (scrapes[0], scrapes[-1]))
    found: list[Increase] = []
    with prometheus(data) as url:
        for name in COUNTERS:
            for seconds in (40, 300, 1800):
                expression = f"increase({name}[{seconds}s])"
                series = ask(url, "query_range", query=expression, start=begin, end=end, step=f"{SCRAPE_SECONDS}")
                for each in series["result"]:
                    found += (Increase(name, float(at), seconds, float(value)) for at, value in each["values"])
    assert len(found) > len(scrapes) * len(COUNTERS)
    return found


async def test_slow_answers_are_failed_fetches() -> None:
    _, judgement = await scraped([Step(fault.name, [fault]) for fault in SLOW], 0.3)
    assert judgement.wrong == []
    assert [judgement.failed[fault.name] for fault in SLOW] == [1, 1]
