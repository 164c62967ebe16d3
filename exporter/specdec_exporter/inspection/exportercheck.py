"""``check`` of a running exporter: its status -> the same report as of a predictor, without waiting."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_exporter.inspection.examination import UNREADABLE, Examination, baseline_finding, examine
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.verdict import Finding, Level
from specdec_exporter.state.status import PredictorStatus, Status

STATUS_PATH = "api/v1/status"


def examine_exporter(
    exporter: Status, predictor: PredictorStatus, policy: Policy, unused: Sequence[str] = ()
) -> Examination:
    """Return what the exporter says about one of its predictors, as an examination; ``unused`` flags are named."""
    return examine(_access(exporter, predictor, unused), predictor, None, policy)


def _access(exporter: Status, predictor: PredictorStatus, unused: Sequence[str]) -> tuple[Finding, ...]:
    """Return the findings on the exporter, and on what it reads."""
    reads = f"{exporter.exporter_version} reads {predictor.inference_service} at {predictor.url}"
    own = "The exporter has a window, a log and a baseline of its own. To use these, give the URL of the predictor."
    note = f"Not used: {', '.join(unused)}. {own}" if unused else None
    findings = [Finding("PASS", "Exporter", f"{reads}; figures of its window of {exporter.window_seconds:g} s", note)]
    if not predictor.up:
        level: Level = "WARN" if predictor.age_seconds is None else "FAIL"
        findings.append(Finding(level, "Metrics", predictor.up_reason or "no reason given", predictor.verdict.action))
    elif predictor.old:
        action = "The read since then has not ended. Look at the predictor's load and at --predictor.timeout."
        findings.append(Finding("WARN", "Metrics", f"figures of {predictor.age_seconds:.0f} s ago", action))
    if (failed := predictor.failed_start) is not None:
        findings.append(Finding("FAIL", "Start", failed.told, failed.action))
    if (log := predictor.log) is not None:
        if log.problem is not None:
            findings.append(Finding("WARN", "Log", log.problem, UNREADABLE))
        findings.append(Finding("PASS", "Log", f"{log.windows:,} spec-decode lines in {log.lines:,} lines read"))
    if (baseline := predictor.baseline) is not None:
        findings.append(baseline_finding(baseline.name, baseline.refusal, "", baseline.remarks))
    return tuple(findings)
