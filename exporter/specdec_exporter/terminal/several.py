"""The output of ``compare`` with three or more recordings: text of 80 columns, Markdown for a report, JSON."""

from __future__ import annotations

import json
from typing import Any, Final, TextIO

from specdec_exporter.baseline.file import Context
from specdec_exporter.comparison.advice import AdviceCode
from specdec_exporter.comparison.compare import Comparison, Side
from specdec_exporter.comparison.likeness import Flag
from specdec_exporter.comparison.several import Several
from specdec_exporter.comparison.traffic import Sli
from specdec_exporter.formatting import count, percent, plain, seconds
from specdec_exporter.speculation.chance import times
from specdec_exporter.terminal.comparison import describe_speculation
from specdec_exporter.terminal.sections import Output, Report, Section, write_report

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
    """Write ``several`` to ``stream``; ``verbose`` adds a note and recordings to the text."""
    write_report(stream, several, output, report, verbose=verbose)


def report(several: Several) -> Report:
    """Return what a reader is told of several recordings: what to run comes first."""
    advice = several.advice
    sides = [several.comparisons[0].baseline, *(comparison.candidate for comparison in several.comparisons)]
    return Report(
        title="Recordings side by side",
        headline=advice.headline,
        style=_STYLE[advice.code],
        outlook=advice.outlook,
        action=advice.action,
        to_copy=None if advice.speculative_config is None else _config_flag(advice.speculative_config),
        note=advice.note,
        flags=_flags(several),
        sections=[_speedups(several)] if several.loads else [],
        legends=[_LEGEND] if several.loads else [],
        details=[_recordings(several)],
        details_legend=_RECORDINGS_LEGEND,
        commands_title="Settings",
        commands=[(f"{side.name}: {_setting(side.context)}", side.context.command) for side in sides],
    )


# --- Cells -----------------------------------------------------------------------------------------------------------


def _speedups(several: Several) -> Section:
    names = [comparison.candidate.name for comparison in several.comparisons]
    rows = []
    for load in several.loads:
        best = load.fastest if load.speedup(load.fastest) > 1.0 and not load.unjudged else None
        cells = (times(load.speedups.get(name)) + (" *" if name == best else "") for name in names)
        rows.append(("same req/s" if load.compared == "same_arrivals" else f"{load.concurrency:.1f}", *cells))
    return Section("Speed-up by load", rows, ("load", *names))


def _recordings(several: Several) -> Section:
    first, *_ = several.comparisons
    rows = [_recording(first.baseline, first, "-")]
    rows += [
        _recording(comparison.candidate, comparison, comparison.decision.code.replace("_", " "))
        for comparison in several.comparisons
    ]
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
    pair = next(latency.mean_seconds for latency in comparison.latencies if latency.sli == sli)
    return seconds(pair.baseline if side is comparison.baseline else pair.candidate)


def _flags(several: Several) -> list[Flag]:
    """Return the first flag of each code, which says how many recordings have the same: many may have it."""
    flags = []
    codes: dict[str, dict[str, Flag]] = {}
    for comparison in several.comparisons:
        for flag in comparison.flags:
            codes.setdefault(flag.code, {}).setdefault(comparison.candidate.name, flag)
    for same in codes.values():
        name, *others = same
        first = same[name]
        more = f" (and {len(others)} more recordings have this flag)" if others else ""
        flags.append(Flag(first.code, f"{plain(name)}: {first.message}{more}", first.action))
    return flags


def _config_flag(config: dict[str, Any]) -> str:
    """Return the flag for a shell; JSON has no single quotation marks but those within text."""
    return "--speculative-config '{}'".format(json.dumps(config).replace("'", "'\\''"))


def _setting(context: Context) -> str:
    facts = (context.hardware, context.model, context.runtime, context.request_parameters)
    return "; ".join(filter(None, facts)) or "not given"
