"""The report of ``doctor``."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from specdec_exporter.doctor.diagnosis import Diagnosis, Report, Stage
from specdec_exporter.formatting import plain
from specdec_exporter.speculation.verdict import Finding
from specdec_exporter.terminal.console import heading, indented
from specdec_exporter.terminal.figures import print_finding, print_summary
from specdec_exporter.terminal.sheet import pairs, table

_STAGES: dict[Stage, str] = {
    "before": "Before the start: arguments",
    "log": "After the start: log",
    "running": "Running: metrics",
}
_UNDER_LEVEL = (0, 0, 0, 6)


def print_report(console: Console, report: Report) -> None:
    """Print what was looked at, the findings by stage, then what is good to know."""
    console.print(Text("What was looked at", style="bold"))
    indented(console, pairs(report.looked_at.items()))
    for stage, title in _STAGES.items():
        findings = [finding for finding in report.findings if finding.stage == stage]
        if findings:
            heading(console, title)
        for finding in findings:
            _print(console, finding)
    if report.notes:
        notes = [("-", f"{note.found} {note.action or ''}".strip() + f" ({note.code})") for note in report.notes]
        heading(console, "Good to know", table("", "", rows=notes, gap=1, numbers=False))
    console.print()
    print_summary(console, report.level, (finding.level for finding in report.findings))
    for words in report.not_checked:
        console.print(Text(plain(f"Not checked: {words}."), style="dim"))


def _print(console: Console, finding: Diagnosis) -> None:
    print_finding(console, Finding(finding.level, finding.subject, finding.found, finding.action))
    if finding.code is not None:
        origin = f"{finding.code}: {', '.join(finding.sources)}; {finding.checked}" if finding.sources else finding.code
        console.print(Padding(Text(plain(origin), style="dim"), _UNDER_LEVEL))
