"""What a check makes of what it saw: findings at three levels, and the figures it judged. Pure.

FAIL where the exporter could not work: no answer, no metrics, no statistics, an unreadable log. WARN where it works and
speculation does not: off, not drafting, nothing drafted yet, below the method's policy; or where the log is not what it
seems. An idle predictor is judged by its lifetime figures.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from specdec_exporter.errors import FetchError
from specdec_exporter.formatting import count, decimal, percent
from specdec_exporter.inspection.logstory import Analysis
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.versions import Facts, parse_release
from specdec_exporter.serving.status import PredictorStatus
from specdec_exporter.speculation.facts import KnownPitfall, known_pitfalls
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import ResolvedPolicy, load_policy
from specdec_exporter.speculation.verdict import (
    DecodingBaseline,
    Verdict,
    curve_remark,
    is_below_expected,
    is_suspicious,
    judge,
    mean_acceptance_length_min,
    recommend,
)

Level = Literal["PASS", "WARN", "FAIL"]


class Finding(msgspec.Struct, frozen=True):
    """One line of the check. ``action`` is what to do about it, where there is something."""

    level: Level
    subject: str
    found: str
    action: str | None = None


class LogReading(msgspec.Struct, frozen=True):
    """What the log said, how reading it went, and why a file could not be read (in words)."""

    analysis: Analysis
    counters: ReaderCounters
    failures: tuple[str, ...]


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a check found. ``basis`` are the figures that it judged."""

    findings: tuple[Finding, ...]
    status: PredictorStatus
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


def examine(
    access: tuple[Finding, ...],
    status: PredictorStatus,
    reading: LogReading | None,
    baseline: DecodingBaseline | None = None,
) -> Examination:
    """Judge what was seen. ``access`` is how reaching the predictor went, ``reading`` its log where one was given.

    ``baseline`` is what decoding took at baseline, where there is one to compare with.
    """
    log = reading.analysis if reading else None
    basis, span = _basis(status, log)
    verdict = status.verdict
    policy = load_policy().for_method(status.method)
    if basis is not None and status.state in ("drafting", "idle"):
        verdict = judge("drafting", basis, policy, status.num_speculative_tokens, baseline)
    findings = list(access)
    if status.state == "stats_disabled":
        findings.append(_statistics(status))
    elif status.up:
        findings += [_release(status), _speculation(status)]
        if status.state != "speculation_off":
            findings += [_drafting(status), *_payoff(status, basis, span, verdict, policy)]
            findings += _speed(basis, verdict, policy)
    pitfalls = known_pitfalls(_facts(status, log)) if status.up else ()
    findings += [_pitfall(pitfall) for pitfall in pitfalls]
    if reading is not None:
        findings += _log(reading, status)
    return Examination(
        findings=tuple(findings),
        status=status,
        log=log,
        basis=basis,
        recommended_num_speculative_tokens=recommend(basis, status.num_speculative_tokens, policy),
        pitfalls=pitfalls,
        verdict=verdict,
    )


def no_metrics(error: FetchError, vllm_version: str | None) -> Finding:
    """Say why there are no metrics. ``vllm_version`` is what /version answers at the same place, if it does."""
    hint = _HINTS.get(error.reason, _WRONG_PLACE)
    if vllm_version is not None:
        hint = f"It is vLLM {vllm_version} by its /version: give the URL without a path, or with that of its /metrics."
    return Finding("FAIL", "Metrics", str(error), hint)


def is_foreign(config: EngineConfig, vllm_version: str | None) -> bool:
    """Whether the log's init line is of another release than the predictor that answers."""
    return None not in (config.vllm_version, vllm_version) and config.vllm_version != vllm_version


def _statistics(status: PredictorStatus) -> Finding:
    if status.vllm_version is not None:
        found = f"vLLM {status.vllm_version} answers, but its metrics hold no statistics of the engine"
        return Finding("FAIL", "Statistics", found, "Start vLLM without --disable-log-stats.")
    found = "these are metrics, but none of vLLM's"
    return Finding("FAIL", "Statistics", found, f"{_WRONG_PLACE} If it is vLLM: start it without --disable-log-stats.")


def _release(status: PredictorStatus) -> Finding:
    release = (
        f"vLLM {status.vllm_version}" if status.vllm_version else "vLLM of unknown release (/version does not answer)"
    )
    engines = f"{len(status.engines)} engine{'s' if len(status.engines) != 1 else ''}"
    found = f"{release}, {(status.engine_generation or '?').upper()}, {engines}, model {', '.join(status.model_names)}"
    return Finding("PASS", "Release", found)


