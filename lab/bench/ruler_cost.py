"""What the rule pack costs a real Prometheus: evaluation time, recorded series and memory, by number of services.

    make bench-ruler ARGS="[--quick] [SERVICES...]"

Exits with 1 when a budget is missed, with 2 when a figure would mean nothing. The rows: docs/evidence/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from bench.fleet import SCRAPE_SECONDS, Page, real_page, serving
from bench.rows import BenchError, Row, figure, missed, show
from bench.ruler import ruler
from support.fieldtools import ROOT

RULES = ROOT / "rules" / "rendered" / "specdec.rules.yaml"
SIZES = (100, 1000)  # more are more shards (docs/scale.md)
BUDGET_SERVICES = 1000
SECONDS_PER_MINUTE = 0.7
SERIES_PER_SERVICE = 50
# Of the cost of a service, from one size to the next. Linear is 1; caches of the processor and Go's collector are not.
GROWTH = 1.5


def main() -> int:
    """Measure, print, and tell whether every budget holds."""
    parser = argparse.ArgumentParser(description="What the rule pack costs a real Prometheus.")
    parser.add_argument("services", nargs="*", type=int, help=f"numbers of services; default {SIZES}")
    parser.add_argument("--quick", action="store_true", help="two rounds")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Prometheus and its data do not outlive this

    sections: dict[str, list[Row]] = {}
    costs: dict[int, float] = {}
    try:
        page = real_page()
        for size in sorted(arguments.services or SIZES):
            print(f"{size:,} services ...", file=sys.stderr)
            smaller = max(costs, default=None)
            rows, costs[size] = _measure(page, size, rounds=2 if arguments.quick else 3)
            if smaller:
                growth = costs[size] / size / (costs[smaller] / smaller)
                rows.append(figure(f"cost of a service / at {smaller:,} services", [growth], "x", at_most=GROWTH))
            sections[f"{size:,} services, {size * page.series:,} series"] = rows
    except (BenchError, AssertionError, TimeoutError) as error:
        print(error if str(error) else "the exporter did not get on", file=sys.stderr)
        return 2
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    show(sections)
    return missed(chain.from_iterable(sections.values()))


def _measure(page: Page, services: int, rounds: int) -> tuple[list[Row], float]:
    """Rows of one size, and its seconds of evaluation per minute."""
    # Every group at once would queue for the processors: the more services, the more time between two rounds.
    every_seconds = max(10, services * 3 // 100)
    with tempfile.TemporaryDirectory(prefix="ruler-") as name, serving(page) as address:
        folder = Path(name)
        with ruler(folder, RULES, address, services) as running:
            scraping = running.process()
            time.sleep(SCRAPE_SECONDS)  # the span that is measured: every target is scraped once
            without = running.process()
            running.start_rules(RULES, every_seconds)
            running.seconds_per_minute(2)  # what is read over days exists after the second
            running.write_history()
            running.seconds_per_minute(1)
            before = running.process()
            seconds = running.seconds_per_minute(rounds)
            after = running.process()
            recorded = running.value('count({__name__=~"inference_service:.+"})')
    # A second of evaluation by the clock is more than one of CPU where other processes want the processor, and less
    # with Go's collector, which runs beside it. What scrapes cost was measured before there were rules.
    idle = (without.cpu_seconds - scraping.cpu_seconds) / (without.at_seconds - scraping.at_seconds)
    cpu_taken = after.cpu_seconds - before.cpu_seconds - idle * (after.at_seconds - before.at_seconds)
    cpu = seconds * cpu_taken / (after.evaluation_seconds - before.evaluation_seconds)
    budget = SECONDS_PER_MINUTE if services == BUDGET_SERVICES else None
    rows = [
        figure("evaluation, all groups", [cpu], "s of CPU a minute", at_most=budget),
        figure("the same by the clock, which a busy machine stretches", [seconds], "s a minute"),
        figure("scrapes, apart", [idle * 60], "s of CPU a minute"),
        figure("recorded series of a service", [recorded / services], "series", at_most=SERIES_PER_SERVICE),
    ]
    return rows, cpu


if __name__ == "__main__":
    sys.exit(main())
