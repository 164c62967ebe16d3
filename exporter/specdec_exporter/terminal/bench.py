"""The output of ``compare`` with results of a benchmark: text of 80 columns, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from specdec_exporter.comparison.bench import BenchComparison
from specdec_exporter.comparison.benchload import BenchLoad
from specdec_exporter.formatting import decimal, interval, percent, plain, seconds, times
from specdec_exporter.terminal.comparison import STYLE
from specdec_exporter.terminal.console import heading, indented
from specdec_exporter.terminal.sections import (
    Output,
    Section,
    escaped,
    fenced,
    flag_codes,
    markdown_flags,
    markdown_section,
    print_flags,
    print_section,
    write_report,
)

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


def write_bench(stream: TextIO, found: BenchComparison, output: Output, *, verbose: bool = False) -> None:
    """Write ``found`` to ``stream``; ``verbose`` adds runs, lengths, P99 and settings to the text."""
    draw = partial(print_bench, found=found, verbose=verbose)
    write_report(stream, found, output, draw, partial(as_markdown, found))


# --- Cells, for text and Markdown ------------------------------------------------------------------------------------


def _change(one: str, other: str) -> str:
    """Return ``20.9 -> 11.3 ms``."""
    value, _, unit = one.rpartition(" ")
    return f"{value if value and other.endswith(f' {unit}') else one} -> {other}"


def _both(load: BenchLoad, name: str) -> tuple[str, ...]:
    return tuple(seconds(getattr(side, name)) for side in (load.baseline, load.candidate))


def _main(found: BenchComparison) -> Iterator[Section]:
    """Yield speed-ups and latencies; Markdown has the guide's table instead."""
    rows: list[tuple[str, ...]] = [
        (
            str(each.setting),
            times(each.speedup),
            each.outcome.replace("_", " "),
            "same rate" if each.request_rate is not None else times(each.tokens_per_second_ratio),
        )
        for each in found.loads
    ]
    yield Section("Speed-up", rows, ("load", "decoding", "", "tokens/s"))
    rows = [
        (
            str(each.setting),
            _change(*_both(each, "time_to_first_token_seconds")),
            _change(*_both(each, "time_per_output_token_seconds")),
            _change(*(f"{side.output_tokens_per_second:,.0f}" for side in (each.baseline, each.candidate))),
        )
        for each in found.loads
    ]
    yield Section("Figures", rows, ("load", "TTFT", "TPOT", "tokens/s"))


def _acceptance(found: BenchComparison) -> Iterator[Section]:
    rows: list[tuple[str, ...]] = [
        (
            str(each.setting),
            percent(each.candidate.acceptance_ratio),
            decimal(each.candidate.mean_acceptance_length),
            percent(each.reached_ratio),
            interval(each.break_even_acceptance_length, decimal),
        )
        for each in found.loads
        if each.candidate.acceptance_ratio is not None
    ]
    if rows:
        yield Section("Acceptance", rows, ("load", "rate", "length", "reached", "breaks even"))


def _details(found: BenchComparison) -> Iterator[Section]:
    yield Section(
        "Runs",
        [
            (
                str(each.setting),
                *(
                    _change(*(f"{getattr(side, name):,.0f}" for side in (each.baseline, each.candidate)))
                    for name in ("runs", "requests", "mean_prompt_tokens", "mean_generation_tokens")
                ),
                _change(*_both(each, "time_per_output_token_p99_seconds")),
            )
            for each in found.loads
        ],
        ("load", "runs", "requests", "prompt", "answer", "P99 of TPOT"),
    )
    contexts = found.baseline.context, found.candidate.context
    told = [(name.replace("_", " "), *(getattr(each, name) or "not given" for each in contexts)) for name in _FACTS]
    yield Section("Context", told)


# --- Terminal --------------------------------------------------------------------------------------------------------


def print_bench(console: Console, found: BenchComparison, *, verbose: bool = False) -> None:
    """Print what was found, what to do and the flags; then the tables by load, reasons and flags."""
    decision = found.decision
    mixed = decision.code == "faster" and any(each.outcome != "faster" for each in found.loads)
    style = STYLE["no_difference" if mixed else decision.code]
    console.print(Text(plain(f"{decision.headline}."), style=f"bold {style}"))
    console.print(Text(plain(decision.action)))
    console.print(Text(flag_codes(found.flags)))
    if found.loads:
        for section in (*_main(found), *_acceptance(found)):
            print_section(console, section)
        indented(console, _LEGEND)
        if any(each.ceiling for each in found.loads):
            indented(console, _CEILING)
    if verbose:
        for section in _details(found):
            print_section(console, section)
    if decision.reasons:
        heading(console, "Reasons", *(Text(plain(f"- {reason}")) for reason in decision.reasons))
    print_flags(console, found.flags)


# --- Markdown --------------------------------------------------------------------------------------------------------

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


def as_markdown(found: BenchComparison) -> str:
    """Return a report with the platform guide's table and its five fields, so that a reader can repeat it."""
    decision = found.decision
    rows = [
        (
            str(each.setting),
            *_both(each, "time_to_first_token_seconds"),
            *(f"{side.output_tokens_per_second:,.1f}" for side in (each.baseline, each.candidate)),
            decimal(each.candidate.mean_acceptance_length),
            percent(each.candidate.acceptance_ratio),
            times(each.tokens_per_second_ratio),
            times(each.speedup),
            each.outcome.replace("_", " "),
        )
        for each in found.loads
    ]
    lines = ["# Speculation in a benchmark", "", f"**{escaped(decision.headline)}.**", ""]
    lines += [escaped(decision.action), "", escaped(flag_codes(found.flags)), ""]
    lines += [f"- {escaped(reason)}" for reason in decision.reasons]
    for section in (Section("Results", rows, _GUIDE), *_acceptance(found), *_details(found)):
        lines += markdown_section(section)
    lines += ["", escaped(f"{_LEGEND} {_CEILING}"), "", "## Commands and files"]
    for name, side in (("Baseline", found.baseline), ("Candidate", found.candidate)):
        lines += ["", f"{name}: {', '.join(map(escaped, side.names))}", "", *fenced(side.context.command)]
    return "\n".join([*lines, *markdown_flags(found.flags)]) + "\n"
