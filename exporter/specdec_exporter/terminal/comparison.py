"""The output of ``compare``: text of 80 columns, Markdown for a report, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TextIO

from msgspec.structs import astuple

from specdec_exporter.comparison.compare import Comparison, Side, Speedup
from specdec_exporter.comparison.latency import TITLES, LatencyComparison, Outcome
from specdec_exporter.formatting import between, count, decimal, percent, percentage_points, seconds
from specdec_exporter.speculation.acceptance import at
from specdec_exporter.speculation.chance import Estimate, interval, times
from specdec_exporter.speculation.measured import COMPARED, Compared
from specdec_exporter.terminal.sections import Output, Report, Section, flag_codes, write_report

STYLE: dict[Outcome, str] = {
    "faster": "green",
    "no_difference": "yellow",
    "inconclusive": "blue",
    "slower": "red",
    "tail_worse": "red",
    "undecided": "blue",
}
_LEGEND: Final = (
    "The true value lies in ( ) in 95 of 100 comparisons; without ( ), chance is not known. Of latencies a ratio below "
    "1 is faster, of speed-ups one above 1."
)
_QUANTILES: Final = "A quantile lies between these bucket boundaries in 95 of 100 recordings."


def write_comparison(stream: TextIO, comparison: Comparison, output: Output, *, verbose: bool = False) -> None:
    """Write ``comparison`` to ``stream``; ``verbose`` adds quantiles, settings and the curve to the text."""
    write_report(stream, comparison, output, report, verbose=verbose)


def report(comparison: Comparison) -> Report:
    """Return what a reader is told of a comparison."""
    decision, sides = comparison.decision, (("Baseline:", comparison.baseline), ("Candidate:", comparison.candidate))
    return Report(
        title=f"{comparison.candidate.name} against {comparison.baseline.name}",
        headline=f"{decision.headline}.",
        style=STYLE[decision.code],
        action=decision.action,
        remarks=[flag_codes(comparison.flags)],
        flags=comparison.flags,
        sections=list(_main(comparison)),
        legends=[_LEGEND],
        details=list(_details(comparison)),
        details_legend=_QUANTILES,
        reasons=decision.reasons,
        commands_title="Commands",
        commands=[(name, side.context.command) for name, side in sides],
    )


# --- Cells -----------------------------------------------------------------------------------------------------------


def _main(comparison: Comparison) -> Iterator[Section]:
    """Yield what was decided on: means, speed-ups, traffic, acceptance."""
    columns = ("", "baseline", "candidate", "candidate / baseline", "")
    yield Section(
        "Mean latencies", [_latency(latency) for latency in comparison.latencies if _recorded(latency)], columns
    )
    if speedups := list(_speedups(comparison.speedup)):
        yield Section("Speed-up", speedups, ("", ""))
    yield Section("Recordings", _recordings(comparison))


def _details(comparison: Comparison) -> Iterator[Section]:
    """Yield quantiles, acceptance by position, and settings."""
    for latency in comparison.latencies:
        if _recorded(latency):
            rows: list[tuple[str, ...]] = [
                (
                    f"P{quantile.quantile * 100:g}",
                    *(between(*astuple(side)) for side in (quantile.baseline, quantile.candidate)),
                )
                for quantile in latency.quantiles
            ]
            yield Section(TITLES[latency.sli].capitalize(), rows)
    if curve := _curve(comparison):
        yield Section("Acceptance by position (accepted there / drafts)", curve)
    yield Section("Settings", _settings(comparison))


def _recorded(latency: LatencyComparison) -> bool:
    return latency.mean_seconds.baseline is not None or latency.mean_seconds.candidate is not None


def _of_sides(comparison: Comparison, *lines: tuple[str, Callable[[Side], str]]) -> list[tuple[str, ...]]:
    """Return one row per line; a line is left out if neither side has a value."""
    rows = [(name, cell(comparison.baseline), cell(comparison.candidate)) for name, cell in lines]
    return [row for row in rows if row[1:] != ("-", "-")]


def _recordings(comparison: Comparison) -> list[tuple[str, ...]]:
    rows = _of_sides(
        comparison,
        ("name", lambda side: side.name),
        ("speculation", describe_speculation),
        ("duration", lambda side: f"{side.duration_seconds:,.0f} s{', interrupted' if side.interrupted else ''}"),
        ("requests", lambda side: count(side.requests)),
        ("requests/s", lambda side: decimal(side.requests_per_second)),
        ("requests in flight", lambda side: decimal(side.requests_in_flight)),
        ("tokens/s", lambda side: _one_decimal(side.generation_tokens_per_second)),
        ("tokens per prompt", lambda side: _one_decimal(side.mean_prompt_tokens)),
        ("tokens per answer", lambda side: _one_decimal(side.mean_generation_tokens)),
        ("preemptions", lambda side: count(side.preemptions)),
        ("acceptance rate", lambda side: interval(side.acceptance_ratio, percent)),
        ("mean acceptance length", lambda side: interval(side.mean_acceptance_length, decimal)),
        ("mean draft length", _draft_length),
        ("tokens per step", lambda side: decimal(side.figures.tokens_per_step) if side.figures else "-"),
    )
    if comparison.acceptance_change is not None:
        change = interval(comparison.acceptance_change, percentage_points)
        rows.append(("change of the acceptance rate", "", change))
    return rows


def _settings(comparison: Comparison) -> list[tuple[str, ...]]:
    return _of_sides(
        comparison,
        ("recorded", lambda side: side.recorded_at),
        ("vLLM", lambda side: side.vllm_version or "-"),
        ("served model", lambda side: side.model_name or "-"),
        ("model", lambda side: side.context.model or "not given"),
        ("hardware", lambda side: side.context.hardware or "not given"),
        ("runtime", lambda side: side.context.runtime or "not given"),
        ("request parameters", lambda side: side.context.request_parameters or "not given"),
    )


def _one_decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def describe_speculation(side: Side) -> str:
    """Return ``eagle3, k = 3``, or ``off``."""
    if side.figures is None:
        return "off"
    k = f", k = {side.num_speculative_tokens}" if side.num_speculative_tokens else ""
    return f"{side.method or 'method unknown'}{k}"


def _latency(latency: LatencyComparison) -> tuple[str, ...]:
    return (
        TITLES[latency.sli],
        seconds(latency.mean_seconds.baseline),
        seconds(latency.mean_seconds.candidate),
        times(latency.mean_ratio),
        latency.outcome.replace("_", " "),
    )


def _speedups(speedup: Speedup) -> Iterator[tuple[str, ...]]:
    if speedup.why_unknown is not None:
        yield "decoding", "not known (see above)"
    comparisons: dict[Compared, Estimate | None] = {
        "like_load": speedup.at_like_load,
        "closed_loop": speedup.closed_loop,
        "same_arrivals": speedup.same_arrivals,
        "unlike_arrivals": speedup.judged if speedup.compared == "unlike_arrivals" else None,
    }
    for compared, estimate in comparisons.items():
        if estimate is not None:
            yield f"decoding, {COMPARED[compared]}", times(estimate)
    if speedup.judged is not None and speedup.concurrency is not None:
        yield "load, requests in decode", f"{speedup.concurrency:.1f}"
    if speedup.break_even_acceptance_ratio is not None:
        yield "acceptance that breaks even", interval(speedup.break_even_acceptance_ratio, percent)
    if speedup.break_even_acceptance_length is not None:
        yield "acceptance length that breaks even", interval(speedup.break_even_acceptance_length, decimal)


def _draft_length(side: Side) -> str:
    if side.figures is None:
        return "-"
    short = ", below k: the curve reads low" if side.figures.short_drafts else ""
    return f"{decimal(side.figures.mean_draft_length)}{short}"


def _curve(comparison: Comparison) -> list[tuple[str, ...]]:
    curves = [side.figures.per_position if side.figures else () for side in (comparison.baseline, comparison.candidate)]
    return [
        (str(position), *(percent(at(curve, position)) if position < len(curve) else "-" for curve in curves))
        for position in range(max(map(len, curves)))
    ]