def _facts(status: PredictorStatus, log: Analysis | None) -> Facts:
    """What tells the known pitfalls: of a log of another release only what the predictor says."""
    if log is not None and log.last_config is not None and is_foreign(log.last_config, status.vllm_version):
        log = None
    logged = log.judged.engines if log and log.judged else ()
    drafted = status.lifetime is not None and (status.lifetime.acceptance_ratio is not None)
    return Facts(
        release=parse_release(status.vllm_version or ""),
        engine_generation=status.engine_generation,
        method=status.method,
        engines=max(len(status.engines), len(logged)),
        drafting=False if status.state == "not_drafting" else drafted or None,
        log_windows=log.windows if log else None,
        warnings=frozenset(warning.code for warning in log.warnings) if log else frozenset(),
    )


def _pitfall(pitfall: KnownPitfall) -> Finding:
    level: Level = "WARN" if pitfall.costly else "PASS"
    return Finding(level, f"vLLM {pitfall.releases}", pitfall.meaning, pitfall.action)


def _speed(basis: Figures | None, verdict: Verdict, policy: ResolvedPolicy) -> list[Finding]:
    """Speed against the baseline, where that and not acceptance decided the verdict."""
    rate = (basis and basis.acceptance_ratio) or 0.0
    decided = verdict.code == "harmful" or (verdict.code == "not_paying" and rate >= policy.acceptance_ratio_min)
    return [Finding("WARN", "Speed", verdict.reasons[0], verdict.action)] if decided else []


def _speculation(status: PredictorStatus) -> Finding:
    if status.state == "speculation_off":
        return Finding("WARN", "Speculation", "off", status.verdict.action)
    words = ["on"]
    words += [f"method {status.method}"] if status.method else []
    words += [f"draft model {status.draft_model}"] if status.draft_model else []
    words += [f"k = {status.num_speculative_tokens}"] if status.num_speculative_tokens else []
    note = None if status.method else "Method and draft model stand in the log only: give it with --log-path."
    return Finding("PASS", "Speculation", ", ".join(words), note)


def _drafting(status: PredictorStatus) -> Finding:
    window, lifetime = status.window, status.lifetime
    span = f"{window.seconds:.1f} s" if window and window.seconds else "the moment looked at"
    if status.state == "drafting" and window is not None:
        found = f"{count(window.drafts)} drafts of {count(window.draft_tokens)} tokens in {span}"
        return Finding("PASS", "Drafting", found)
    if status.state == "not_drafting":
        return Finding(
            "WARN", "Drafting", f"tokens are generated, but nothing was drafted in {span}", status.verdict.action
        )
    if lifetime is not None and lifetime.acceptance_ratio is not None:
        drafted = "it drafted" if lifetime.drafts is None else f"{count(lifetime.drafts)} drafts"
        return Finding("PASS", "Drafting", f"no traffic in {span}; {drafted} since the predictor started")
    return Finding(
        "WARN", "Drafting", "nothing was drafted yet", "Send the predictor requests and run the check again."
    )


def _basis(status: PredictorStatus, log: Analysis | None) -> tuple[Figures | None, str]:
    """Return the figures to judge and when they are of: the freshest that suffice, else the freshest there are."""
    seconds = status.window.seconds if status.window else None
    candidates = [
        (status.window, f"in {seconds:.1f} s" if seconds else "now"),
        (status.lifetime, "since the predictor started"),
        (log.judged.figures if log and log.judged else None, "in the log"),
    ]
    known = [(figures, span) for figures, span in candidates if figures and figures.acceptance_ratio is not None]
    enough = [(figures, span) for figures, span in known if _suffices(figures)]
    return next(iter(enough or known), (None, ""))


def _suffices(figures: Figures) -> bool:
    """Whether there are drafts enough to judge; a V0 engine's ratio comes without any count and has to do."""
    counted = figures.draft_tokens if figures.drafts is None else figures.drafts
    return counted is None or counted >= load_policy().min_drafts


def _payoff(
    status: PredictorStatus, basis: Figures | None, span: str, verdict: Verdict, policy: ResolvedPolicy
) -> list[Finding]:
    """Acceptance and length against the policy of the method, and what the curve shows."""
    if basis is None or basis.acceptance_ratio is None:
        return []
    rate, floor = basis.acceptance_ratio, policy.acceptance_ratio_min
    if not _suffices(basis):
        found = f"{percent(rate)} {span}, of {_amount(basis)} only: too few for a verdict"
        return [Finding("WARN", "Acceptance", found, "Send the predictor more requests and run the check again.")]
    found = f"{percent(rate)} {span} (minimum {percent(floor)}, {status.method or 'method not known'})"
    if rate < floor:
        findings = [Finding("WARN", "Acceptance", found, verdict.action)]
    elif is_suspicious(basis, status.num_speculative_tokens, policy):
        note = "Text that repeats itself is accepted almost always: look at some outputs."
        findings = [Finding("PASS", "Acceptance", found, note)]
    else:
        noted = verdict.code == "watch" or is_below_expected(rate, policy)
        findings = [Finding("PASS", "Acceptance", found, verdict.action if noted else None)]
    length = basis.mean_acceptance_length
    break_even = mean_acceptance_length_min(basis, status.num_speculative_tokens, policy)
    if length is not None and break_even is not None:
        found = f"{length:.2f} tokens a draft, the bonus token included (break-even {break_even:.2f})"
        below = length < break_even
        findings.append(Finding("WARN" if below else "PASS", "Length", found, verdict.action if below else None))
    return findings + _curve(basis, policy)


