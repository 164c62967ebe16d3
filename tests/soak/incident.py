"""The incident of tests/faults, live: the real exporter, scraped every second by a real Prometheus with the rule pack.

    make soak-incident

Writes its table into docs/reliability.md. Exits with 1 if a figure is wrong that could be right.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo import pack
from faults.incident import (
    SLOW,
    Increase,
    Judgement,
    Scrape,
    Step,
    beyond_detection,
    increase_problems,
    judge,
    play,
    quotients,
    steps,
)
from faults.predictor import COUNTERS, Answer, FaultyPredictor, World, serving
from fieldtools import tool
from running import exporter
from soak.report import record
from specdec_exporter import bounds
from tsdb import ask, free_port
from tsdb import serving as serving_program

SPEED = 10.0  # simulated seconds in a second
SCRAPE_SECONDS = 1
WINDOW_SECONDS = 10
SOUND_SCRAPES = 4  # after each step
RECORDED_SECONDS = 10
USUAL_LABELS = frozenset({"__name__", "engine", "inference_service", "model_name", "instance", "job", "namespace"})
RECORDED = "inference_service:specdec_acceptance:ratio_rate10s"  # the pack's shortest window in the demo's settings
CONFIG = """
global: {{scrape_interval: {seconds}s, scrape_timeout: {seconds}s, evaluation_interval: {seconds}s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: specdec-exporter
    static_configs: [{{targets: ['{target}'], labels: {{namespace: demo}}}}]
"""


async def main() -> int:
    """Run, judge, write the table."""
    incident = [Step(fault.name, [fault] * 3) for fault in SLOW] + steps()
    undetectable = beyond_detection(bounds.DOUBT_SECONDS + 2)
    with tempfile.TemporaryDirectory() as folder:
        world = World(time.time, SPEED)
        async with (
            serving(world, time.time) as predictor,
            exporter(f"--predictor.url={predictor.url}", f"--window={WINDOW_SECONDS}s") as running,
        ):
            with prometheus(Path(folder), running.url.removeprefix("http://"), await pack.text("rules")) as url:
                await _play(predictor, [Step("start", []), *incident, *undetectable])
                seen = await asyncio.to_thread(_read, url, predictor.answers)
                log = running.log
    judgement = judge(seen.scrapes, predictor.answers, WINDOW_SECONDS)
    limits = {step.name for step in undetectable}
    bad = [f"{step}: {words}" for step, words in judgement.wrong if step not in limits]
    detectable_until = next(answer.at for answer in predictor.answers if answer.step in limits)
    bad += increase_problems(seen.increases, seen.scrapes)
    bad += [f"shown although the predictor was down: {each}" for each in seen.stale]
    bad += _recorded_problems(seen.recorded, judgement, detectable_until)
    print(
        "\n".join([*(line for line in log if "does not continue" in line), *bad[:100]]),
        f"{len(seen.recorded)} recorded ratios, {len(seen.increases)} increases",
        sep="\n",
    )
    return _report(judgement, bad)


def prometheus(folder: Path, target: str, rules: str) -> Any:
    """Scrape the exporter at ``target``; yields the base URL."""
    (folder / "rules.yml").write_text(rules)
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(seconds=SCRAPE_SECONDS, rules=folder / "rules.yml", target=target))
    address = f"127.0.0.1:{free_port()}"
    command = [
        tool("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    return serving_program(command, f"http://{address}", "/-/ready", folder / "prometheus.log")


async def _play(predictor: FaultyPredictor, incident: Sequence[Step]) -> None:
    """Go on to the next step when Prometheus has scraped through the one before."""
    for step in incident:
        print(f"{time.strftime('%H:%M:%S')} {step.name}", flush=True)
        play(predictor, step)
        while predictor.plan:
            await asyncio.sleep(0.05)
        seen = len(predictor.answers)
        while len(predictor.answers) < seen + SOUND_SCRAPES:
            await asyncio.sleep(0.05)


class Seen(NamedTuple):
    """What Prometheus has. ``stale``: counters that it shows although the predictor is down."""

    scrapes: list[Scrape]
    increases: list[Increase]
    stale: list[Any]
    recorded: list[tuple[float, float]]  # the pack's acceptance: time, ratio


def _read(url: str, answers: Sequence[Answer]) -> Seen:
    begin, end = answers[0].at - SCRAPE_SECONDS, answers[-1].at
    at: dict[float, dict[str, float]] = collections.defaultdict(dict)
    for matcher in ('{__name__=~"specdec_.+"}', "up"):
        query = f"{matcher}[{end - begin + 1:.0f}s]"
        for each in ask(url, "query", query=query, time=f"{end:.3f}")["result"]:
            labels = {label: value for label, value in each["metric"].items() if label not in USUAL_LABELS}
            for when, value in each["values"]:
                at[float(when)][f"{each['metric']['__name__']}{labels or ''}"] = float(value)

    def over_time(expression: str) -> list[tuple[float, float]]:
        times = {"start": f"{begin:.3f}", "end": f"{end:.3f}", "step": "1"}
        result = ask(url, "query_range", query=expression, **times)["result"]
        return [(float(when), float(value)) for each in result for when, value in each["values"]]

    return Seen(
        scrapes=[Scrape(when, values) for when, values in sorted(at.items())],
        increases=[
            Increase(name, when, seconds, value)
            for name in COUNTERS
            for seconds in (5, 30, 300)
            for when, value in over_time(f"increase({name}[{seconds}s])")
        ],
        stale=over_time("specdec_drafts_total and on () (specdec_up == 0)"),
        recorded=over_time(RECORDED),
    )


def _recorded_problems(recorded: Sequence[tuple[float, float]], judgement: Judgement, until: float) -> Iterator[str]:
    """The pack's acceptance of 10 s lies within what the scrapes of these seconds allow; 2 % for extrapolation."""
    v0 = [scrape.at for scrape, answer in judgement.good if answer.v0]
    for at, value in recorded:
        begin = at - RECORDED_SECONDS - 2 * SCRAPE_SECONDS
        low, high = quotients(judgement.good, begin, at, "specdec_accepted_tokens_total", "specdec_draft_tokens_total")
        if at < until and not any(begin <= when <= at for when in v0) and not 0.98 * low <= value <= 1.02 * high:
            yield f"{RECORDED} at {at} is {value}, expected {low} to {high}"


def _report(judgement: Judgement, bad: Sequence[str]) -> int:
    wrong = collections.Counter(step for step, _ in judgement.wrong)
    rows = [
        (step, *(f"{count:,}" for count in (n, judgement.failed[step], judgement.gaps[step], wrong[step])))
        for step, n in judgement.scrapes.items()
    ]
    print(*rows, sep="\n")
    if not bad:
        header = ("fault", "scrapes", "failed fetches", "gaps beyond the fault", "wrong figures")
        record("incident", "make soak-incident", header, rows)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
