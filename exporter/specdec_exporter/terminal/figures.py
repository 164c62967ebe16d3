"""Parts that several reports share: figures, acceptance by position, findings, warnings, pitfalls, the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specdec_exporter.formatting import count, decimal, percent, plain
from specdec_exporter.predictor.versions import KnownPitfall, WarningCount
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.verdict import WORDS, Colour, Finding, Level, Verdict
from specdec_exporter.terminal.console import bar, heading, indented, is_ascii_only
from specdec_exporter.terminal.sheet import Sheet, table

_BAR_CELLS = 20
_LEVEL_STYLE: dict[Level, str] = {"PASS": "bold green", "WARN": "bold yellow", "FAIL": "bold red"}
_STYLE: dict[Colour, str] = {"red": "red", "amber": "yellow", "grey": "bright_black", "green": "green"}


# Name, field of the figures, how it is printed, definition.
_LINES: Final[tuple[tuple[str, str, Callable[[float | None], str], str], ...]] = (
    ("Draft tokens", "draft_tokens", count, ""),
    ("Accepted tokens", "accepted_tokens", count, ""),
    ("Acceptance rate", "acceptance_ratio", percent, "accepted / draft tokens"),
    ("Drafts", "drafts", count, ""),
    ("Mean acceptance length", "mean_acceptance_length", decimal, "1 + accepted / drafts (with the bonus token)"),
    ("Mean draft length", "mean_draft_length", decimal, "draft tokens / drafts"),
    ("Generation tokens", "generation_tokens", count, ""),
    ("Tokens per step", "tokens_per_step", decimal, "steps without a draft included"),
)


def figures_table(columns: Sequence[tuple[str, Figures]]) -> Sheet:
    """Return the figures of one or several spans side by side; a single span gets the definitions beside the figures.

    A line is left out if all its figures are unknown.
    """
    spans = [figures for _, figures in columns]
    rows = [
        (name, [shown(getattr(figures, field)) for figures in spans], definition)
        for name, field, shown, definition in _LINES
    ]
    sources = {figures.source for figures in spans}
    if "log" in sources:
        drafts = "Drafts (reconstructed)" if sources == {"log"} else "Drafts (log: reconstructed)"
        rows = [(drafts if name == "Drafts" else name, cells, definition) for name, cells, definition in rows]
    known = [row for row in rows if set(row[1]) != {"-"}]
    if len(columns) > 1:
        return table("", *(name for name, _ in columns), rows=[(name, *cells) for name, cells, _ in known])
    rows_with_notes = tuple((name, *cells, definition) for name, cells, definition in known)
    return Sheet(("", "", ""), rows_with_notes, right=True, notes=True)


def breakdown_table(kind: str, parts: Sequence[tuple[str, Figures]]) -> Sheet:
    """Return one line for each engine or configuration."""
    rows = [
        (
            label,
            count(part.draft_tokens),
            count(part.accepted_tokens),
            percent(part.acceptance_ratio),
            decimal(part.mean_acceptance_length),
        )
        for label, part in parts
    ]
    return table(kind, "draft tokens", "accepted", "rate", "length", rows=rows)


def spread_table(spread: Mapping[str, Mapping[str, float]]) -> Sheet:
    """Return percentiles of acceptance, by what is counted once."""
    ranks = next(iter(spread.values()))
    rows = [[counted, *map(percent, percentiles.values())] for counted, percentiles in spread.items()]
    return table("counted by", *map(str.upper, ranks), rows=rows)


_CURVE: Final = ("pos.", "all drafts", "conditional")


def _curve(figures: Figures) -> Iterator[tuple[str, str, str]]:
    for position, (rate, conditional) in enumerate(zip(figures.per_position, figures.conditional, strict=False)):
        yield str(position), percent(rate), percent(conditional)


def curve_table(figures: Figures, *, ascii_only: bool, cells: int) -> Table:
    """Return acceptance by position as bars: per draft, and per draft that was accepted up to the position before."""
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    position_head, *heads = _CURVE
    result.add_column(position_head, justify="right", no_wrap=True)
    for head in heads:
        result.add_column(head, min_width=cells, no_wrap=True)
        result.add_column("", justify="right", no_wrap=True)
    for position, (rate, conditional) in enumerate(zip(figures.per_position, figures.conditional, strict=False)):
        result.add_row(
            str(position),
            Text(bar(rate, cells, ascii_only=ascii_only), style="cyan"),
            percent(rate),
            Text(bar(conditional, cells, ascii_only=ascii_only), style="magenta"),
            percent(conditional),
        )
    return result


def print_curve(console: Console, figures: Figures) -> None:
    """Print acceptance by position with explanations, as wide as the console allows."""
    if not figures.per_position:
        return
    # the position, two percentages, the gaps between and the indent take 28 columns
    cells = min(_BAR_CELLS, (console.width - 28) // 2)
    if cells < len(_CURVE[-1]):
        curve: RenderableType = table(*_CURVE, rows=_curve(figures))
    else:
        curve = curve_table(figures, ascii_only=is_ascii_only(console), cells=cells)
    note = "conditional: share of the drafts accepted up to the position before"
    heading(console, "Acceptance by position", curve, note)
    if figures.short_drafts:
        offered = "" if figures.mean_draft_length is None else f" ({figures.mean_draft_length:.2f} tokens on average)"
        words = (
            f"Some drafts were shorter than k{offered}. The last positions read too low, because a token that was not "
            "offered counts as not accepted."
        )
        indented(console, Text(words, style="yellow"))


def print_known(console: Console, warnings: Sequence[WarningCount], pitfalls: Sequence[KnownPitfall] = ()) -> None:
    """Print the known warnings in the log and pitfalls of its release: meaning, releases and action."""
    labelled = [(f"{warning.code}, {warning.count:,} x", warning) for warning in warnings]
    for title, parts in (
        ("Warnings in the log", labelled),
        ("Known pitfalls of this release", [(pitfall.code, pitfall) for pitfall in pitfalls]),
    ):
        if parts:
            heading(console, title)
        for label, known in parts:
            text = Text(f"{label} (vLLM {known.releases}): ", style="yellow")
            indented(console, text.append(plain(f"{known.meaning} {known.action}"), style=""))


def print_verdict(console: Console, verdict: Verdict) -> None:
    """Print the verdict in a frame: headline, reasons, next action."""
    word = WORDS[verdict.code]
    lines = [Text(plain(verdict.headline), style="bold")]
    lines += [Text(f"- {plain(reason)}") for reason in verdict.reasons]
    if verdict.action:
        lines.append(Text("Next: ", style="bold").append(plain(verdict.action), style=""))
    console.print()
    console.print(
        Panel(
            Text("\n").join(lines),
            title=Text(f"Verdict: {word.title.lower()}"),
            title_align="left",
            border_style=_STYLE[word.colour],
        )
    )


def print_summary(console: Console, level: Level, findings: Iterable[Level]) -> None:
    """Print the level of a report, and how many findings there are of each."""
    levels = Counter(findings)
    summary = f"{levels['PASS']} passed, {levels['WARN']} to look at, {levels['FAIL']} failed"
    console.print(Text(f"{level}: {summary}", style=_LEVEL_STYLE[level]))


def print_finding(console: Console, finding: Finding) -> None:
    """Print a finding: level, subject and what was found; below it the action."""
    head = Text(f"{finding.level}  ", style=_LEVEL_STYLE[finding.level])
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    words = finding.found.removeprefix(f"{finding.subject.lower()} ")  # not "Acceptance: acceptance 50%"
    grid.add_row(head, Text(f"{finding.subject}: ", style="bold").append(plain(words), style=""))
    if finding.action:
        grid.add_row("", Text("-> ", style="dim").append(plain(finding.action), style=""))
    console.print(grid)
