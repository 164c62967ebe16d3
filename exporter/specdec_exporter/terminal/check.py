"""The report of ``check``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from specdec_exporter.inspection.examination import Examination, Look
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.terminal.console import heading
from specdec_exporter.terminal.figures import (
    breakdown_table,
    figures_table,
    print_curve,
    print_finding,
    print_known,
    print_summary,
    print_verdict,
)


def print_examination(
    console: Console, examination: Examination, look: Look, engines: Sequence[tuple[str, Figures]]
) -> None:
    """Print findings, figures, acceptance by position, the warnings in the log and the verdict.

    ``engines`` are the figures of each engine since the predictor started.
    """
    for finding in examination.findings:
        print_finding(console, finding)
    log = examination.log
    columns: list[tuple[str, Figures]] = []
    if look.window is not None and look.window.drafted:
        columns.append(("now" if not look.window.seconds else f"{look.window.seconds:.1f} s", look.window))
    if look.lifetime is not None:
        columns.append(("since start", look.lifetime))
    if log is not None and log.judged is not None and log.judged.figures is not None:
        columns.append(("log", log.judged.figures))
    if columns:
        heading(console, "Figures" if len(columns) > 1 else f"Figures: {columns[0][0]}", figures_table(columns))
    if len(engines) > 1:
        heading(console, "By engine, since start", breakdown_table("engine", engines))
    if examination.basis is not None:
        print_curve(console, examination.basis)
    if log is not None:
        print_known(console, log.warnings)
    print_verdict(console, examination.verdict)
    print_summary(console, examination.level, (finding.level for finding in examination.findings))
