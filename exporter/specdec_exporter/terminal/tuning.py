"""The output of ``tune``, and of ``compare`` with more than two files: text of 80 columns, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from specdec_exporter.comparison.advice import Advice, AdviceCode, BestK
from specdec_exporter.comparison.decision import times
from specdec_exporter.comparison.keeping import Rule, RuleCode
from specdec_exporter.comparison.loads import AtLoad
from specdec_exporter.comparison.sweep import Row, names_of
from specdec_exporter.comparison.tuning import Recorded, Setting, Tuning, TuningFlag
from specdec_exporter.formatting import decimal, percent, plain, seconds
from specdec_exporter.speculation.cost import StepCost
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.verdict import Finding
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
)

_STYLE: dict[AdviceCode, str] = {
    "use": "green",
    "off": "red",
    "no_gain": "yellow",
    "record_more": "yellow",
    "undecided": "blue",
    "unknown": "blue",
}
_OUTCOMES = {
    "faster": "better",
    "slower": "worse",
    "tail_worse": "worse tail",
    "no_difference": "no difference",
    "inconclusive": "not shown",
}
_CONTEXT = ("hardware", "model", "runtime", "request_parameters")
_RECORDING_COLUMNS = ("recording", "TTFT", "tokens/s", "TPOT", "length", "accepted", "speed-up")
_COST_COLUMNS = ("running", "k", "acc.", "length", "tokens", "step", "off", "c", "speed-up")
_BEST_COLUMNS = ("running", "best k", "cost of a draft", "speed-up by k")
_KEEP: dict[RuleCode, str] = {"keep": "yes", "do_not_keep": "no", "undecided": "open"}
_ROW_COLUMNS = ("", "TTFT", "tok/s", "length", "rate", "speed-up", "keep")
_RULE_COLUMNS = ("recording", "against", "TTFT", "TPOT", "throughput", "decision")
_CONDITIONS_TITLE = "Where it pays"
_LEGEND = (
    "running: requests in decode at a time, per engine. acc.: acceptance rate; length: mean acceptance length; tokens: "
    "per step, steps without a draft included. step: mean time of a step of one request; off: without "
    "speculation, at like load. c: cost of one more draft token / a step without drafts, which is the acceptance that "
    "breaks even. speed-up: tokens per step x off / step, with its 95 % interval. ~ is estimated from means and "
    "decides nothing."
)


def write_tuning(stream: TextIO, tuning: Tuning, output: Output) -> None:
    """Write ``tuning`` to ``stream``."""
    if output == "text":
        write(stream, lambda console: print_tuning(console, tuning))
        return
    text = as_markdown(tuning) if output == "markdown" else as_json(tuning)
    stream.buffer.write(text.encode())  # always UTF-8, because a file or a program reads it
    stream.flush()


# --- Cells, for text and Markdown -------------------------------------------------------------------------------------


def _sections(tuning: Tuning) -> Iterator[Section]:
    yield Section("Context", _context(tuning), ("", ""))
    yield Section("Recordings", list(_recordings(tuning)), _RECORDING_COLUMNS)
    for title, settings in _by_method(tuning):
        yield Section(f"Cost by load: {title}", list(_costs(settings)), _COST_COLUMNS)
    for best in tuning.best:
        if best.by_load:
            title = f"Best k by load: {_title(tuning, best.workload, best.method)}"
            yield Section(title, list(map(_best, best.by_load)), _BEST_COLUMNS)
    if rules := [(each, each.rule) for each in tuning.recordings if each.rule]:
        yield Section("Keep only if all improve", [_rule(each, rule) for each, rule in rules], _RULE_COLUMNS)
    if _has_conditions(tuning):
        cells = [_row(name, row) for name, row in zip(names_of(tuning.rows), tuning.rows, strict=True)]
        yield Section("By workload, temperature (T) and rate; off -> on", cells, _ROW_COLUMNS)


def _row(name: str, row: Row) -> tuple[str, ...]:
    first, rate = row.time_to_first_token_seconds, row.generation_tokens_per_second
    return (
        name.replace("temperature ", "T "),
        f"{seconds(first.baseline)} -> {seconds(first.candidate)}",
        f"{_whole(rate.baseline)} -> {_whole(rate.candidate)}",
        decimal(row.mean_acceptance_length.value) if row.mean_acceptance_length else "-",
        _share(row.acceptance_ratio),
        times(row.speedup),
        _KEEP[row.code],
    )


def _share(found: Estimate | None) -> str:
    """``72% (69 to 74)``, in whole percent."""
    if found is None:
        return "-"
    low, high = ("?" if bound is None else f"{bound * 100:.0f}" for bound in (found.low, found.high))
    return f"{found.value:.0%} ({low} to {high})"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _conclusions(tuning: Tuning) -> list[str]:
    """Return for each setting in several conditions where it pays and whether to keep it."""
    several = len({limit.workload for limit in tuning.limits}) > 1
    names = [f" ({plain(limit.workload or 'requests not given')})" if several else "" for limit in tuning.limits]
    limits = [f"{limit.headline}{name}" for limit, name in zip(tuning.limits, names, strict=True)]
    return [*limits, *(each.headline for each in tuning.overall if _has_conditions(tuning))]


def _has_conditions(tuning: Tuning) -> bool:
    """Whether there are several workloads, temperatures or rates, and not only several k."""
    return bool(tuning.limits) or len({(row.workload, row.temperature) for row in tuning.rows}) > 1


def _context(tuning: Tuning) -> list[tuple[str, ...]]:
    """Return the facts of all recordings; those that differ, with the names of the recordings."""
    found: list[tuple[str, ...]] = []
    for key in _CONTEXT:
        names: dict[str | None, list[str]] = {}
        for each in tuning.recordings:
            names.setdefault(getattr(each.recording.context, key), []).append(each.recording.name)
        values = [
            (value or "not given") + (f" ({', '.join(having)})" if len(names) > 1 else "")
            for value, having in names.items()
        ]
        found.append((key.replace("_", " "), "; ".join(values)))
    return found


def _recordings(tuning: Tuning) -> Iterator[tuple[str, ...]]:
    for each in tuning.recordings:
        side, whole = each.recording, each.whole
        rate = side.generation_tokens_per_second
        yield (
            side.name,
            seconds(each.mean_time_to_first_token_seconds),
            "-" if rate is None else f"{rate:,.1f}",
            seconds(each.mean_time_per_output_token_seconds),
            decimal(whole.mean_acceptance_length),
            percent(whole.acceptance_ratio),
            _speedup(whole),
        )


def _by_method(tuning: Tuning) -> Iterator[tuple[str, list[Setting]]]:
    found: dict[str, list[Setting]] = {}
    for each in tuning.settings:
        found.setdefault(_title(tuning, each.workload, each.method), []).append(each)
    yield from found.items()


def _title(tuning: Tuning, workload: str | None, method: str | None) -> str:
    """Return the method, with the workload if there are several."""
    name = method or "method not known"
    several = len({each.workload for each in tuning.settings}) > 1
    return f"{name}, {workload or 'requests not given'}" if several else name


def _costs(settings: list[Setting]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each load and k, then one for each k over all loads."""
    rows = [(load, each) for each in settings for load in each.by_load]
    rows.sort(key=lambda row: row[0].concurrency_bound or 0)
    for load, each in (*rows, *((each.whole, each) for each in settings)):
        yield (
            f"{load.concurrency:.1f}" if load.concurrency_bound and load.concurrency else "all",
            str(each.num_speculative_tokens or "?"),
            percent(load.acceptance_ratio),
            decimal(load.mean_acceptance_length),
            decimal(load.tokens_per_step),
            seconds(load.step_seconds),
            seconds(load.plain_step_seconds),
            _cost(load),
            _speedup(load),
        )


