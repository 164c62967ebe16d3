"""The examination behind ``check`` and ``doctor``: findings at three levels, and the judged figures. Pure.

FAIL: the exporter cannot work (no answer, no metrics, no statistics, an unreadable log). WARN: the exporter works, but
speculation does not (off, not drafting, nothing drafted yet, below break-even), or the log contradicts the
predictor. An idle predictor is judged by its lifetime figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from specdec_exporter.errors import FetchError
from specdec_exporter.formatting import count, percent
from specdec_exporter.inspection.logstory import Analysis
from specdec_exporter.inspection.silence import NO_TRAFFIC
from specdec_exporter.predictor.engines.engine import VLLM
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.log.counters import ReaderCounters, on_trust, unreadable
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.versions import WARNINGS, KnownPitfall, WarningCount
from specdec_exporter.speculation.evidence import Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.judging import judge, told
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.verdict import Finding, Judgement, Level, Verdict, worst
from specdec_exporter.speculation.weighing import too_few
from specdec_exporter.state.status import PredictorStatus


class LogReading(msgspec.Struct, frozen=True):
    """The log's analysis, the reader's counters, in words why a file could not be read, and what it shows."""

    analysis: Analysis
    counters: ReaderCounters
    failures: tuple[str, ...]
    deployment: Deployment = Deployment()


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a check found. ``basis`` has the judged figures."""

    findings: tuple[Finding, ...]
    log: Analysis | None
    basis: Figures | None
    pitfalls: tuple[KnownPitfall, ...]
    verdict: Verdict

    @property
    def level(self) -> Level:
        """The worst level of the findings."""
        return worst(finding.level for finding in self.findings)

    def document(self, status: PredictorStatus | None = None) -> dict[str, Any]:
        """Return what ``--output json`` shows: the level, the ``status`` of a predictor, and the fields."""
        return {"level": self.level, "status": status} | msgspec.structs.asdict(self)


def examine(
    access: tuple[Finding, ...],
    status: PredictorStatus,
    reading: LogReading | None,
    policy: Policy,
    evidence: Evidence | None = None,
) -> Examination:
    """Examine what the status says: its window lies between two readings, and its lifetime ends at the second.

    ``access``: findings on reaching the predictor; ``reading``: its log, if given. ``evidence`` is judged together with
    the log; without it, the judgement of the status stands.
    """
    log = reading.analysis if reading else None
    basis, span = _basis(status, log, policy)
    if evidence is None:
        judgement = told(status.verdict, status.state, status.pitfalls)
    else:
        evidence = _with_log(evidence, log)
        if basis is not None and evidence.state in ("drafting", "idle"):
            evidence = msgspec.structs.replace(evidence, state="drafting", figures=basis)
        judgement = judge(evidence, policy)
    findings = list(access)
    if status.up:
        is_read = evidence is None or evidence.inference_engine.is_read
        findings += _predictor(status, judgement, basis, span, is_read=is_read)
        findings += [pitfall_finding(pitfall) for pitfall in judgement.pitfalls]
    if reading is not None:
        findings += _log(reading, status)
    return Examination(
        findings=tuple(findings),
        log=log,
        basis=basis,
        pitfalls=judgement.pitfalls if status.up else (),
        verdict=judgement.verdict,
    )


def examine_log(reading: LogReading) -> Examination:
    """Examine a log by itself: what of it can be read, its last start, and the verdict on its drafts."""
    log = reading.analysis
    judgement = told(log.verdict, "", log.pitfalls)
    findings = [*_log_alone(reading), *judgement.findings, *map(pitfall_finding, judgement.pitfalls)]
    return Examination(
        findings=tuple(findings),
        log=log,
        basis=log.judged.figures if log.judged else None,
        pitfalls=judgement.pitfalls,
        verdict=judgement.verdict,
    )


def no_metrics(error: FetchError, vllm_version: str | None) -> Finding:
    """Say why there are no metrics. ``vllm_version``: the answer of /version at the same place, if any."""
    hint = _HINTS.get(error.reason, _WRONG_PLACE)
    if error.status in (401, 403):
        hint = f"Give {_CREDENTIALS}."
    elif error.status == 429 or (error.status or 0) >= 500:
        hint = "The predictor may still be loading, or be overloaded. Try again."
    elif vllm_version is not None:
        hint = f"/version says {vllm_version}: give the URL without a path, or the full URL of its metrics."
    elif error.status == 400:
        hint = "If this is a router of llama.cpp, it asks for a model: give /metrics?model=NAME&autoload=false."
    return Finding("FAIL", "Metrics", str(error), hint)


