"""The report of ``analyze``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from specdec_exporter.formatting import percent, plain, size
from specdec_exporter.inspection.account import Account, NotableWindow
from specdec_exporter.inspection.examination import failed_starts, sampling_words
from specdec_exporter.inspection.logstory import Analysis
from specdec_exporter.inspection.spread import FEWEST_PARTS
from specdec_exporter.predictor.log.counters import ReaderCounters, on_trust, unreadable
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.log.speculator import Speculator
from specdec_exporter.predictor.log.start import summarise
from specdec_exporter.speculation.figures import PARTLY_VERIFIED, Figures
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.console import heading, indented, is_ascii_only, sparkline
from specdec_exporter.terminal.figures import (
    breakdown_table,
    figures_table,
    print_curve,
    print_finding,
    print_known,
    print_verdict,
    spread_table,
)
from specdec_exporter.terminal.sheet import pairs

_BESIDE_HISTORY: Final = 26  # the indent, the name, the gap, and the scale


def print_analysis(
    console: Console,
    analysis: Analysis,
    *,
    counters: ReaderCounters,
    paths: Sequence[str],
) -> None:
    """Print what one log says. ``paths`` are its files; ``counters`` are the counts of its reader."""
    for path in paths:
        console.print(Text("stdin" if path == "-" else plain(path), style="bold"))
    console.print(_reading(analysis, counters))
    for finding in failed_starts(analysis):
        print_finding(console, finding)
    for words in (unreadable(counters), *on_trust(counters)):
        if words:
            console.print(Text(words))
    _print_configurations(console, analysis)
    judged = analysis.judged
    if judged is not None and judged.figures is not None:
        _print_totals(console, analysis, judged, judged.figures)
        _print_windows(console, judged)
        print_curve(console, judged.figures)
    print_known(console, analysis.warnings, analysis.pitfalls)
    print_verdict(console, analysis.verdict)


def _reading(analysis: Analysis, counters: ReaderCounters) -> str:
    words = size(counters.bytes)
    if analysis.first_timestamp:
        words += f", {plain(analysis.first_timestamp)} to {plain(analysis.last_timestamp or '')}"
    if counters.oversized_lines:
        words += f"; {counters.oversized_lines:,} oversized lines skipped"
    return words


def describe_config(config: EngineConfig, said: Speculator) -> str:
    """Return the configuration, and what drafts, as one phrase."""
    engine = f" ({config.engine_generation.upper()} engine)" if config.engine_generation else ""
    words = [f"vLLM {config.vllm_version or 'of unknown version'}{engine}"]
    if config.served_model_name or config.model:
        words.append(f"model {config.served_model_name or config.model}")
    if said.on is False:
        words.append("speculation off")
    words += _drafter(said)
    words += [f"k = {said.num_speculative_tokens}"] if said.num_speculative_tokens else []
    return ", ".join(words)


def _drafter(said: Speculator) -> list[str]:
    words = [f"method {said.method}"] if said.method else []
    return [*words, f"draft model {said.draft_model}"] if said.draft_model else words


def _without_config(said: Speculator) -> str:
    """Say what is known without an engine-init line, and from where."""
    by_lines = said.num_speculative_tokens_by == "curve"
    k = [f"k = {said.num_speculative_tokens}"] if said.num_speculative_tokens else []
    given = [*_drafter(said), *([] if by_lines else k)]
    words = [f"no engine-init line; by its arguments {', '.join(given)}" if given else _NOT_IN_LOG]
    return "; ".join([*words, *(f"{each} from its lines" for each in k if by_lines)])


_NOT_IN_LOG: Final = "not in this log (no engine-init line)"


def _print_configurations(console: Console, analysis: Analysis) -> None:
    rows: list[tuple[str, str]] = []
    for number, account in enumerate(analysis.accounts, start=1):
        if account.config is None:
            words = _without_config(account.speculator)
        else:
            described = describe_config(account.config, account.speculator)
            words = ", ".join([described, *sampling_words(account.deployment)])
            if account.since:
                words += f"; since {account.since}"
            if account.starts > 1:
                words += f"; {account.starts} engine starts"
        rows.append((f"{number}.", words))
    rows = rows or [("1.", _without_config(analysis.start.speculator()))]
    if (started := summarise(analysis.start)) is not None:
        rows.append(("Start", started.text if len(analysis.accounts) < 2 else f"the last one: {started.text}"))
    heading(console, "Configuration" if len(analysis.accounts) < 2 else "Configurations", pairs(rows))


def _print_totals(console: Console, analysis: Analysis, judged: Account, summed: Figures) -> None:
    heading(console, "Totals", figures_table([("", analysis.total or summed)]))
    if analysis.total is not None:
        parts = [
            (f"{number}.", account.figures)
            for number, account in enumerate(analysis.accounts, start=1)
            if account.figures is not None
        ]
        number = analysis.accounts.index(judged) + 1
        note = f"The rest is about configuration {number}, the last one that drafted."
        heading(console, "By configuration", breakdown_table("", parts), note)
    if len(judged.engines) > 1:
        heading(console, "By engine", breakdown_table("engine", judged.engines))
    if judged.lifetime is not None:
        accepted, drafted = judged.lifetime
        words = "The V0 engine logs totals since its start; this report shows their differences."
        indented(console, f"{words} The last line: {accepted:,} of {drafted:,} draft tokens accepted.")


def _print_windows(console: Console, judged: Account) -> None:
    min_drafts = load_policy().min_drafts
    heading(console, f"Windows: {judged.windows:,}")
    rows: list[tuple[str, str]] = []
    spread = judged.spread
    if judged.best is not None and judged.worst is not None:
        counted = f"{spread.parts:,} windows with at least {min_drafts} drafts"
        if spread.by_part:
            indented(console, spread_table({"window": spread.by_part, "draft": spread.by_draft}))
            indented(console, _OF_WINDOWS)
        else:
            counted += f"; percentiles need {FEWEST_PARTS}"
        rows.append(("Best", _notable(judged.best, judged)))
        rows.append(("Worst", _notable(judged.worst, judged)))
        rows.append(("Counted", counted))
    elif judged.deployment.adaptive_verification:
        rows.append(("Acceptance", PARTLY_VERIFIED))
    else:
        rows.append(("Acceptance", f"a percentile needs a window with {min_drafts} drafts; this log has none"))
    if judged.thirds is not None:
        first, last = judged.thirds
        points = abs(last - first) * 100
        change = "steady" if points < 5 else f"{'up' if last > first else 'down'} {points:.1f} points"
        rows.append(("Trend", f"first third {percent(first)}, last third {percent(last)}: {change}"))
    if len(judged.history) > 1:
        history = _in_parts(judged.history, max(1, console.width - _BESIDE_HISTORY))
        line = sparkline(history, ascii_only=is_ascii_only(console))
        rows.append(("In order", f"|{line}| 0 to 100%"))
    indented(console, pairs(rows))


def _in_parts(history: Sequence[float | None], most: int) -> Sequence[float | None]:
    """Return a history in at most so many parts: neighbours are averaged."""
    while len(history) > most:
        couples = [[ratio for ratio in history[at : at + 2] if ratio is not None] for at in range(0, len(history), 2)]
        history = [sum(couple) / len(couple) if couple else None for couple in couples]
    return history


_OF_WINDOWS: Final = (
    "These are spreads of windows, not of requests: the more requests share a window, the less it differs."
)


def _notable(window: NotableWindow, judged: Account) -> str:
    when = f" at {window.timestamp}" if window.timestamp else ""
    engine = f", engine {window.engine}" if len(judged.engines) > 1 else ""
    return f"{percent(window.acceptance_ratio)}{when}{engine} ({window.draft_tokens:,.0f} draft tokens)"