def _cost(load: AtLoad) -> str:
    found = load.draft_cost_ratio
    return "-" if found is None else f"{'~' if load.estimated else ''}{found.value:.3f}"


def _speedup(load: AtLoad) -> str:
    return f"{'~' if load.estimated and load.speedup else ''}{times(load.speedup)}"


def _best(found: BestK) -> tuple[str, ...]:
    choice = found.choice
    best = " or ".join(map(str, choice.candidates)) + "?" if choice.recommended is None else str(choice.recommended)
    notes = ", within chance" if choice.within_chance else ", try one more" if choice.try_more else ""
    cost = " or ".join(map(_step_cost, found.costs))
    speedups = ", ".join(f"{each.k}: {_range(each.low, each.high)}" for each in choice.expected)
    return f"{found.concurrency:.1f}", best + notes, cost, speedups


def _step_cost(cost: StepCost) -> str:
    parts = [f"{cost.fixed:.2f}"] if cost.fixed else []
    parts += [f"{cost.marginal:.3f} k"] if cost.marginal else []
    return " + ".join(parts) or "0"


def _range(low: float, high: float) -> str:
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}-{high:.2f}"


def _rule(recorded: Recorded, rule: Rule) -> tuple[str, ...]:
    outcomes = (rule.time_to_first_token, rule.time_per_output_token, rule.throughput)
    words = (_OUTCOMES.get(outcome, "not judged") for outcome in outcomes)
    return recorded.recording.name, rule.against, *words, rule.code.replace("_", " ")