def _amount(figures: Figures) -> str:
    if figures.drafts is None:
        return f"{count(figures.draft_tokens)} draft tokens"
    return f"{count(figures.drafts)} drafts"


def _curve(basis: Figures, policy: ResolvedPolicy) -> list[Finding]:
    findings = []
    if basis.short_drafts:
        found = f"drafts are shorter than k: {decimal(basis.mean_draft_length)} tokens on average"
        note = "Its last positions read too low; usual for n-gram, suffix and dynamic k."
        findings.append(Finding("PASS", "Curve", found, note))
    if (remark := curve_remark(basis, policy)) is not None:
        findings.append(Finding("WARN", "Curve", remark.found, remark.action))
    return findings


def _log(reading: LogReading, status: PredictorStatus) -> list[Finding]:
    """The log by itself, and against the counters."""
    log = reading.analysis
    findings = [Finding("FAIL", "Log", words, _UNREADABLE) for words in reading.failures]
    if reading.counters.parse_errors:
        found = f"{reading.counters.parse_errors} lines of vLLM's statistics could not be read"
        findings.append(Finding("WARN", "Log", found, "Several writers that share the file cut each other's lines."))
    if log.last_config is not None and is_foreign(log.last_config, status.vllm_version):
        found = f"it is of vLLM {log.last_config.vllm_version}, the predictor is {status.vllm_version}"
        findings.append(Finding("WARN", "Log", found, "Give the log of this predictor."))
    elif log.windows:
        found = f"{log.windows} spec-decode lines, {log.first_timestamp} to {log.last_timestamp}"
        findings += [Finding("PASS", "Log", found), *_agreement(log, status)]
    elif not reading.failures:
        findings.append(_no_lines(log, status))
    return findings


def _no_lines(log: Analysis, status: PredictorStatus) -> Finding:
    drafted = status.lifetime is not None and bool(status.lifetime.draft_tokens)
    if status.up and not drafted:
        return Finding("PASS", "Log", "no spec-decode line, as nothing was drafted")
    # Without lines the log still tells method and draft model, if it has the init line.
    level: Level = "WARN" if log.last_config is None else "PASS"
    if log.verdict.code in ("unknown", "watch"):
        found = f"no spec-decode line. {log.verdict.headline}: {'; '.join(log.verdict.reasons)}"
        return Finding(level, "Log", found)
    found = "no spec-decode line, though tokens were drafted"
    return Finding(level, "Log", found, "Is it this predictor's log, to its end?")


def _agreement(log: Analysis, status: PredictorStatus) -> list[Finding]:
    """Compare the tokens of the log's lines with the counters of the predictor that now runs.

    Lines lag by an interval and may be rotated away, so the log may hold less. V0 counters compare with nothing.
    """
    counted = status.lifetime.draft_tokens if status.lifetime and status.engine_generation != "v0" else None
    account = log.judged
    if counted is None or account is None or account.figures is None or account.starts > max(1, len(status.engines)):
        return []
    logged = account.figures.draft_tokens or 0.0
    if logged > counted:
        found = f"it holds {count(logged)} draft tokens, the predictor counts {count(counted)}"
        return [
            Finding("WARN", "Log", found, "Another predictor's log, or one that reaches back before its last start?")
        ]
    share = percent(logged / counted) if counted else "-"
    return [Finding("PASS", "Log", f"its lines hold {share} of the draft tokens that the predictor counts")]


_WRONG_PLACE = (
    "Give the port of vLLM itself: 8080 in a KServe predictor, 8000 by vLLM's default; not a proxy's in front of it."
)
_HINTS = {
    "connect": f"Does the predictor run, and listen there? {_WRONG_PLACE}",
    "timeout": "Is the predictor still loading, or overloaded? Try again with a longer --timeout.",
    "too_large": "These can hardly be the metrics of one predictor.",
    "truncated": "The connection broke while the metrics were sent; try again.",
    "encoding": "Something between here and the predictor packs or garbles the answer: ask the predictor directly.",
}
_UNREADABLE = "The exporter reads the log with the same rights: mount it readable, and give the path that it has here."
