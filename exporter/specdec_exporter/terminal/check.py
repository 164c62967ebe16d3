"""The report of ``check``."""

from __future__ import annotations

from rich.console import Console

from specdec_exporter.inspection.examination import Examination
from specdec_exporter.inspection.logstory import Analysis
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
    columns = _columns(status, log)
    if columns:
        heading(console, "Figures" if len(columns) > 1 else f"Figures: {columns[0][0]}", figures_table(columns))
    _print_engines(console, status)
    if examination.basis is not None:
        print_curve(console, examination.basis)
    if log is not None:
        print_known(console, [warning for warning in log.warnings if not WARNINGS[warning.code].costly])
    print_verdict(console, examination.verdict)
    print_summary(console, examination.level, (finding.level for finding in examination.findings))


def _columns(status: PredictorStatus, log: Analysis | None) -> list[tuple[str, Figures]]:
    """Return the figures that are known, by the name of their span."""
    columns: list[tuple[str, Figures]] = []
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
