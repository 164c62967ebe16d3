"""What people read of ``check`` and ``analyze``: tables, bars, a sparkline and a verdict, on a terminal or in a pipe.

The only importer of rich, itself imported only by commands that print (never by ``serve``: its memory is budgeted).
Pipes get no escape sequences, ``NO_COLOR`` no colour, an ASCII-only stream ASCII; text that comes from a log or a
predictor is stripped of control characters. Nothing is told by colour alone.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specdec_exporter.formatting import count, decimal, percent, plain, size
from specdec_exporter.inspection.logstory import Account, Analysis, NotableWindow
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.versions import KnownPitfall
from specdec_exporter.speculation.facts import WarningCount
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.verdict import Level, Verdict, VerdictCode

if TYPE_CHECKING:
    from specdec_exporter.inspection.examination import Examination, Look

PROGRESS_FROM_BYTES = 50_000_000

_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS = "_.-=+*#@"
_BAR_CELLS = 20
_INDENT = (0, 0, 0, 2)

_LEVEL_STYLE: dict[Level, str] = {"PASS": "bold green", "WARN": "bold yellow", "FAIL": "bold red"}
_VERDICT_STYLE: dict[VerdictCode, str] = {
    "healthy": "green",
    "watch": "yellow",
    "not_paying": "red",
    "harmful": "red",
    "broken": "red",
    "idle": "blue",
    "off": "blue",
    "unknown": "blue",
}


def console_for(stream: TextIO) -> Console:
    """Return a console on ``stream`` that takes every string as it is and never fails on a character."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Console(file=stream, markup=False, emoji=False, highlight=False)


def write(stream: TextIO, draw: Callable[[Console], None]) -> None:
    """Write what ``draw`` prints to ``stream`` in one piece; raises BrokenPipeError where nobody reads it any more."""
    console = console_for(stream)
    with console.capture() as captured:  # rich, left to itself, ends the process at a broken pipe
        draw(console)
    stream.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    stream.flush()