def is_foreign(config: EngineConfig, vllm_version: str | None) -> bool:
    """Whether the log's init line names another release than the predictor."""
    return None not in (config.vllm_version, vllm_version) and config.vllm_version != vllm_version


def _basis(status: PredictorStatus, log: Analysis | None, policy: Policy) -> tuple[Figures | None, str]:
    """Return the figures to judge and their span: the freshest ones with enough drafts, else the freshest ones."""
    seconds = status.window.seconds if status.window else None
    candidates = [
        (status.window, f"in {seconds:.1f} s" if seconds else "now"),
        (status.lifetime, "since the predictor started"),
        (log.judged.figures if log and log.judged else None, "in the log"),
    ]
    known = [(figures, span) for figures, span in candidates if figures and figures.drafted]
    enough = [(figures, span) for figures, span in known if too_few(figures, policy) is None]
    return next(iter(enough or known), (None, ""))


def _with_log(evidence: Evidence, log: Analysis | None) -> Evidence:
    """Add what the log shows, unless it comes from another release."""
    if log is None or (log.last_config is not None and is_foreign(log.last_config, evidence.vllm_version)):
        return evidence
    return msgspec.structs.replace(
        evidence,
        engines=max(evidence.engines, len(log.judged.engines) if log.judged else 0),
        log_windows=log.windows,
        warnings=frozenset(warning.code for warning in log.warnings),
    )


def _predictor(
    status: PredictorStatus, judgement: Judgement, basis: Figures | None, span: str, *, is_read: bool
) -> list[Finding]:
    """Return the findings on the release, on drafting, and on the judged figures."""
    state, version = status.state, status.vllm_version
    if state == "stats_disabled" and (judgement.verdict.code != "no_metrics" or not is_read):
        return list(judgement.findings)
    if state == "stats_disabled":
        (finding,) = judgement.findings
        where = f"/version says {version}" if version else "this may not be vLLM"
        hint = "" if version else f" {_WRONG_PLACE}"
        return [Finding(finding.level, finding.subject, f"{finding.found}; {where}", f"{finding.action}{hint}")]
    findings = [_release(status)]
    if status.start is not None:
        findings.append(Finding("PASS", "Start", status.start.text))
    if state == "speculation_off":
        return [*findings, *judgement.findings]
    findings.append(_speculation(status))
    if state == "not_drafting":
        return [*findings, *judgement.findings]
    findings.append(_drafting(status, basis, span))
    return findings if basis is None else [*findings, *judgement.findings]


def _engines(status: PredictorStatus) -> int:
    return len({engine.engine for engine in status.engines}) or 1  # V0 shows none before the first request


def _release(status: PredictorStatus) -> Finding:
    name, version, number = status.inference_engine or "vLLM", status.inference_engine_version, _engines(status)
    release = f"{name} {version}" if version else f"{name} of unknown release"
    if status.engine_generation is not None:
        release += f", {status.engine_generation.upper()}"
    engines = f"{number} engine{'s' if number != 1 else ''}"
    words = f"{release}, {engines}, model {', '.join(status.model_names) or 'not known'}"
    return Finding("PASS", "Release", words, status.untold)


def _is_other_engine(status: PredictorStatus) -> bool:
    return status.inference_engine not in (None, VLLM.name)


def _speculation(status: PredictorStatus) -> Finding:
    words = ["on"]
    words += [f"method {status.method}"] if status.method else []
    words += [f"draft model {status.draft_model}"] if status.draft_model else []
    words += sampling_words(status)
    words += [f"k = {status.num_speculative_tokens}"] if status.num_speculative_tokens else []
    of_vllm = status.inference_engine in (None, VLLM.name)
    note = (
        None
        if status.method or not of_vllm
        else "Only the log names method and draft model: give it with --predictor.log-path."
    )
    return Finding("PASS", "Speculation", ", ".join(words), note)


