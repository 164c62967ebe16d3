"""How good the alerts are: labelled traces through a real Prometheus, beside what one would write first.

    python tests/bench/alert_quality.py [--quick] [--only PART] [--seed N] [--rules FILE]

Exits with 1 when a figure that must hold is missed, with 2 when the measuring itself failed. What is measured:
docs/alert-quality.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from rich.table import Table

from bench.alert_replay import NAIVE, NAIVE_ACCEPTANCE, NAIVE_P99, RULES, alert_rules
from bench.alert_scenarios import COLLAPSE, DIP, FEW_DRAFTS, INCIDENTS, LOW_PAGE, NGRAM, WELL
from bench.confidence import highest_count, highest_share, lowest_share
from bench.latency_trials import ALERTS, MEAN, SOURCES, TAIL, Case, Outcome, run_cases
from bench.operations import operations
from bench.rows import BenchError, Row, percent, show, show_table, table
from bench.scenario_trials import MINUTES_PER_MONTH, Watched, score, watch
from bench.weeks import acceptance_weeks, latency_weeks

MUST_CATCH = 0.95
MUST_NOT_ALARM = 0.001
PAGES_WITHIN_MINUTES = 25.0
BODY_REQUESTS, TAIL_REQUESTS = 300, 1000
# What must hold, tables, and how many traces that took.
Part = tuple[list[Row], list[Table], int]


def main() -> int:
    """Measure, print, and tell whether what must hold does."""
    parser = argparse.ArgumentParser(description="How good the alerts are, over labelled traces in a real Prometheus.")
    parser.add_argument("--quick", action="store_true", help="an eighth of the traces")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone; may be given again")
    parser.add_argument(
        "--seed", type=int, default=20260101, help="other traces of the same kinds (default %(default)s)"
    )
    parser.add_argument("--rules", type=Path, default=RULES, help="another rendered pack, its vLLM variant beside it")
    arguments = parser.parse_args()
    began = time.monotonic()
    must, tables, traces = list[Row](), list[Table](), 0
    try:
        for name, part in PARTS.items():
            if not arguments.only or name in arguments.only:
                print(f"{name} ...", file=sys.stderr)
                found = part(quick=arguments.quick, seed=arguments.seed, rules=arguments.rules)
                must, tables, traces = must + found[0], tables + found[1], traces + found[2]
    except (BenchError, AssertionError, OSError) as error:
        print(f"the measuring failed: {error}", file=sys.stderr)
        return 2
    show({"What must hold": must})
    for each in tables:
        show_table(each)
    missed = [row.what for row in must if row.holds is False]
    print(f"\nMissed, {len(missed)}: {'; '.join(missed)}." if missed else "\nAll of it holds.")
    print(f"{traces:,} traces in {time.monotonic() - began:.0f} s.")
    return 1 if missed else 0


def _latency(*, quick: bool, seed: int, rules: Path) -> Part:
    """Services by the thousand, faster or slower."""
    outcomes = run_cases(_cases(quick=quick), seed=seed, rules=rules)
    return _must_show_latency(outcomes), [_latency_table(outcomes)], sum(len(each.trials) for each in outcomes)


def _incidents(*, quick: bool, seed: int, rules: Path) -> Part:
    """Everything that may happen, in traces of hours and days."""
    watched = watch(_traces(quick=quick), seed=seed, rules=rules)
    return _must_show_traces(watched), [_alert_table(watched), _harmless_table(watched)], len(watched)


def _cases(*, quick: bool) -> list[Case]:
    """Latency trials; those that must show something come first and are most."""

    def many(trials: int) -> int:
        return max(10, trials // 8) if quick else trials

    cases = [Case(trials=many(300), requests=BODY_REQUESTS, body=1.3, source=source) for source in SOURCES]
    cases += [Case(trials=many(300), requests=TAIL_REQUESTS, tail_share=0.05, source=source) for source in SOURCES]
    cases += [
        Case(trials=many(600), requests=requests, source=source) for source in SOURCES for requests in (300, 1000)
    ]
    cases += [Case(trials=many(200), requests=300, sli=sli) for sli in ("ttft", "e2e")]
    for requests in (300, 1000, 3000):
        cases += [Case(trials=many(100), requests=requests, body=body) for body in (1.1, 1.2, 1.5)]
        cases += [Case(trials=many(100), requests=requests, tail_share=share) for share in (0.02, 0.1)]
    cases += [Case(trials=many(100), requests=requests, tail_share=0.05) for requests in (300, 3000)]
    for sli in ("ttft", "e2e"):
        cases += [Case(trials=many(100), requests=requests, body=1.3, sli=sli) for requests in (300, 1000)]
        cases += [Case(trials=many(100), requests=1000, tail_share=0.05, sli=sli)]
        cases += [Case(trials=many(100), requests=1000, tail_share=0.05, tail_factor=5.0, sli=sli)]
    return cases


def _traces(*, quick: bool) -> dict[str, int]:
    """How many traces of each scenario."""
    long = {"healthy day and night": 4 if quick else 24, "slow decay over three days": 2 if quick else 8}
    return {scenario: long.get(scenario, 4 if quick else 20) for scenario in (*WELL, *INCIDENTS)}


def _must_show_latency(outcomes: Sequence[Outcome]) -> list[Row]:
    rows = []
    for outcome in outcomes:
        case = outcome.case
        if case.sli != "tpot" or (case.requests, case.body, case.tail_share) not in (
            (BODY_REQUESTS, 1.3, 0.0),
            (TAIL_REQUESTS, 1.0, 0.05),
        ):
            continue
        alerts = (MEAN,) if case.body > 1 else (TAIL,)
        what = f"{case}, {case.requests:,} requests, baseline: {case.source}"
        found, trials = outcome.caught(*alerts), len(outcome.trials)
        rows.append(
            Row(
                what,
                f"{percent(found / trials)} of {trials} caught (at least {percent(lowest_share(found, trials))})",
                f"at least {MUST_CATCH:.0%}",
                found / trials >= MUST_CATCH,
            )
        )
        naive = outcome.caught(NAIVE_P99)
        rows.append(Row(f"    {NAIVE_P99}", f"{percent(naive / trials)} of {trials} caught"))
    nothing = [outcome for outcome in outcomes if outcome.case.nothing_slower]
    trials = sum(len(outcome.trials) for outcome in nothing)
    ours, naive = (sum(outcome.caught(*alerts) for outcome in nothing) for alerts in (ALERTS, (NAIVE_P99,)))
    budget, holds = f"at most {MUST_NOT_ALARM:.1%}", ours / trials <= MUST_NOT_ALARM
    return [
        *rows,
        Row("nothing slower", _alarmed(ours, trials), budget, holds),
        Row(f"    {NAIVE_P99}", _alarmed(naive, trials)),
    ]


def _alarmed(false: int, trials: int) -> str:
    most = percent(highest_share(false, trials))
    return f"{false} of {trials:,} alarmed, {percent(false / trials)} (at most {most})"


def _must_show_traces(watched: Sequence[Watched]) -> list[Row]:
    collapses = [each.delay(LOW_PAGE) for each in watched if each.scenario == COLLAPSE]
    slowest = max(math.inf if delay is None else delay for delay in collapses)
    rows = [
        Row(
            COLLAPSE.replace("collapse", "collapse from 0.72"),
            f"the last of {len(collapses)} paged after {slowest:.0f} min",
            f"at most {PAGES_WITHIN_MINUTES:.0f} min",
            slowest <= PAGES_WITHIN_MINUTES,
        )
    ]
    for scenario in (NGRAM, FEW_DRAFTS, DIP):
        some = [each for each in watched if each.scenario == scenario]
        false = [alert.rpartition(" ")[0] for each in some for alert in each.false_alarms()]
        naive = false.count(NAIVE_ACCEPTANCE)
        ours = sum(alert not in NAIVE for alert in false)
        measured = f"{ours} alarms in {len(some)} traces ({NAIVE_ACCEPTANCE}: {naive})"
        rows.append(Row(scenario, measured, "none", ours == 0))
    return rows


def _latency_table(outcomes: Iterable[Outcome]) -> Table:
    shown = table(
        "what", "sli", "requests", "baseline", "trials", "mean", "tail", "either", "worst tenth", "naive P99", "after"
    )
    shown.title = "\nLatency: share of trials in which it fires; minutes from a full window until it does"
    for outcome in outcomes:
        case, trials = outcome.case, len(outcome.trials)
        shares = [outcome.caught(*alerts) / trials for alerts in ((MEAN,), (TAIL,), ALERTS)]
        worst = "" if case.nothing_slower else percent(outcome.worst_place(*ALERTS))
        after = outcome.median_delay(*ALERTS)
        shown.add_row(
            *(str(case), case.sli, f"{case.requests:,}", case.source, str(trials)),
            *(*map(percent, shares), worst, percent(outcome.caught(NAIVE_P99) / trials)),
            "" if math.isnan(after) else f"{after:.0f} min",
        )
    return shown


def _alert_table(watched: Sequence[Watched]) -> Table:
    shown = table(
        "alert", "severity", "due in", "recall", "after, median", "90 %", "false", "per service-month", "at most"
    )
    shown.title = "\nEach alert: where it is due, and where nothing is wrong"
    alerts = dict.fromkeys(f"{rule.name} {rule.severity}" for rule in alert_rules())
    for alert in alerts:
        found = score(alert, watched)
        name, _, severity = alert.rpartition(" ")
        delays = sorted(found.delays)
        late = [f"{statistics.median(delays):.0f} min", f"{_ninetieth(delays):.0f} min"] if delays else ["", ""]
        shown.add_row(
            *(name, severity, str(found.due) if found.due else "-"),
            *(percent(len(delays) / found.due) if found.due else "", *late),
            *(str(found.false_alarms), f"{found.false_per_month:.2f}"),
            f"{highest_count(found.false_alarms) * MINUTES_PER_MONTH / found.quiet_minutes:.2f}",
        )
    return shown


def _harmless_table(watched: Sequence[Watched]) -> Table:
    shown = table("nothing is wrong", "traces", "hours", "pages", "tickets", "info", *NAIVE)
    shown.title = "\nFalse alarms by trace"
    for scenario in WELL:
        some = [each for each in watched if each.scenario == scenario]
        false = [alert.rpartition(" ") for each in some for alert in each.false_alarms()]
        naive = {name: sum(alert == name for alert, _, _ in false) for name in NAIVE}
        ours = [severity for alert, _, severity in false if alert not in naive]
        counts = [ours.count(severity) for severity in ("critical", "warning", "info")]
        hours = sum(each.minutes for each in some) / 60
        shown.add_row(scenario, str(len(some)), f"{hours:,.0f}", *map(str, (*counts, *naive.values())))
    return shown


def _ninetieth(ordered: Sequence[float]) -> float:
    return ordered[math.ceil(0.9 * len(ordered)) - 1]


PARTS: Mapping[str, Callable[..., Part]] = {
    "latency": _latency,
    "incidents": _incidents,
    "latency-weeks": latency_weeks,
    "acceptance-weeks": acceptance_weeks,
    "operations": operations,
}


if __name__ == "__main__":
    sys.exit(main())