@contextmanager
def reading_progress(stream: TextIO, total_bytes: int, *, live: bool) -> Iterator[Callable[[int], None] | None]:
    """Show how far reading is, on a terminal and where it takes long enough; give what is to be told the bytes so far.

    ``live``: the end is not known (a pipe). Gives ``None`` where nothing is shown.
    """
    if not stream.isatty() or (total_bytes < PROGRESS_FROM_BYTES and not live):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn  # noqa: PLC0415  most runs show none

    columns = (TextColumn("Reading"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console_for(stream), transient=True) as progress:
        task = progress.add_task("", total=None if live else total_bytes)
        yield lambda done: progress.update(task, completed=done)


def is_ascii_only(console: Console) -> bool:
    """Whether block characters would come out as question marks."""
    return console.options.ascii_only


def bar(ratio: float | None, cells: int, *, ascii_only: bool) -> str:
    """``ratio`` (0..1) as a bar of at most ``cells`` characters, to an eighth of one; a dash where it is not defined.

    A ratio above 0 always shows something.
    """
    if ratio is None:
        return "-"
    filled = min(max(ratio, 0.0), 1.0) * cells
    if ascii_only:
        return "#" * max(round(filled), 1 if ratio > 0 else 0)
    eighths = max(round(filled * 8), 1 if ratio > 0 else 0)
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def sparkline(ratios: Sequence[float | None], *, ascii_only: bool) -> str:
    """One character for each ratio on the fixed scale 0..1 (so that two lines compare); a blank where undefined."""
    levels = _ASCII_SPARKS if ascii_only else _SPARKS
    top = len(levels) - 1
    return "".join(
        " " if ratio is None else levels[min(top, int(min(max(ratio, 0.0), 1.0) * len(levels)))] for ratio in ratios
    )


def heading(console: Console, text: str) -> None:
    """Print a section title."""
    console.print()
    console.print(Text(text, style="bold"))


def indented(console: Console, renderable: RenderableType) -> None:
    """Print under a section title."""
    console.print(Padding(renderable, _INDENT))


def table(*columns: str, rows: Iterable[Sequence[str]], first_left: bool = True) -> Table:
    """Return a borderless table; the first column to the left, the others to the right, words folded, never cut."""
    result = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=any(columns))
    for index, column in enumerate(columns):
        left = index == 0 and first_left
        result.add_column(column, justify="left" if left else "right", overflow="fold", header_style="dim")
    for row in rows:
        result.add_row(*(Text(plain(cell)) for cell in row))
    return result


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Return names and what is to be said of them, both to the left."""
    result = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    result.add_column(overflow="fold", style="dim", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in rows:
        result.add_row(Text(name), Text(plain(value)))
    return result


def figures_table(columns: Sequence[tuple[str, Figures]]) -> Table:
    """Return the figures of one or several spans side by side; of a single one with the definition beside each.

    Lines of which no column knows anything are left out.
    """
    spans = [figures for _, figures in columns]
    sources = {figures.source for figures in spans}
    drafts = "Drafts"
    if "log" in sources:
        drafts = "Drafts (reconstructed)" if sources == {"log"} else "Drafts (log: reconstructed)"
    lines: list[tuple[str, str, list[str]]] = [
        ("Draft tokens", "", [count(figures.draft_tokens) for figures in spans]),
        ("Accepted tokens", "", [count(figures.accepted_tokens) for figures in spans]),
        ("Acceptance rate", "accepted / draft tokens", [percent(figures.acceptance_ratio) for figures in spans]),
        (drafts, "", [count(figures.drafts) for figures in spans]),
        (
            "Mean acceptance length",
            "1 + accepted / drafts (with the bonus token)",
            [decimal(figures.mean_acceptance_length) for figures in spans],
        ),
        ("Mean draft length", "draft tokens / drafts", [decimal(figures.mean_draft_length) for figures in spans]),
        ("Generation tokens", "", [count(figures.generation_tokens) for figures in spans]),
        (
            "Tokens per step",
            "steps without a draft included",
            [decimal(figures.tokens_per_step) for figures in spans],
        ),
    ]
    known = [line for line in lines if any(cell != "-" for cell in line[2])]
    if len(columns) > 1:
        return table("", *(name for name, _ in columns), rows=[(name, *cells) for name, _, cells in known])
    result = Table.grid(padding=(0, 3, 0, 0))
    result.add_column(overflow="fold")
    result.add_column(justify="right", no_wrap=True)
    result.add_column(overflow="fold", style="dim")
    for name, definition, cells in known:
        result.add_row(name, *cells, definition)
    return result


def breakdown_table(kind: str, parts: Sequence[tuple[str, Figures]]) -> Table:
    """Return one line for each engine or configuration."""
    columns = (kind, "draft tokens", "accepted", "rate", "length")
    return table(
        *columns,
        rows=[
            (
                label,
                count(part.draft_tokens),
                count(part.accepted_tokens),
                percent(part.acceptance_ratio),
                decimal(part.mean_acceptance_length),
            )
            for label, part in parts
        ],
    )


def curve_table(figures: Figures, *, ascii_only: bool, cells: int = _BAR_CELLS) -> Table:
    """Return acceptance by position as bars: of all drafts, and of the drafts that came this far."""
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    result.add_column("pos.", justify="right", no_wrap=True)
    result.add_column("all drafts", min_width=cells, no_wrap=True)
    result.add_column("", justify="right", no_wrap=True)
    result.add_column("conditional", min_width=cells, no_wrap=True)
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


def print_curve(console: Console, figures: Figures, recommended_num_speculative_tokens: int | None) -> None:
    """Print acceptance by position, as wide as there is room for, and what it takes to read it."""
    if not figures.per_position:
        return
    heading(console, "Acceptance by position")
    # the position, two percentages, the gaps between and the indent take 28 columns
    cells = max(6, min(_BAR_CELLS, (console.width - 28) // 2))
    indented(console, curve_table(figures, ascii_only=is_ascii_only(console), cells=cells))
    indented(console, Text("conditional: of the drafts accepted up to the position before", style="dim"))
    if recommended_num_speculative_tokens is not None:
        best = recommended_num_speculative_tokens or "0 (better switched off)"
        indented(console, Text(f"Recommended k: {best}, by this curve and the cost that the policy assumes."))
    if figures.short_drafts:
        offered = "" if figures.mean_draft_length is None else f" ({figures.mean_draft_length:.2f} tokens on average)"
        indented(
            console,
            Text(
                f"Some drafts were shorter than k{offered}: the last positions read too low, since a token "
                "that was never offered counts as not accepted.",
                style="yellow",
            ),
        )


def print_warnings(console: Console, warnings: Sequence[WarningCount]) -> None:
    """Print the known warnings of the log: what each of them means, which releases log it and what to do."""
    if warnings:
        heading(console, "Warnings in the log")
    for warning in warnings:
        _print_known(console, f"{warning.code}, {warning.count:,} x", warning)


def print_pitfalls(console: Console, pitfalls: Sequence[KnownPitfall]) -> None:
    """Print what is known of the release that the log is of."""
    if pitfalls:
        heading(console, "Known of this release")
    for pitfall in pitfalls:
        _print_known(console, pitfall.code, pitfall)


def _print_known(console: Console, label: str, known: WarningCount | KnownPitfall) -> None:
    text = Text(f"{label} (vLLM {known.releases}): ", style="yellow")
    indented(console, text.append(plain(f"{known.meaning} {known.action}"), style=""))


def print_verdict(console: Console, verdict: Verdict) -> None:
    """Print the verdict in a frame: headline, why, what to do next."""
    title = f"Verdict: {verdict.code.replace('_', ' ')}"
    print_framed(console, title, verdict.headline, verdict.reasons, verdict.action, style=_VERDICT_STYLE[verdict.code])


def print_framed(
    console: Console, title: str, headline: str, reasons: Sequence[str], action: str, *, style: str
) -> None:
    """Print a conclusion in a frame of this colour: headline, why, what to do next."""
    lines = [Text(plain(headline), style="bold")]
    lines += [Text(f"- {plain(reason)}") for reason in reasons]
    if action:
        lines.append(Text("Next: ", style="bold").append(plain(action), style=""))
    console.print()
    console.print(Panel(Text("\n").join(lines), title=Text(title), title_align="left", border_style=style))


def print_level(console: Console, level: Level, subject: str, found: str, action: str | None) -> None:
    """Print one line of a check: the level, what was looked at, what was found; under it what to do."""
    head = Text(f"{level}  ", style=_LEVEL_STYLE[level])
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(head, Text(f"{subject}: ", style="bold").append(plain(found), style=""))
    if action:
        grid.add_row("", Text("-> ", style="dim").append(plain(action), style=""))
    console.print(grid)


def print_analysis(
    console: Console, analysis: Analysis, *, counters: ReaderCounters, paths: Sequence[str], min_drafts: int
) -> None:
    """Print what one log says. ``paths`` are its files, ``counters`` what reading them came to."""
    for path in paths:
        console.print(Text("stdin" if path == "-" else plain(path), style="bold"))
    console.print(_reading(analysis, counters))
    _print_configurations(console, analysis)
    judged = analysis.judged
    if judged is not None and judged.figures is not None:
        _print_totals(console, analysis, judged, judged.figures)
        _print_windows(console, judged, min_drafts)
        print_curve(console, judged.figures, judged.recommended_num_speculative_tokens)
    print_warnings(console, analysis.warnings)
    print_pitfalls(console, analysis.pitfalls)
    print_verdict(console, analysis.verdict)


def _reading(analysis: Analysis, counters: ReaderCounters) -> str:
    words = size(counters.bytes)
    if analysis.first_timestamp:
        words += f", {plain(analysis.first_timestamp)} to {plain(analysis.last_timestamp or '')}"
    if counters.parse_errors:
        words += f"; {counters.parse_errors:,} lines of vLLM's statistics could not be read (cut or garbled)"
    if counters.oversized_lines:
        words += f"; {counters.oversized_lines:,} oversized lines skipped"
    return words


def describe_config(config: EngineConfig) -> str:
    """Return what runs, as one phrase."""
    engine = f" ({config.engine_generation.upper()} engine)" if config.engine_generation else ""
    words = [f"vLLM {config.vllm_version or 'of unknown version'}{engine}"]
    if config.served_model_name or config.model:
        words.append(f"model {config.served_model_name or config.model}")
    if config.speculative is False:
        words.append("speculation off")
    if config.method:
        words.append(f"method {config.method}")
    if config.draft_model:
        words.append(f"draft model {config.draft_model}")
    if config.num_speculative_tokens:
        words.append(f"k = {config.num_speculative_tokens}")
    return ", ".join(words)


def _print_configurations(console: Console, analysis: Analysis) -> None:
    heading(console, "Configuration" if len(analysis.accounts) < 2 else "Configurations")
    rows: list[tuple[str, str]] = []
    for number, account in enumerate(analysis.accounts, start=1):
        if account.config is None:
            k = account.num_speculative_tokens
            words = "not in this log (no engine-init line)" + (f"; k = {k} by its lines" if k else "")
        else:
            words = describe_config(account.config)
            if account.since:
                words += f"; since {account.since}"
            if account.starts > 1:
                words += f"; {account.starts} engine starts"
        rows.append((f"{number}.", words))
    indented(console, pairs(rows or [("1.", "not in this log (no engine-init line)")]))


def _print_totals(console: Console, analysis: Analysis, judged: Account, summed: Figures) -> None:
    heading(console, "Totals")
    indented(console, figures_table([("", analysis.total or summed)]))
    if analysis.total is not None:
        heading(console, "By configuration")
        parts = [
            (f"{number}.", account.figures)
            for number, account in enumerate(analysis.accounts, start=1)
            if account.figures is not None
        ]
        indented(console, breakdown_table("", parts))
        number = analysis.accounts.index(judged) + 1
        indented(console, Text(f"From here on: configuration {number}, the last that drafted."))
    if len(judged.engines) > 1:
        heading(console, "By engine")
        indented(console, breakdown_table("engine", judged.engines))
    if judged.lifetime is not None:
        accepted, drafted = judged.lifetime
        words = "The V0 engine logs totals since it started; they are differenced here."
        indented(console, Text(f"{words} Its last line: {accepted:,} of {drafted:,} draft tokens accepted."))


def _print_windows(console: Console, judged: Account, min_drafts: int) -> None:
    heading(console, f"Windows: {judged.windows:,}")
    rows: list[tuple[str, str]] = []
    if judged.percentiles is not None and judged.best is not None and judged.worst is not None:
        low, middle, high = judged.percentiles
        rows.append(("Acceptance", f"P10 {percent(low)}, P50 {percent(middle)}, P90 {percent(high)}"))
        rows.append(("Best", _notable(judged.best, judged)))
        rows.append(("Worst", _notable(judged.worst, judged)))
        rows.append(("Counted", f"{judged.judged_windows:,} windows with at least {min_drafts} drafts"))
    else:
        rows.append(("Acceptance", f"no window has the {min_drafts} drafts that a percentile needs"))
    if judged.thirds is not None:
        first, last = judged.thirds
        points = abs(last - first) * 100
        change = "steady" if points < 5 else f"{'up' if last > first else 'down'} {points:.1f} points"
        rows.append(("Trend", f"first third {percent(first)}, last third {percent(last)}: {change}"))
    if len(judged.history) > 1:
        line = sparkline(judged.history, ascii_only=is_ascii_only(console))
        rows.append(("In order", f"|{line}| 0 to 100%"))
    indented(console, pairs(rows))


def _notable(window: NotableWindow, judged: Account) -> str:
    when = f" at {window.timestamp}" if window.timestamp else ""
    engine = f", engine {window.engine}" if len(judged.engines) > 1 else ""
    return f"{percent(window.acceptance_ratio)}{when}{engine} ({window.draft_tokens:,.0f} draft tokens)"


def print_examination(
    console: Console, examination: Examination, look: Look, engines: Sequence[tuple[str, Figures]]
) -> None:
    """Print what a check found: its lines, the figures, the curve, the warnings of the log and the verdict.

    ``engines`` has each engine's figures since the predictor started.
    """
    for finding in examination.findings:
        print_level(console, finding.level, finding.subject, finding.found, finding.action)
    log = examination.log
    columns: list[tuple[str, Figures]] = []
    if look.window is not None and look.window.acceptance_ratio is not None:
        columns.append(("now" if not look.window.seconds else f"{look.window.seconds:.1f} s", look.window))
    if look.lifetime is not None:
        columns.append(("since start", look.lifetime))
    if log is not None and log.judged is not None and log.judged.figures is not None:
        columns.append(("log", log.judged.figures))
    if columns:
        heading(console, "Figures" if len(columns) > 1 else f"Figures: {columns[0][0]}")
        indented(console, figures_table(columns))
    if len(engines) > 1:
        heading(console, "By engine, since start")
        indented(console, breakdown_table("engine", engines))
    if examination.basis is not None:
        print_curve(console, examination.basis, examination.recommended_num_speculative_tokens)
    if log is not None:
        print_warnings(console, log.warnings)
    print_verdict(console, examination.verdict)
    levels = Counter(finding.level for finding in examination.findings)
    summary = f"{levels['PASS']} passed, {levels['WARN']} to look at, {levels['FAIL']} failed"
    console.print(Text(f"{examination.level}: {summary}", style=_LEVEL_STYLE[examination.level]))