def sampling_words(server: Deployment | PredictorStatus) -> list[str]:
    """Return what is unusual about how the target samples and verifies."""
    words = [f"{server.rejection_sampling} rejection sampling"] if server.rejection_sampling else []
    return [*words, "adaptive verification"] if server.adaptive_verification else words


def _drafting(status: PredictorStatus, basis: Figures | None, span: str) -> Finding:
    window, lifetime = status.window, status.lifetime
    seconds = f"{window.seconds:.1f} s" if window and window.seconds else "the moment looked at"
    judged = f"; judged by the figures {span}"
    if status.state == "idle" and window is not None and window.one_token_each:
        words = "each request gets one token: nothing to draft here (prefill, or max_tokens 1)"
        return Finding("PASS", "Drafting", words)
    if status.state == "drafting" and window is not None:
        drafts = f"{_drafts(window)} in {seconds}"
        return Finding("PASS", "Drafting", drafts if basis is window else f"{drafts}{judged}")
    if lifetime is not None and lifetime.drafted:
        drafts = f"no traffic in {seconds}; {_drafts(lifetime)} since the predictor started"
        return Finding("PASS", "Drafting", drafts if basis is lifetime else f"{drafts}{judged}")
    action = "Send the predictor requests and run the check again."
    return Finding("WARN", "Drafting", "nothing was drafted yet", action)


def _drafts(figures: Figures) -> str:
    """Return how much was drafted. V0 gives a ratio without any count."""
    if figures.drafts is None:
        return "it drafted" if figures.draft_tokens is None else f"{count(figures.draft_tokens)} draft tokens"
    tokens = "" if figures.draft_tokens is None else f" of {count(figures.draft_tokens)} tokens"
    return f"{count(figures.drafts)} drafts{tokens}"


def pitfall_finding(pitfall: KnownPitfall) -> Finding:
    """Return the finding that a pitfall is."""
    level: Level = "WARN" if pitfall.costly else "PASS"
    subject = f"vLLM {pitfall.releases}" if pitfall.releases else "Predictor"
    return Finding(level, subject, pitfall.meaning, pitfall.action)


def baseline_finding(name: str, refusal: str | None, details: str, remarks: Sequence[str]) -> Finding:
    """Return the finding on a baseline that is compared with a predictor, or is refused."""
    if refusal is not None:
        return Finding("WARN", "Baseline", f"{name} is not compared: {refusal}", "Record one of what runs.")
    return Finding("PASS", "Baseline", f"{name}{details}", "; ".join(remarks) or None)


def _log(reading: LogReading, status: PredictorStatus) -> list[Finding]:
    """Judge the log alone, and against the counters. Only that of vLLM is read."""
    if _is_other_engine(status):
        return [Finding("PASS", "Log", f"it is not read: only vLLM's is, and {status.inference_engine} answers")]
    log, version = reading.analysis, status.vllm_version
    findings = _log_alone(reading, up=status.up)
    if log.last_config is not None and is_foreign(log.last_config, version):
        words = f"it comes from vLLM {log.last_config.vllm_version}, the predictor runs {version}"
        findings.append(Finding("WARN", "Log", words, "Give the log of this predictor."))
    elif log.windows:
        words = f"{log.windows} spec-decode lines, {log.first_timestamp} to {log.last_timestamp}"
        findings += [Finding("PASS", "Log", words), *_agreement(log, status)]
    elif not reading.failures and log.failed_start is None:
        findings.append(_no_lines(log, status))
    return findings


def _log_alone(reading: LogReading, *, up: bool = False) -> list[Finding]:
    """Return what the log says without a predictor: starts that failed, how it was read, warnings that cost something.

    ``up``: a predictor answers.
    """
    findings = failed_starts(reading.analysis, up=up)
    findings += [Finding("FAIL", "Log", words, UNREADABLE) for words in reading.failures]
    if words := unreadable(reading.counters):
        findings.append(
            Finding("WARN", "Log", words, "Several processes that share the file may cut each other's lines.")
        )
    doubt: Level = "WARN" if reading.counters.dropped["untrusted_lines"] else "PASS"
    findings += [Finding(doubt, "Log", words) for words in on_trust(reading.counters)]
    return findings + costly_warnings(reading.analysis)


