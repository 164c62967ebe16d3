"""``compare`` and the rule pack say the same of the same requests: the ratio of means, and the shift of the tail."""

from __future__ import annotations

import random
from collections.abc import Sequence

from recordings import E2E, TPOT, TTFT, histogram
from rules.scenario import Case, Pack, Phase, Shares, pinned, service
from specdec_exporter.comparison.distribution import Sample
from specdec_exporter.comparison.latency import LatencyComparison, Sli, compare_latency
from specdec_exporter.speculation.policy import load_policy

POLICY = load_policy().latency
WINDOW_MINUTES = 30
SLIS: tuple[tuple[str, Sli, tuple[float, ...]], ...] = (
    ("tpot", "time_per_output_token", TPOT),
    ("ttft", "time_to_first_token", TTFT),
    ("e2e", "request_latency", E2E),
)


def requests_of(shares: Shares, count: int) -> Sequence[float]:
    """As many requests as a scenario has of each latency."""
    return [seconds for seconds, share in shares for _ in range(round(share * count))]


def drawn(source: random.Random, median: float, tail: float) -> Shares:
    """Twenty latencies, each of a twentieth of the requests; the last ones slower by ``tail``."""
    values = [median * source.lognormvariate(0.0, 0.4) for _ in range(20)]
    return tuple((value * (tail if place >= 18 else 1.0), 0.05) for place, value in enumerate(values))


def case(seed: int) -> Case:
    source = random.Random(seed)
    slower, tail = source.choice([0.7, 1.0, 1.4]), source.choice([1.0, 3.0])
    per_minute, recorded = source.choice([20, 60, 200]), source.choice([400, 5000])
    before = {name: drawn(source, bounds[6], 1.0) for name, _, bounds in SLIS}
    after = {name: drawn(source, bounds[6] * slower, tail) for name, _, bounds in SLIS}
    values: dict[str, float | None] = {}
    for name, sli, bounds in SLIS:
        baseline = Sample(histogram(requests_of(before[name], recorded), bounds))
        candidate = Sample(histogram(requests_of(after[name], per_minute * WINDOW_MINUTES), bounds))
        values |= expected(name, compare_latency(sli, baseline, candidate, POLICY))
    series = service(Phase(minutes=60, latency=after, requests_per_minute=per_minute), families=tuple(before))
    return Case(name=str(seed), series=series + pinned(60, before, requests=recorded), values={57: values})


def expected(name: str, comparison: LatencyComparison) -> dict[str, float | None]:
    """What the pack records of this comparison, and whether its alert about the tail fires.

    After a single look ``compare`` must be surer than an alert that keeps looking, so between its margin and the
    alert's both answers are right.
    """
    assert comparison.mean_ratio is not None
    shift = comparison.tail_shift
    assert shift is not None
    now, then = (f"inference_service:specdec_latency_seconds:mean{suffix}" for suffix in ("30m", "_baseline"))
    ratio = f'{now}{{sli="{name}"}} / ignoring (baseline_source) {then}{{sli="{name}"}}'
    values: dict[str, float | None] = {
        ratio: round(comparison.mean_ratio.value, 3),
        f'inference_service:specdec_latency:tail_shift30m{{sli="{name}"}}': round(shift.share, 3),
    }
    if shift.shifted or shift.share <= POLICY.tail_shift_min:
        alert = f'ALERTS{{alertname="SpecDecodeP99Regression",severity="warning",sli="{name}",alertstate="firing"}}'
        values[alert] = 1.0 if shift.shifted else None
    return values


def test_the_same_requests_give_the_same_values(pack: Pack) -> None:
    cases = [case(seed) for seed in range(4)]
    fired = {
        value for each in cases for expression, value in each.values[57].items() if expression.startswith("ALERTS")
    }
    assert fired == {1.0, None}
    pack.run(*cases)
