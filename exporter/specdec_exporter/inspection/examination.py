"""What a check makes of what it saw: findings at three levels, and the figures it judged. Pure.

FAIL where the exporter could not work: no answer, no metrics, no statistics, an unreadable log. WARN where it works and
speculation does not: off, not drafting, nothing drafted yet, below the method's policy; or where the log is not what it
seems. An idle predictor is judged by its lifetime figures.
"""

from __future__ import annotations

import msgspec

from specdec_exporter.errors import FetchError
from specdec_exporter.formatting import count, percent
from specdec_exporter.inspection.logstory import Analysis
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.versions import KnownPitfall
from specdec_exporter.speculation.facts import Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.verdict import Finding, Judgement, Level, Verdict, judge, recommend, suffices


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What two readings of a running predictor showed. ``window`` lies between them, ``lifetime`` before the second."""

    up: bool
    evidence: Evidence
    model_names: tuple[str, ...]
    draft_model: str | None
    window: Figures | None
    lifetime: Figures | None


class LogReading(msgspec.Struct, frozen=True):
    """What the log said, how reading it went, and why a file could not be read (in words)."""

    analysis: Analysis
    counters: ReaderCounters
    failures: tuple[str, ...]


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a check found. ``basis`` are the figures that it judged."""

    findings: tuple[Finding, ...]
    log: Analysis | None
    basis: Figures | None
    recommended_num_speculative_tokens: int | None
    pitfalls: tuple[KnownPitfall, ...]
    verdict: Verdict

    @property
    def level(self) -> Level:
        """The worst level of the findings."""
        levels = {finding.level for finding in self.findings}
        return "FAIL" if "FAIL" in levels else "WARN" if "WARN" in levels else "PASS"


def examine(access: tuple[Finding, ...], look: Look, reading: LogReading | None, policy: Policy) -> Examination:
    """Judge what was seen. ``access``: how reaching the predictor went; ``reading``: its log, if given."""
    log = reading.analysis if reading else None
    basis, span = _basis(look, log, policy)
    evidence = _with_log(look.evidence, log)
    if basis is not None and evidence.state in ("drafting", "idle"):
        evidence = msgspec.structs.replace(evidence, state="drafting", figures=basis)
    judgement = judge(evidence, policy)
    findings = list(access)
    if look.up:
        findings += _predictor(look, judgement, basis, span)
        findings += [_pitfall(pitfall) for pitfall in judgement.pitfalls]
    if reading is not None:
        findings += _log(reading, look)
    k = evidence.num_speculative_tokens
    return Examination(
        findings=tuple(findings),
        log=log,
        basis=basis,
        recommended_num_speculative_tokens=recommend(basis, k, policy.for_method(evidence.method)),
        pitfalls=judgement.pitfalls if look.up else (),
        verdict=judgement.verdict,
    )


def no_metrics(error: FetchError, vllm_version: str | None) -> Finding:
    """Say why there are no metrics. ``vllm_version`` is what /version answers at the same place, if it does."""
    hint = _HINTS.get(error.reason, _WRONG_PLACE)
    if vllm_version is not None:
        hint = f"/version says vLLM {vllm_version}: give the URL without a path, or the full URL of its metrics."
    return Finding("FAIL", "Metrics", str(error), hint)


def is_foreign(config: EngineConfig, vllm_version: str | None) -> bool:
    """Whether the log's init line is of another release than the predictor that answers."""
    return None not in (config.vllm_version, vllm_version) and config.vllm_version != vllm_version


def _basis(look: Look, log: Analysis | None, policy: Policy) -> tuple[Figures | None, str]:
    """Return the figures to judge and their span: the freshest with enough drafts, else the freshest there are."""
    seconds = look.window.seconds if look.window else None
    candidates = [
        (look.window, f"in {seconds:.1f} s" if seconds else "now"),
        (look.lifetime, "since the predictor started"),
        (log.judged.figures if log and log.judged else None, "in the log"),
    ]
    known = [(figures, span) for figures, span in candidates if figures and figures.acceptance_ratio is not None]
    enough = [(figures, span) for figures, span in known if suffices(figures, policy)]
    return next(iter(enough or known), (None, ""))


def _with_log(evidence: Evidence, log: Analysis | None) -> Evidence:
    """Add what the log shows. A log of another release says nothing about this predictor."""
    if log is None or (log.last_config is not None and is_foreign(log.last_config, evidence.vllm_version)):
        return evidence
    return msgspec.structs.replace(
        evidence,
        engines=max(evidence.engines, len(log.judged.engines) if log.judged else 0),
        log_windows=log.windows,
        warnings=frozenset(warning.code for warning in log.warnings),
    )


def _predictor(look: Look, judgement: Judgement, basis: Figures | None, span: str) -> list[Finding]:
    """Say what runs, whether it drafts, and what was judged."""
    state, version = look.evidence.state, look.evidence.vllm_version
    if state == "stats_disabled":
        (finding,) = judgement.findings
        where = f"/version says vLLM {version}" if version else "this may not be vLLM at all"
        hint = "" if version else f" {_WRONG_PLACE}"
        return [Finding(finding.level, finding.subject, f"{finding.found}; {where}", f"{finding.action}{hint}")]
    found = [_release(look)]
    if state == "speculation_off":
        return [*found, *judgement.findings]
    found.append(_speculation(look))
    if state == "not_drafting":
        return [*found, *judgement.findings]
    found.append(_drafting(look, basis, span))
    return found if basis is None else [*found, *judgement.findings]


