"""The judgement behind ``doctor``: what the arguments of a server, its log and its metrics say together. Pure.

Each stage adds to what is known: the arguments (before the start), the log (after it), the metrics (while it runs). A
fact belongs to the first stage that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from specdec_exporter.inspection.examination import (
    Examination,
    LogReading,
    costly_warnings,
    failed_starts,
    pitfall_finding,
    warning_finding,
)
from specdec_exporter.predictor.arguments import ServerCommand
from specdec_exporter.predictor.engines.engine import VLLM
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.facts.known import Fact, load_facts
from specdec_exporter.predictor.facts.speculativewords import misfits, unknown_arguments
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.speculation.evidence import Evidence
from specdec_exporter.speculation.verdict import LEVELS, Finding, Level

_IGNORED_ACTION: Final = "vLLM says nothing about it: write what you mean."
Stage = Literal["before", "log", "running"]
# What the stages must agree on -> its name.
_SAME: Final[Mapping[str, str]] = {
    "release": "release",
    "model": "model",
    "method": "method",
    "num_speculative_tokens": "k",
    "draft_model": "draft model",
}
_STAGE_WORDS: Final[Mapping[Stage, str]] = {"before": "the arguments", "log": "the log", "running": "the server"}


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A finding at a stage. A fact also has its code, its releases, its sources, and whether these were read."""

    stage: Stage
    level: Level
    subject: str
    found: str
    action: str | None = None
    code: str | None = None
    releases: str | None = None
    sources: tuple[str, ...] = ()
    checked: str | None = None


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What one stage shows by itself. ``other_engine``: the name of the inference engine, unless it is vLLM."""

    stage: Stage
    deployment: Deployment
    findings: tuple[Diagnosis, ...] = ()
    other_engine: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What ``doctor`` tells. ``findings`` are worst first, ``notes`` ask for nothing.

    ``not_checked``: in words, what the verdict does not cover.
    """

    level: Level
    looked_at: dict[str, str]
    findings: tuple[Diagnosis, ...]
    notes: tuple[Diagnosis, ...]
    not_checked: tuple[str, ...]


def known_facts() -> tuple[Fact, ...]:
    """Return all facts: those of running servers, and those that are told before a start only."""
    return (*load_facts(), *load_facts(Path(__file__).with_name("facts.yaml")))


def diagnose(observed: Sequence[Observed], looked_at: Mapping[str, str]) -> Report:
    """Judge what the stages show, which are in their order; at least one.

    ``looked_at``: more about what was looked at, by its name.
    """
    known = list(accumulate((stage.deployment for stage in observed), together))
    told = [finding for stage in observed for finding in stage.findings]
    told += _differences(observed, known)
    other_engine = next((stage.other_engine for stage in observed if stage.other_engine), None)
    told += [] if other_engine else _facts(observed, known)
    findings = [finding for finding in told if finding.level != "PASS" or finding.code is None]
    findings += _in_the_end(observed[-1].stage, findings, known[-1], other_engine)
    findings.sort(key=lambda finding: LEVELS.index(finding.level), reverse=True)
    return Report(
        level=findings[0].level,
        looked_at={**({} if other_engine else _in_words(known[-1])), **looked_at},
        findings=tuple(findings),
        notes=tuple(finding for finding in told if finding not in findings),
        not_checked=tuple(_not_checked(observed)),
    )


def _in_the_end(
    stage: Stage, findings: Sequence[Diagnosis], deployment: Deployment, other_engine: str | None
) -> list[Diagnosis]:
    """Return what the whole does not tell, and that no fact is one to look at."""
    if other_engine is not None:
        words = f"known of vLLM only, and {other_engine} answers"
        return [Diagnosis(stage=stage, level="PASS", subject="Facts", found=words)]
    if deployment.speculative is None:
        action = "Give the log from the server's start, or its URL: there the engine says whether it speculates."
        words = "not known: what was read does not tell whether it is on"
        return [Diagnosis(stage=stage, level="WARN", subject="Speculation", found=words, action=action)]
    if all(finding.level == "PASS" for finding in findings):
        return [Diagnosis(stage=stage, level="PASS", subject="Facts", found="no known trap found")]
    return []


def _not_checked(observed: Sequence[Observed]) -> Iterator[str]:
    stages = {stage.stage for stage in observed}
    if "log" not in stages and "running" not in stages:
        yield "whether vLLM accepts the arguments, and what it makes of them: it checks them itself at its start"
    if "running" not in stages:
        yield "whether drafts are accepted: only traffic shows it"


def of_command(command: ServerCommand, deployment: Deployment, findings: Sequence[Finding] = ()) -> Observed:
    """Return what arguments show. ``deployment``: theirs, with what else is known before the start."""
    action = "vLLM refuses to start with it: mend the argument."
    unreadable = [Finding("FAIL", "Arguments", words, action) for words in command.problems]
    unreadable += [Finding("WARN", "Arguments", words, _IGNORED_ACTION) for words in command.ignored]
    if command.is_vllms_own:
        unreadable += [_unknown(name, likely) for name, likely in unknown_arguments(command.arguments)]
    unfit = (Finding("FAIL" if refused else "WARN", "Arguments", *said) for *said, refused in misfits(deployment))
    told = tuple(_found("before", finding) for finding in (*unreadable, *unfit, *findings))
    return Observed(stage="before", deployment=deployment, findings=told)