def costly_warnings(log: Analysis) -> list[Finding]:
    """Return vLLM's warnings from which requests suffer."""
    return [warning_finding(warning) for warning in log.warnings if WARNINGS[warning.code].costly]


def warning_finding(warning: WarningCount) -> Finding:
    """Return the finding that a warning in the log is."""
    level: Level = "WARN" if WARNINGS[warning.code].costly else "PASS"
    return Finding(level, "Warning in the log", warning.meaning, warning.action)


def failed_starts(log: Analysis, *, up: bool = False) -> list[Finding]:
    """Return the finding on the last start, if it failed, and on those before it. ``up``: a predictor answers."""
    if (failed := log.failed_start) is not None:
        return [Finding("WARN" if up else "FAIL", "Start", _often(failed.told, log), failed.action)]
    if log.failed_starts:
        codes = ", ".join(f"{code} {count:,} x" for code, count in log.failed_starts)
        return [Finding("PASS", "Start", f"the server runs; earlier starts failed: {codes}")]
    return []


def _often(told: str, log: Analysis) -> str:
    tries = sum(count for _, count in log.failed_starts)
    return told if tries < 2 else f"{told} ({tries:,} starts failed in this log)"


def _no_lines(log: Analysis, status: PredictorStatus) -> Finding:
    drafted = status.lifetime is not None and bool(status.lifetime.draft_tokens)
    if status.up and not drafted:
        return Finding("PASS", "Log", "no spec-decode line, because nothing was drafted")
    # With an init line the log still tells method and draft model.
    level: Level = "WARN" if log.last_config is None else "PASS"
    if log.verdict.code in ("unknown", "watch"):
        reasons = [_EARLY if reason == NO_TRAFFIC else reason for reason in log.verdict.reasons]
        return Finding(level, "Log", f"no spec-decode line. {log.verdict.headline}: {'; '.join(reasons)}")
    words = "no spec-decode line, though tokens were drafted"
    return Finding(level, "Log", words, "Check that this is the predictor's log, and that it is complete.")


def _agreement(log: Analysis, status: PredictorStatus) -> list[Finding]:
    """Compare the tokens of the log's lines with the predictor's counters.

    The log may hold less: its lines come one interval late, and rotation removes them. V0 counters cannot be compared.
    """
    counted = status.lifetime.draft_tokens if status.lifetime and status.engine_generation != "v0" else None
    account = log.judged
    if counted is None or account is None or account.figures is None or account.starts > _engines(status):
        return []
    logged = account.figures.draft_tokens or 0.0
    if logged > counted:
        words = f"it holds {count(logged)} draft tokens, the predictor counts {count(counted)}"
        hint = "The log may belong to another predictor, or start before the last restart."
        return [Finding("WARN", "Log", words, hint)]
    share = percent(logged / counted) if counted else "-"
    return [Finding("PASS", "Log", f"its lines hold {share} of the draft tokens that the predictor counts")]


_EARLY = "the first drafts are younger than a line: vLLM writes one every 10 s (VLLM_LOG_STATS_INTERVAL)"
_WRONG_PLACE = "Give the port of vLLM itself, not of a proxy: 8080 in a KServe predictor, 8000 by vLLM's default."
_CREDENTIALS = "the credentials: a user in the URL, or --config.file with a bearer_token_file"
_HINTS = {
    "redirect": "Something in front of the predictor redirects, as a login does. Ask the predictor itself, in its pod "
    f"or through kubectl port-forward, or give {_CREDENTIALS}.",
    "connect": f"Check that the predictor runs and listens there. {_WRONG_PLACE}",
    "tls": "For a private CA or another name, give --config.file: a file with this URL, its ca_file or server_name.",
    "timeout": "The predictor may still be loading, or be overloaded. Try again with a longer --predictor.timeout.",
    "too_large": "One predictor's metrics are far smaller. Check the URL.",
    "truncated": "The connection broke during the answer; try again.",
    "credentials": "The file is yours: mend it, or give another one.",
    "encoding": "A proxy may compress or damage the answer: ask the predictor directly.",
}
UNREADABLE = "The exporter needs to read the log too: mount it readable, and give its path in this container."
