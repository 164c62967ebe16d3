"""The output of ``compare`` with three or more recordings: text of 80 columns, Markdown for a report, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from specdec_exporter.comparison.advice import Advice, AdviceCode
from specdec_exporter.comparison.compare import Comparison, Side
from specdec_exporter.comparison.decision import times
from specdec_exporter.comparison.fastest import AtLoad, Fastest, Line
from specdec_exporter.comparison.latency import Sli
from specdec_exporter.comparison.likeness import Flag
from specdec_exporter.comparison.several import Several
from specdec_exporter.formatting import count, decimal, percent, plain, seconds
from specdec_exporter.speculation.verdict import Finding
from specdec_exporter.terminal.comparison import describe_speculation
from specdec_exporter.terminal.console import heading, indented, print_framed, write
from specdec_exporter.terminal.figures import print_finding
from specdec_exporter.terminal.sections import (
    FLAGS_TITLE,
    Output,
    Section,
    as_json,
    escaped,
    fenced,
    markdown_section,
    print_section,
    write_utf8,
)

_STYLE: dict[AdviceCode, str] = {
    "use": "green",
    "off": "red",
    "undecided": "blue",
    "record_more": "yellow",
    "unknown": "blue",
}
_RECORDING_COLUMNS: Final = ("recording", "speculation", "requests", "TTFT", "TPOT", "accepted", "decision")
_LOAD_COLUMNS: Final = ("running", "recording", "tokens", "step", "off", "cost", "speed-up")
_FASTEST_COLUMNS: Final = ("running", "fastest", "speed-up", "within chance of it")
_LEGEND: Final = (
    "decision: against the recording without speculation. running: requests in decode at a time, per engine. "
    "tokens: per step. step: mean time of a step of one request; off: without speculation, at like load. cost: of one "
    "more draft token / a step without drafts, which is the acceptance that breaks even. "
    "speed-up: tokens x off / step, with its 95 % interval."
)


def write_several(stream: TextIO, several: Several, output: Output) -> None:
    """Write ``several`` to ``stream``."""
    if output == "text":
        write(stream, lambda console: print_several(console, several))
    else:
        write_utf8(stream, as_markdown(several) if output == "markdown" else as_json(several))


# --- Cells, for text and Markdown ------------------------------------------------------------------------------------


def _sections(several: Several) -> Iterator[Section]:
    yield Section("Recordings", list(_recordings(several)), _RECORDING_COLUMNS)
    loads = [(at, line) for line in several.lines for at in line.by_load]
    loads.sort(key=lambda each: each[0].concurrency_bound)
    if loads:
        yield Section("Speed-up by load", [_load(at, line) for at, line in loads], _LOAD_COLUMNS)
    if several.fastest:
        yield Section("Fastest by load", list(map(_fastest, several.fastest)), _FASTEST_COLUMNS)


def _recordings(several: Several) -> Iterator[tuple[str, ...]]:
    yield _recording(several.comparisons[0].baseline, several.comparisons[0], "-")
    for each in several.comparisons:
        yield _recording(each.candidate, each, each.decision.code.replace("_", " "))


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


def _load(at: AtLoad, line: Line) -> tuple[str, ...]:
    cost = at.draft_cost_ratio
    return (
        f"{at.concurrency:.1f}",
        line.recording,
        decimal(at.tokens_per_step),
        seconds(at.step_seconds),
        seconds(at.plain_step_seconds),
        "-" if cost is None else f"{cost.value:.3f}",
        times(at.speedup),
    )


def _fastest(found: Fastest) -> tuple[str, ...]:
    running = f"{found.concurrency:.1f}"
    if found.unjudged:
        return running, "not known", "-", f"may be faster: {', '.join(found.unjudged)}"
    name = found.recording or "no speculation"
    return running, name, times(found.speedup), ", ".join(found.within_chance) or "-"


def _flags(several: Several) -> Iterator[tuple[Flag, str]]:
    """Yield the first flag of each code, and how many recordings have the same: many may have it."""
    codes: dict[str, dict[str, Flag]] = {}
    for each in several.comparisons:
        for flag in each.flags:
            codes.setdefault(flag.code, {}).setdefault(each.candidate.name, flag)
    for found in codes.values():
        name, *others = found
        first = found[name]
        more = f" (and {len(others)} more recordings have this flag)" if others else ""
        yield Flag(first.code, f"{plain(name)}: {first.message}", first.action), more


def _config_flag(advice: Advice) -> str:
    """Return the flag for a shell; JSON has no single quotation marks but those within text."""
    config = json.dumps(advice.speculative_config)
    return "--speculative-config '{}'".format(config.replace("'", "'\\''"))


# --- Terminal --------------------------------------------------------------------------------------------------------


def print_several(console: Console, several: Several) -> None:
    """Print the recordings, the speed-ups by load, the fastest, the flags and the advice."""
    for section in _sections(several):
        print_section(console, section)
    indented(console, Text(_LEGEND, style="dim"))
    flags = list(_flags(several))
    if flags:
        heading(console, FLAGS_TITLE)
    for flag, more in flags:
        print_finding(console, Finding("WARN", flag.code, f"{flag.message}{more}", flag.action))
    advice = several.advice
    title = f"Advice: {advice.code.replace('_', ' ')}"
    print_framed(console, title, advice.headline, advice.reasons, advice.action, style=_STYLE[advice.code])
    if advice.speculative_config is not None:
        # Not wrapped, so that it can be copied.
        console.print(Text(plain(_config_flag(advice))), soft_wrap=True)


# --- Markdown --------------------------------------------------------------------------------------------------------


def as_markdown(several: Several) -> str:
    """Return a report with figures, commands and advice, so that a reader can repeat it."""
    advice = several.advice
    lines = ["# Recordings side by side", "", f"**{escaped(advice.headline)}.**", ""]
    lines += [f"- {escaped(reason)}" for reason in advice.reasons]
    lines += ["", f"Next: {escaped(advice.action)}"]
    if advice.speculative_config is not None:
        lines += ["", *fenced(_config_flag(advice))]
    for section in _sections(several):
        lines += markdown_section(section)
    lines += ["", escaped(_LEGEND), "", "## Settings"]
    for side in (several.comparisons[0].baseline, *(each.candidate for each in several.comparisons)):
        facts = (side.context.hardware, side.context.model, side.context.runtime, side.context.request_parameters)
        words = "; ".join(escaped(fact) for fact in facts if fact)
        lines += ["", f"{escaped(side.name)}: {words or 'not given'}", "", *fenced(side.context.command)]
    if flags := list(_flags(several)):
        lines += ["", f"## {FLAGS_TITLE}", ""]
        lines += [f"- `{flag.code}`: {escaped(flag.message)}{more}. {escaped(flag.action)}" for flag, more in flags]
    return "\n".join(lines) + "\n"
