"""``check`` of a running exporter: its status -> the same report as of a predictor, without waiting."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_exporter.inspection.examination import UNREADABLE, Examination, Look, examine
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.serving.status import PredictorStatus, Status
from specdec_exporter.speculation.facts import Evidence
from specdec_exporter.speculation.judging import told
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.verdict import Finding, Level

STATUS_PATH = "api/v1/status"


def examined(exporter: Status, predictor: PredictorStatus, policy: Policy) -> tuple[Examination, Look, PredictorStatus]:
    """Return what the exporter says about one of its predictors, as an examination."""
    look = Look(
        up=predictor.up,
        evidence=Evidence(
            state=predictor.state,
            vllm_version=predictor.vllm_version,
            engine_generation=predictor.engine_generation,
            method=predictor.method,
            num_speculative_tokens=predictor.num_speculative_tokens,
            engines=len(predictor.engines) or 1,
            deployment=Deployment(
                rejection_sample_method=predictor.rejection_sampling,
                adaptive_verification=predictor.adaptive_verification,
            ),
        ),
        model_names=predictor.model_names,
        draft_model=predictor.draft_model,
        start=predictor.start,
        window=predictor.window,
        lifetime=predictor.lifetime,
    )
    least = predictor.break_even.acceptance_ratio
    judgement = told(predictor.verdict, predictor.state, predictor.pitfalls, least)
    return examine(_access(exporter, predictor), look, None, policy, judgement), look, predictor


def _access(exporter: Status, predictor: PredictorStatus) -> tuple[Finding, ...]:
    """Return the findings on the exporter, and on what it reads."""
    found = f"{exporter.exporter_version} reads {predictor.inference_service} at {predictor.url}"
    findings = [Finding("PASS", "Exporter", f"{found}; figures of its window of {exporter.window_seconds:g} s")]
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


def baseline_finding(name: str, refusal: str | None, details: str, remarks: Sequence[str]) -> Finding:
    """Return the finding on a baseline that is compared with a predictor, or is refused."""
    if refusal is not None:
        return Finding("WARN", "Baseline", f"{name} is not compared: {refusal}", "Record one of this model.")
    return Finding("PASS", "Baseline", f"{name}{details}", "; ".join(remarks) or None)