def _release(look: Look) -> Finding:
    evidence = look.evidence
    version = evidence.vllm_version
    release = f"vLLM {version}" if version else "vLLM of unknown release (/version does not answer)"
    engines = f"{evidence.engines} engine{'s' if evidence.engines != 1 else ''}"
    generation = (evidence.engine_generation or "?").upper()
    return Finding("PASS", "Release", f"{release}, {generation}, {engines}, model {', '.join(look.model_names)}")


def _speculation(look: Look) -> Finding:
    evidence = look.evidence
    words = ["on"]
    words += [f"method {evidence.method}"] if evidence.method else []
    words += [f"draft model {look.draft_model}"] if look.draft_model else []
    words += [f"k = {evidence.num_speculative_tokens}"] if evidence.num_speculative_tokens else []
    note = None if evidence.method else "Only the log names method and draft model: give it with --log-path."
    return Finding("PASS", "Speculation", ", ".join(words), note)


def _drafting(look: Look, basis: Figures | None, span: str) -> Finding:
    window, lifetime = look.window, look.lifetime
    seconds = f"{window.seconds:.1f} s" if window and window.seconds else "the moment looked at"
    judged = f"; judged by the figures {span}"
    if look.evidence.state == "drafting" and window is not None:
        found = f"{count(window.drafts)} drafts of {count(window.draft_tokens)} tokens in {seconds}"
        return Finding("PASS", "Drafting", found if basis is window else f"{found}{judged}")
    if lifetime is not None and lifetime.acceptance_ratio is not None:
        drafted = "it drafted" if lifetime.drafts is None else f"{count(lifetime.drafts)} drafts"
        found = f"no traffic in {seconds}; {drafted} since the predictor started"
        return Finding("PASS", "Drafting", found if basis is lifetime else f"{found}{judged}")
    action = "Send the predictor requests and run the check again."
    return Finding("WARN", "Drafting", "nothing was drafted yet", action)


def _pitfall(pitfall: KnownPitfall) -> Finding:
    level: Level = "WARN" if pitfall.costly else "PASS"
    return Finding(level, f"vLLM {pitfall.releases}", pitfall.meaning, pitfall.action)


def _log(reading: LogReading, look: Look) -> list[Finding]:
    """The log by itself, and against the counters."""
    log, version = reading.analysis, look.evidence.vllm_version
    findings = [Finding("FAIL", "Log", words, _UNREADABLE) for words in reading.failures]
    if reading.counters.parse_errors:
        found = f"{reading.counters.parse_errors} lines of vLLM's statistics could not be read"
        findings.append(Finding("WARN", "Log", found, "Several writers that share the file cut each other's lines."))
    if log.last_config is not None and is_foreign(log.last_config, version):
        found = f"it is of vLLM {log.last_config.vllm_version}, the predictor is {version}"
        findings.append(Finding("WARN", "Log", found, "Give the log of this predictor."))
    elif log.windows:
        found = f"{log.windows} spec-decode lines, {log.first_timestamp} to {log.last_timestamp}"
        findings += [Finding("PASS", "Log", found), *_agreement(log, look)]
    elif not reading.failures:
        findings.append(_no_lines(log, look))
    return findings


def _no_lines(log: Analysis, look: Look) -> Finding:
    drafted = look.lifetime is not None and bool(look.lifetime.draft_tokens)
    if look.up and not drafted:
        return Finding("PASS", "Log", "no spec-decode line, as nothing was drafted")
    # Without lines the log still tells method and draft model, if it has the init line.
    level: Level = "WARN" if log.last_config is None else "PASS"
    if log.verdict.code in ("unknown", "watch"):
        found = f"no spec-decode line. {log.verdict.headline}: {'; '.join(log.verdict.reasons)}"
        return Finding(level, "Log", found)
    found = "no spec-decode line, though tokens were drafted"
    return Finding(level, "Log", found, "Is it this predictor's log, to its end?")


def _agreement(log: Analysis, look: Look) -> list[Finding]:
    """Compare the tokens of the log's lines with the counters of the predictor that now runs.

    Lines lag by an interval and may be rotated away, so the log may hold less. V0 counters compare with nothing.
    """
    counted = look.lifetime.draft_tokens if look.lifetime and look.evidence.engine_generation != "v0" else None
    account = log.judged
    if counted is None or account is None or account.figures is None or account.starts > max(1, look.evidence.engines):
        return []
    logged = account.figures.draft_tokens or 0.0
    if logged > counted:
        found = f"it holds {count(logged)} draft tokens, the predictor counts {count(counted)}"
        hint = "Another predictor's log, or one that reaches back before its last start?"
        return [Finding("WARN", "Log", found, hint)]
    share = percent(logged / counted) if counted else "-"
    return [Finding("PASS", "Log", f"its lines hold {share} of the draft tokens that the predictor counts")]


_WRONG_PLACE = "Give the port of vLLM itself, not of a proxy: 8080 in a KServe predictor, 8000 by vLLM's default."
_HINTS = {
    "connect": f"Does the predictor run, and listen there? {_WRONG_PLACE}",
    "timeout": "Is the predictor still loading, or overloaded? Try again with a longer --timeout.",
    "too_large": "One predictor's metrics are far smaller. Is this the right URL?",
    "truncated": "The connection broke while the metrics were sent; try again.",
    "encoding": "A proxy may compress or garble the answer: ask the predictor directly.",
}
_UNREADABLE = "The exporter reads the log with the same rights: mount it readable, and give its path in this container."