# --- Terminal ---------------------------------------------------------------------------------------------------------


def print_tuning(console: Console, tuning: Tuning) -> None:
    """Print the recordings, the costs by load, the best k, the flags and the advice for each workload."""
    for section in _sections(tuning):
        print_section(console, section)
    indented(console, Text(_LEGEND, style="dim"))
    if tuning.flags:
        heading(console, FLAGS_TITLE)
    for flag, others in _by_code(tuning.flags):
        print_finding(console, Finding("WARN", flag.code, f"{_message(flag)}{others}", flag.action))
    if conclusions := _conclusions(tuning):
        heading(console, _CONDITIONS_TITLE)
        for each in conclusions:
            indented(console, Text(each))
    for advice in tuning.advice:
        title = f"Advice: {advice.code.replace('_', ' ')}{_for(tuning, advice)}"
        print_framed(console, title, advice.headline, advice.reasons, advice.action, style=_STYLE[advice.code])
        if advice.speculative_config is not None:
            # Not wrapped, so that it can be copied.
            console.print(Text(plain(_flag(advice))), soft_wrap=True)


def _by_code(flags: Sequence[TuningFlag]) -> Iterator[tuple[TuningFlag, str]]:
    """Yield the first flag of each code, and how many recordings have the same: forty recordings may have it."""
    codes: dict[str, list[TuningFlag]] = {}
    for flag in flags:
        codes.setdefault(flag.code, []).append(flag)
    for first, *others in codes.values():
        names = {flag.recording for flag in others if flag.recording != first.recording}
        yield first, f" (and {len(names)} more recordings have this flag)" if names else ""


def _message(flag: TuningFlag) -> str:
    """Return the message with the recording's name, unless it begins with it."""
    name = plain(flag.recording or "")
    return flag.message if not name or flag.message.startswith(name) else f"{name}: {flag.message}"


def _for(tuning: Tuning, advice: Advice) -> str:
    return f", {plain(advice.workload or 'requests not given')}" if len(tuning.advice) > 1 else ""


def _flag(advice: Advice) -> str:
    """Return the flag for a shell; JSON has no single quotation marks but those within text."""
    config = json.dumps(advice.speculative_config)
    return "--speculative-config '{}'".format(config.replace("'", "'\\''"))


# --- Markdown ---------------------------------------------------------------------------------------------------------


def as_markdown(tuning: Tuning) -> str:
    """Return a report with settings, commands, figures and advice, so that a reader can repeat it."""
    lines = ["# Recordings side by side"]
    for advice in tuning.advice:
        lines += ["", f"**{escaped(advice.headline)}{escaped(_for(tuning, advice))}.**", ""]
        lines += [f"- {escaped(reason)}" for reason in advice.reasons]
        lines += ["", f"Next: {escaped(advice.action)}"]
        if advice.speculative_config is not None:
            lines += ["", *fenced(_flag(advice))]
    for section in _sections(tuning):
        lines += markdown_section(section)
    lines += ["", escaped(_LEGEND)]
    if conclusions := _conclusions(tuning):
        lines += ["", f"## {_CONDITIONS_TITLE}", "", *(f"- {escaped(each)}" for each in conclusions)]
    lines += ["", "## Rule", ""]
    for each in tuning.recordings:
        if each.rule:
            lines += [f"- {escaped(each.recording.name)}: {escaped(each.rule.headline)}"]
            lines += [f"  - {escaped(reason)}" for reason in each.rule.reasons]
    lines += ["", "## Commands"]
    for each in tuning.recordings:
        lines += ["", f"{escaped(each.recording.name)}:", "", *fenced(each.recording.context.command)]
    if tuning.flags:
        lines += ["", f"## {FLAGS_TITLE}", ""]
        for flag, others in _by_code(tuning.flags):
            lines += [f"- `{flag.code}`: {escaped(_message(flag))}{others}. {escaped(flag.action)}"]
    return "\n".join(lines) + "\n"