def of_log(reading: LogReading, *, up: bool = False) -> Observed:
    """Return what a log shows of the last start in it. ``up``: the server answers, so a later start succeeded."""
    log = reading.analysis
    findings = failed_starts(log, up=up)
    findings += [Finding("FAIL", "Log", words, "Give a log that can be read.") for words in reading.failures]
    if log.last_config is None and not findings:
        lacks, tells = "no line of a server's start", "the release, the method and k"
        if log.start.arguments is not None:
            lacks, tells = (
                "arguments, but no engine-init line",
                "the release, and what the engine made of the arguments",
            )
        findings.append(Finding("WARN", "Log", lacks, f"Give the log from the server's start: it tells {tells}."))
    elif log.last_config is not None:
        findings.append(Finding("PASS", "Log", f"vLLM {log.last_config.vllm_version} began to start"))
    told = [_found("log", finding) for finding in findings]
    for warned in log.warnings:
        warning = _found("log", warning_finding(warned))
        told.append(msgspec.structs.replace(warning, code=warned.code, releases=warned.releases))
    return Observed(stage="log", deployment=reading.deployment, findings=tuple(told))


def of_running(examination: Examination, evidence: Evidence, *, up: bool) -> Observed:
    """Return what a running server shows: the findings of ``check``, without facts and failed starts.

    ``up``: it answers.
    """
    told = [pitfall_finding(pitfall) for pitfall in examination.pitfalls]
    told += [*failed_starts(examination.log, up=up), *costly_warnings(examination.log)] if examination.log else []
    new = tuple(_found("running", finding) for finding in examination.findings if finding not in told)
    engine = evidence.inference_engine
    return Observed(
        stage="running",
        deployment=evidence.known() if up else Deployment(),
        findings=new,
        other_engine=None if engine is VLLM else engine.name,
    )


def _unknown(name: str, likely: str | None) -> Finding:
    flag = f"--{name.replace('_', '-')}"
    meant = f"Did you mean --{likely.replace('_', '-')}? " if likely else ""
    words = f"{flag} is not checked: no vLLM up to 0.33.0 has it"
    return Finding("WARN", "Arguments", words, f"{meant}Correct or remove it, unless a plugin reads it.")


def together(earlier: Deployment, later: Deployment) -> Deployment:
    """Return what two stages know; the later one wins."""

    def value(field: str) -> Any:
        before, after = getattr(earlier, field), getattr(later, field)
        if isinstance(after, frozenset | dict):
            return before | after
        return max(before, after) if field == "engines" else before if after is None else after

    return Deployment(**{field: value(field) for field in Deployment.__struct_fields__})


def _found(stage: Stage, finding: Finding) -> Diagnosis:
    return Diagnosis(stage=stage, **msgspec.structs.asdict(finding))


def _facts(observed: Sequence[Observed], known: Sequence[Deployment]) -> Iterator[Diagnosis]:
    for fact in known_facts():
        if fact.holds(known[-1]):
            stages = (shown.stage for shown, then in zip(observed, known, strict=True) if fact.holds(then))
            yield _told(fact, known[-1], next(stages))
    if known[-1].release is None:
        action = "Give --release: most facts belong to releases."
        yield Diagnosis(stage=observed[-1].stage, level="WARN", subject="Release", found="not known", action=action)


def _told(fact: Fact, deployment: Deployment, stage: Stage) -> Diagnosis:
    told = fact.told(deployment)
    release = _dotted(deployment)
    checked = f"read in the source of {', '.join(fact.checked)}" if fact.checked else fact.unchecked
    if release in fact.checked:
        checked = f"read in the source of this release, {release}"
    return Diagnosis(
        stage=stage,
        level="WARN" if told.costly else "PASS",
        subject=f"vLLM {told.releases}",
        found=told.meaning,
        action=told.action,
        code=told.code,
        releases=told.releases,
        sources=fact.sources,
        checked=checked,
    )


def _differences(observed: Sequence[Observed], known: Sequence[Deployment]) -> Iterator[Diagnosis]:
    """Say where a stage contradicts the one before it: it may be another server's."""
    for index, shown in enumerate(observed[1:]):
        before, after = known[index], shown.deployment
        for field, word in _SAME.items():
            one, other = getattr(before, field), getattr(after, field)
            is_fetched = "://" in str(one)  # the server knows the folder that KServe fetches it to
            if None in (one, other) or is_fetched or _alike(one) == _alike(other):
                continue
            source = _STAGE_WORDS[observed[index].stage]
            words = f"{source}: {word} {_word(one)}, {_STAGE_WORDS[shown.stage]}: {word} {_word(other)}"
            action = "Give what belongs to one server, or restart it with its new arguments."
            yield _found(shown.stage, Finding("WARN", "Not the same", words, action))


def _alike(value: Any) -> Any:
    return canonical_method(value) if isinstance(value, str) else value


def _word(value: Any) -> str:
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _in_words(deployment: Deployment) -> dict[str, str]:
    """Say what was looked at."""
    words = {"Release": _dotted(deployment) or "not known"}
    if deployment.model is not None:
        words["Model"] = ", ".join(filter(None, (deployment.model, deployment.quantization)))
    if deployment.speculative:
        k = deployment.num_speculative_tokens
        parts = (deployment.method or "method not known", None if k is None else f"k = {k}", deployment.draft_model)
        words["Speculation"] = ", ".join(filter(None, parts))
    else:
        words["Speculation"] = "not known" if deployment.speculative is None else "off"
    return words


def _dotted(deployment: Deployment) -> str | None:
    return None if deployment.release is None else ".".join(map(str, deployment.release))
