"""The output of ``compare`` with three or more recordings: text of 80 columns, Markdown for a report, JSON."""

from __future__ import annotations

import json
from functools import partial
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from specdec_exporter.comparison.advice import Advice, AdviceCode
from specdec_exporter.comparison.compare import Comparison, Side
from specdec_exporter.comparison.likeness import Flag
from specdec_exporter.comparison.several import Several
from specdec_exporter.comparison.traffic import Sli
from specdec_exporter.formatting import count, percent, plain, seconds, times
from specdec_exporter.terminal.comparison import describe_speculation
from specdec_exporter.terminal.console import indented
from specdec_exporter.terminal.sections import (
    Output,
    Section,
    escaped,
    fenced,
    markdown_flags,
    markdown_section,
    print_flags,
    print_section,
    write_report,
)

_STYLE: dict[AdviceCode, str] = {
    "use": "green",
    "off": "red",
    "undecided": "blue",
}
_RECORDING_COLUMNS: Final = ("recording", "speculation", "requests", "TTFT", "TPOT", "accepted", "decision")
_LEGEND: Final = (
    "load: requests in decode at a time, per engine; same req/s: at the same requests per second, whatever load each "
    "had. *: the fastest. Speed-up of decoding against the recording without speculation, with its 95 % interval. -: "
    "not known."
)
_RECORDINGS_LEGEND: Final = "decision: against the recording without speculation."


def write_several(stream: TextIO, several: Several, output: Output, *, verbose: bool = False) -> None:
    """Write ``several`` to ``stream``; ``verbose`` adds details to the text, Markdown and JSON have all."""
    draw = partial(print_several, several=several, verbose=verbose)
    write_report(stream, several, output, draw, partial(as_markdown, several))


# --- Cells, for text and Markdown ------------------------------------------------------------------------------------


def _speedups(several: Several) -> Section:
    names = [each.candidate.name for each in several.comparisons]
    rows = []
    for load in several.loads:
        best = load.fastest if load.speedup(load.fastest) > 1.0 and not load.unjudged else None
        cells = (times(load.speedups.get(name)) + (" *" if name == best else "") for name in names)
        rows.append(("same req/s" if load.compared == "same_arrivals" else f"{load.concurrency:.1f}", *cells))
    return Section("Speed-up by load", rows, ("load", *names))


def _recordings(several: Several) -> Section:
    first, *_ = several.comparisons
    rows = [_recording(first.baseline, first, "-")]
    rows += [_recording(each.candidate, each, each.decision.code.replace("_", " ")) for each in several.comparisons]
    return Section("Recordings", rows, _RECORDING_COLUMNS)


def _recording(side: Side, comparison: Comparison, decision: str) -> tuple[str, ...]:
    return (
        side.name,
        describe_speculation(side),
        count(side.requests),
        _mean(side, comparison, "time_to_first_token"),
        _mean(side, comparison, "time_per_output_token"),
        percent(side.figures.acceptance_ratio if side.figures else None),
        decision,
    )


def _mean(side: Side, comparison: Comparison, sli: Sli) -> str:
    pair = next(each.mean_seconds for each in comparison.latencies if each.sli == sli)
    return seconds(pair.baseline if side is comparison.baseline else pair.candidate)


def _flags(several: Several) -> list[Flag]:
    """Return the first flag of each code, which says how many recordings have the same: many may have it."""
    flags = []
    codes: dict[str, dict[str, Flag]] = {}
    for each in several.comparisons:
        for flag in each.flags:
            codes.setdefault(flag.code, {}).setdefault(each.candidate.name, flag)
    for found in codes.values():
        name, *others = found
        first = found[name]
        more = f" (and {len(others)} more recordings have this flag)" if others else ""
        flags.append(Flag(first.code, f"{plain(name)}: {first.message}{more}", first.action))
    return flags


def _config_flag(advice: Advice) -> str:
    """Return the flag for a shell; JSON has no single quotation marks but those within text."""
    config = json.dumps(advice.speculative_config)
    return "--speculative-config '{}'".format(config.replace("'", "'\\''"))


# --- Terminal --------------------------------------------------------------------------------------------------------


def print_several(console: Console, several: Several, *, verbose: bool = False) -> None:
    """Print what to run, the speed-ups by load and the flags; ``verbose`` adds a note and recordings."""
    advice = several.advice
    console.print(Text(plain(advice.headline), style=f"bold {_STYLE[advice.code]}"))
    console.print(Text(plain(advice.outlook)))
    console.print(Text(plain(advice.action)))
    if advice.speculative_config is not None:
        # Not wrapped, so that it can be copied.
        console.print(Text(plain(_config_flag(advice))), soft_wrap=True)
    if verbose and advice.note is not None:
        console.print(Text(plain(advice.note)))
    if several.loads:
        print_section(console, _speedups(several))
        indented(console, _LEGEND)
    if verbose:
        print_section(console, _recordings(several))
        indented(console, _RECORDINGS_LEGEND)
    print_flags(console, _flags(several))


# --- Markdown --------------------------------------------------------------------------------------------------------


def as_markdown(several: Several) -> str:
    """Return a report with figures, commands and advice, so that a reader can repeat it."""
    advice = several.advice
    lines = ["# Recordings side by side", "", f"**{escaped(advice.headline)}** {escaped(advice.outlook)}", ""]
    lines += [escaped(advice.action)]
    if advice.speculative_config is not None:
        lines += ["", *fenced(_config_flag(advice))]
    if advice.note is not None:
        lines += ["", escaped(advice.note)]
    for section in (_speedups(several), _recordings(several)):
        lines += markdown_section(section)
    lines += ["", escaped(f"{_LEGEND} {_RECORDINGS_LEGEND}"), "", "## Settings"]
    for side in (several.comparisons[0].baseline, *(each.candidate for each in several.comparisons)):
        facts = (side.context.hardware, side.context.model, side.context.runtime, side.context.request_parameters)
        words = "; ".join(escaped(fact) for fact in facts if fact)
        lines += ["", f"{escaped(side.name)}: {words or 'not given'}", "", *fenced(side.context.command)]
    return "\n".join([*lines, *markdown_flags(_flags(several))]) + "\n"
