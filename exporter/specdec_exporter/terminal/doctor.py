"""The report of ``doctor``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from specdec_exporter.formatting import percent, plain, size
from specdec_exporter.inspection.doctor import Diagnosis, Report, Stage, Suggestion
from specdec_exporter.speculation.memory import MemoryBudget
from specdec_exporter.speculation.verdict import Finding
from specdec_exporter.terminal.console import heading, indented, pairs
from specdec_exporter.terminal.figures import LEVEL_STYLE, print_finding

_STAGES: dict[Stage, str] = {
    "before": "Before the start: arguments",
    "log": "After the start: log",
    "running": "Running: metrics",
}
_UNDER_LEVEL = (0, 0, 0, 6)


def print_report(console: Console, report: Report) -> None:
    """Print what was looked at, the findings by stage, then what is good to know and what cannot be seen."""
    console.print(Text("What was looked at", style="bold"))
    indented(console, pairs(report.looked_at.items()))
    for stage, title in _STAGES.items():
        findings = [finding for finding in report.findings if finding.stage == stage]
        if findings:
            heading(console, title)
        for finding in findings:
            _print(console, finding)
    if report.memory is not None:
        heading(console, "Memory of the GPUs")
        indented(console, pairs(_memory_words(report.memory)))
    if report.suggestion is not None:
        _print_suggestion(console, report.suggestion)
    _print_notes(console, report.notes)
    heading(console, "What this cannot see")
    indented(console, _bullets(report.checklist))
    levels = Counter(finding.level for finding in report.findings)
    summary = f"{levels['PASS']} passed, {levels['WARN']} to look at, {levels['FAIL']} failed"
    console.print()
    console.print(Text(f"{report.level}: {summary}", style=LEVEL_STYLE[report.level]))


def _print(console: Console, finding: Diagnosis) -> None:
    print_finding(console, Finding(finding.level, finding.subject, finding.found, finding.action))
    if finding.code is not None and finding.sources:
        origin = plain(f"{finding.code}: {', '.join(finding.sources)}; {finding.checked}")
        console.print(Padding(Text(origin, style="dim"), _UNDER_LEVEL))


def _memory_words(memory: MemoryBudget) -> list[tuple[str, str]]:
    draft = memory.draft_bytes
    share = "" if not draft else f", {percent(draft / memory.gpu_bytes)} of the memory"
    return [
        ("vLLM may use", size(round(memory.budget_bytes))),
        ("target", size(round(memory.target_bytes))),
        ("draft", "not known: give --draft-path" if draft is None else f"{size(round(draft))}{share}"),
        ("left", f"{size(max(0, round(memory.left_bytes)))} for KV cache, activations and CUDA graphs"),
    ]


def _print_suggestion(console: Console, suggestion: Suggestion) -> None:
    heading(console, "Speculation is off. To try it, start with")
    config = json.dumps(suggestion.speculative_config)
    console.print(Text(f"  --speculative-config '{config}'"), soft_wrap=True)  # to be copied
    indented(console, Text(plain(f"{suggestion.why} It needs: {suggestion.needs}")))


def _print_notes(console: Console, notes: Sequence[Diagnosis]) -> None:
    if notes:
        heading(console, "Good to know")
        texts = (f"{note.found} {note.action or ''}" for note in notes)
        indented(console, _bullets([f"{text.strip()} ({note.code})" for text, note in zip(texts, notes, strict=True)]))


def _bullets(lines: Sequence[str]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("-", Text(plain(line)))
    return grid
