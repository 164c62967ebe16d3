"""Several recordings of one setting: how far they differ by themselves, and what they are together. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from operator import add
from statistics import stdev
from typing import Any

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.decision import Decision
from specdec_exporter.comparison.latency import SLIS, Sli
from specdec_exporter.comparison.likeness import TITLES, sample_of, setting_flags
from specdec_exporter.comparison.loads import k_of, pooled
from specdec_exporter.errors import ComparisonError
from specdec_exporter.formatting import percent, plain
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.estimate import Spread
from specdec_exporter.speculation.policy import LatencyPolicy


class RunToRun(msgspec.Struct, frozen=True, kw_only=True):
    """How far the runs of one setting differ in one SLI.

    ``spread`` is the standard deviation of their means, relative. ``explained``: chance within the runs explains it.
    """

    sli: Sli
    mean_seconds: tuple[float, ...]
    spread: float
    explained: bool

    def as_error(self, policy: LatencyPolicy) -> Spread:
        """Return a 1 with the error that a further run has against the mean of these.

        Two runs hardly know their standard deviation: Student's t would reach 12.7 of it. So the policy's is taken with
        theirs, as if one more run had shown it.
        """
        runs = len(self.mean_seconds)
        variance = (policy.run_to_run_spread**2 + (runs - 1) * self.spread**2) / runs
        return Spread(1.0, math.sqrt(variance * (1.0 + 1.0 / runs)), runs)


def refuse_other_settings(runs: Sequence[Baseline]) -> None:
    """Raise :class:`ComparisonError` unless all recordings say the same of their setting."""
    first = runs[0]
    for each in runs[1:]:
        found = [flag.message for flag in setting_flags(first, each)]
        if (first.method, k_of(first)) != (each.method, k_of(each)):
            found.append("they do not speculate in the same way")
        if found:
            raise ComparisonError(
                f"expected recordings of one setting, found that {plain(first.name)} and {plain(each.name)} differ: "
                f"{'; '.join(found)}"
            )


def run_to_run(runs: Sequence[Baseline], policy: LatencyPolicy) -> tuple[RunToRun, ...]:
    """Return how far two or more runs of one setting differ, for each SLI that all of them have."""
    found = []
    for sli in SLIS:
        samples = [sample_of([run], sli) for run in runs]
        means = [mean for sample in samples if sample and (mean := distribution.mean(sample, policy))]
        if len(means) < len(runs):
            continue
        ratios = [(one / other).estimate() for one, other in combinations(means, 2)]
        found.append(
            RunToRun(
                sli=sli,
                mean_seconds=tuple(mean.value for mean in means),
                spread=stdev(math.log(mean.value) for mean in means),
                explained=all((each.low or 0.0) <= 1.0 <= (each.high or math.inf) for each in ratios),
            )
        )
    return tuple(found)


def together(runs: Sequence[Baseline]) -> Baseline:
    """Return the runs of one setting as one recording."""
    first = runs[0]
    if len(runs) == 1:
        return first
    histograms: dict[str, Any] = {
        f"{sli}_seconds": sample.whole if (sample := sample_of(runs, sli)) else None for sli in SLIS
    }
    finished = [run.requests_finished for run in runs]
    return msgspec.structs.replace(
        first,
        name=" + ".join(run.name for run in runs),
        recorded_at=max(run.recorded_at for run in runs),
        duration_seconds=math.fsum(run.duration_seconds for run in runs),
        interrupted=any(run.interrupted for run in runs),
        counts=reduce(add, (run.counts for run in runs), Counts()),
        requests_finished=None if None in finished else math.fsum(each or 0.0 for each in finished),
        by_load=pooled(runs),
        blocks=tuple(block for run in runs for block in run.blocks),
        prompt_length=_summed([run.prompt_length for run in runs]),
        generation_length=_summed([run.generation_length for run in runs]),
        **histograms,
    )


def _summed(histograms: Sequence[Histogram | None]) -> Histogram | None:
    known = [each for each in histograms if each is not None]
    alike = len(known) == len(histograms) and len({each.bounds for each in known}) == 1
    return reduce(add, known) if alike else None


def describe(found: Sequence[RunToRun]) -> Decision:
    """Return what two or more runs of one setting say, in place of a decision: neither is the better one."""
    widest = max(found, key=lambda each: each.spread, default=None)
    if widest is None:
        headline = "These runs share no latency with requests"
    else:
        headline = (
            f"Runs of this setting differ by themselves: standard deviation up to {percent(widest.spread)} "
            f"({TITLES[widest.sli]})"
        )
    reasons = [
        f"{TITLES[each.sli]}: standard deviation between runs {percent(each.spread)}, "
        f"{'which chance within the runs explains' if each.explained else 'more than chance within the runs explains'}"
        for each in found
    ]
    action = "Compare the candidate with one of them, or with both: compare RUN RUN CANDIDATE --aa."
    if not all(each.explained for each in found):
        action = "Compare the candidate with both: compare RUN RUN CANDIDATE --aa. A third run narrows the intervals."
    return Decision(code="run_to_run", headline=headline, reasons=tuple(reasons), action=action, regression=False)
