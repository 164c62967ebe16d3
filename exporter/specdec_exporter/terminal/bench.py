"""The output of ``compare`` with results of a benchmark: text of 80 columns, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TextIO

from specdec_exporter.comparison.bench import BenchComparison
from specdec_exporter.comparison.benchload import BenchLoad
from specdec_exporter.formatting import decimal, percent, seconds
from specdec_exporter.speculation.chance import interval, times
from specdec_exporter.terminal.comparison import STYLE
from specdec_exporter.terminal.sections import Output, Report, Section, flag_codes, write_report

_LEGEND: Final = (
    "decoding: TPOT of the baseline / of the candidate; it decides. The true value lies in ( ) in 95 of 100 "
    "comparisons; without ( ), chance is not known. TTFT: time to first token, TPOT: time per output token, both means "
    "of the requests; baseline -> candidate."
)
_CEILING: Final = (
    "length: mean acceptance length, the speed-up if drafts cost nothing. reached: how much of it decoding got. "
    "breaks even: the length below which speculation loses at this load."
)
_FACTS: Final = ("hardware", "model", "runtime", "request_parameters")


def write_bench(stream: TextIO, comparison: BenchComparison, output: Output, *, verbose: bool = False) -> None:
    """Write ``comparison`` to ``stream``; ``verbose`` adds runs, lengths, P99 and settings to the text."""
    write_report(stream, comparison, output, report, verbose=verbose)


def report(comparison: BenchComparison) -> Report:
    """Return what a reader is told of a benchmark; Markdown has the platform guide's table and its five fields."""
    decision, acceptance = comparison.decision, list(_acceptance(comparison))
    mixed = decision.code == "faster" and any(load.outcome != "faster" for load in comparison.loads)
    legends = [_LEGEND, _CEILING] if any(load.ceiling for load in comparison.loads) else [_LEGEND]
    sides = (("Baseline", comparison.baseline), ("Candidate", comparison.candidate))
    return Report(
        title="Speculation in a benchmark",
        headline=f"{decision.headline}.",
        style=STYLE["no_difference" if mixed else decision.code],
        action=decision.action,
        remarks=[flag_codes(comparison.flags)],
        flags=comparison.flags,
        sections=[*_main(comparison), *acceptance] if comparison.loads else [],
        guide=[Section("Results", list(map(_result, comparison.loads)), _GUIDE), *acceptance],
        legends=legends if comparison.loads else [],
        details=list(_details(comparison)),
        reasons=decision.reasons,
        commands_title="Commands and files",
        commands=[(f"{name}: {', '.join(side.names)}", side.context.command) for name, side in sides],
    )


# --- Cells -----------------------------------------------------------------------------------------------------------


def _change(one: str, other: str) -> str:
    """Return ``20.9 -> 11.3 ms``."""
    value, _, unit = one.rpartition(" ")
    return f"{value if value and other.endswith(f' {unit}') else one} -> {other}"


def _both(load: BenchLoad, name: str) -> tuple[str, ...]:
    return tuple(seconds(getattr(side, name)) for side in (load.baseline, load.candidate))


def _main(comparison: BenchComparison) -> Iterator[Section]:
    """Yield speed-ups and latencies; Markdown has the guide's table instead."""
    rows: list[tuple[str, ...]] = [
        (
            str(load.setting),
            times(load.speedup),
            load.outcome.replace("_", " "),
            "same rate" if load.request_rate is not None else times(load.tokens_per_second_ratio),
        )
        for load in comparison.loads
    ]
    yield Section("Speed-up", rows, ("load", "decoding", "", "tokens/s"))
    rows = [
        (
            str(load.setting),
            _change(*_both(load, "time_to_first_token_seconds")),
            _change(*_both(load, "time_per_output_token_seconds")),
            _change(*(f"{side.output_tokens_per_second:,.0f}" for side in (load.baseline, load.candidate))),
        )
        for load in comparison.loads
    ]
    yield Section("Figures", rows, ("load", "TTFT", "TPOT", "tokens/s"))


def _acceptance(comparison: BenchComparison) -> Iterator[Section]:
    rows: list[tuple[str, ...]] = [
        (
            str(load.setting),
            percent(load.candidate.acceptance_ratio),
            decimal(load.candidate.mean_acceptance_length),
            percent(load.reached_ratio),
            interval(load.break_even_acceptance_length, decimal),
        )
        for load in comparison.loads
        if load.candidate.acceptance_ratio is not None
    ]
    if rows:
        yield Section("Acceptance", rows, ("load", "rate", "length", "reached", "breaks even"))


def _details(comparison: BenchComparison) -> Iterator[Section]:
    yield Section(
        "Runs",
        [
            (
                str(load.setting),
                *(
                    _change(*(f"{getattr(side, name):,.0f}" for side in (load.baseline, load.candidate)))
                    for name in ("runs", "requests", "mean_prompt_tokens", "mean_generation_tokens")
                ),
                _change(*_both(load, "time_per_output_token_p99_seconds")),
            )
            for load in comparison.loads
        ],
        ("load", "runs", "requests", "prompt", "answer", "P99 of TPOT"),
    )
    contexts = comparison.baseline.context, comparison.candidate.context
    told = [
        (name.replace("_", " "), *(getattr(context, name) or "not given" for context in contexts)) for name in _FACTS
    ]
    yield Section("Context", told)


# The table that the platform guide asks for.
_GUIDE: Final = (
    "load",
    "baseline TTFT",
    "candidate TTFT",
    "baseline tokens/s",
    "candidate tokens/s",
    "mean acceptance length",
    "acceptance rate",
    "speed-up (tokens/s)",
    "speed-up (decoding)",
    "decision",
)


def _result(load: BenchLoad) -> tuple[str, ...]:
    return (
        str(load.setting),
        *_both(load, "time_to_first_token_seconds"),
        *(f"{side.output_tokens_per_second:,.1f}" for side in (load.baseline, load.candidate)),
        decimal(load.candidate.mean_acceptance_length),
        percent(load.candidate.acceptance_ratio),
        times(load.tokens_per_second_ratio),
        times(load.speedup),
        load.outcome.replace("_", " "),
    )
