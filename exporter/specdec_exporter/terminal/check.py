"""The report of ``check``."""

from __future__ import annotations

from rich.console import Console

from specdec_exporter.inspection.examination import Examination
from specdec_exporter.predictor.versions import WARNINGS
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.state.status import PredictorStatus
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


def print_examination(console: Console, examination: Examination, status: PredictorStatus) -> None:
    """Print findings, figures, acceptance by position, the log's other warnings and the verdict."""
    for finding in examination.findings:
        print_finding(console, finding)
    log = examination.log
    if columns := _columns(examination, status):
        title = "Old figures" if status.old or not status.up else "Figures"
        heading(console, title if len(columns) > 1 else f"{title}: {columns[0][0]}", figures_table(columns))
    _print_engines(console, status)
    if examination.basis is not None:
        print_curve(console, examination.basis)
    warnings = status.warnings if log is None else log.warnings
    print_known(console, [warning for warning in warnings if log is None or not WARNINGS[warning.code].costly])
    print_verdict(console, examination.verdict)
    print_summary(console, examination.level, (finding.level for finding in examination.findings))


def _columns(examination: Examination, status: PredictorStatus) -> list[tuple[str, Figures]]:
    """Return the figures by the name of their span."""
    log, columns = examination.log, []
    if status.window is not None and status.window.drafted:
        columns.append(("now" if not status.window.seconds else f"{status.window.seconds:.1f} s", status.window))
    if status.lifetime is not None:
        columns.append(("since start", status.lifetime))
    if log is not None and log.judged is not None and log.judged.figures is not None:
        columns.append(("log", log.judged.figures))
    return columns


def _print_engines(console: Console, status: PredictorStatus) -> None:
    engines = [(engine.engine, engine.lifetime) for engine in status.engines if engine.lifetime is not None]
    if len(engines) > 1:
        heading(console, "By engine, since start", breakdown_table("engine", engines))
