"""The examination behind ``doctor``: what the arguments of a server, its log and its metrics say together. Pure.

Each stage adds to what is known: the arguments (before the start), the log (after it), the metrics (while it runs). A
fact belongs to the first stage that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal

import msgspec

from specdec_exporter.formatting import decimal, size
from specdec_exporter.inspection.examination import Examination, LogReading, Look, failed_starts, pitfall_finding
from specdec_exporter.predictor.arguments import ServerCommand
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.facts.known import TOPICS, Fact, facts_of, load_facts
from specdec_exporter.predictor.facts.starting import starting_point
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.speculation.memory import MemoryBudget, memory_budget
from specdec_exporter.speculation.verdict import Finding, Level

Stage = Literal["before", "log", "running"]
_LEVELS: Final[Mapping[str, Level]] = {"fail": "FAIL", "warn": "WARN", "note": "PASS"}
_WORST_FIRST: Final[tuple[Level, ...]] = ("FAIL", "WARN", "PASS")
_UTILIZATION: Final = 0.9  # vLLM's default in most releases; 0.32.0 has 0.92
# What is guessed with a size.
_DERIVED: Final[Mapping[str, frozenset[str]]] = {
    "target_parameters": frozenset({"draft_ratio"}),
    "draft_parameters": frozenset({"draft_ratio"}),
    "target_bytes": frozenset({"target_memory_share"}),
    "draft_bytes": frozenset({"draft_memory_share"}),
}
_GUESS: Final = "The size is a guess from the model's name."
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
    """What one stage shows by itself."""

    stage: Stage
    deployment: Deployment
    findings: tuple[Diagnosis, ...] = ()


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """What to start with, for a server that does not speculate."""

    speculative_config: dict[str, Any]
    why: str
    needs: str
    sources: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What ``doctor`` tells. ``findings`` are worst first, ``notes`` good to know, ``checklist`` what it cannot see."""

    level: Level
    looked_at: dict[str, str]
    findings: tuple[Diagnosis, ...]
    notes: tuple[Diagnosis, ...]
    memory: MemoryBudget | None
    suggestion: Suggestion | None
    checklist: tuple[str, ...]


def diagnose(
    observed: Sequence[Observed],
    looked_at: Mapping[str, str],
    *,
    names: Sequence[str] = (),
    guessed: frozenset[str] = frozenset(),
) -> Report:
    """Judge what the stages show, which are in their order; at least one.

    ``looked_at``: more about what was looked at, by its name. ``names``: of the target. ``guessed``: the fields of
    the deployments whose values come from a name.
    """
    known = list(accumulate((each.deployment for each in observed), together))
    whole = known[-1]
    guessed = guessed.union(*(_DERIVED.get(field, frozenset()) for field in guessed))
    findings = [finding for each in observed for finding in each.findings]
    findings += _differences(observed, known)
    for fact in facts_of(whole):
        stages = zip(observed, known, strict=True)
        stage = next((each.stage for each, then in stages if fact.holds(then)), observed[-1].stage)
        findings.append(_told(fact, whole, stage, guessed))
    memory = memory_budget(
        whole.gpu_memory_bytes, whole.gpu_memory_utilization or _UTILIZATION, whole.target_bytes, _draft_bytes(whole)
    )
    if memory is not None and memory.left_bytes <= 0:
        findings.append(_no_room(memory, guessed))
    notes = [finding for finding in findings if finding.level == "PASS" and finding.code is not None]
    findings = [finding for finding in findings if finding not in notes]
    if all(finding.level == "PASS" for finding in findings):
        count = sum(len(load_facts(topic)) for topic in TOPICS)
        found = f"none of the {count} that are known speaks against it"
        findings.append(Diagnosis(stage=observed[-1].stage, level="PASS", subject="Facts", found=found))
    findings.sort(key=lambda finding: _WORST_FIRST.index(finding.level))
    return Report(
        level=findings[0].level,
        looked_at={**_in_words(whole, guessed), **looked_at},
        findings=tuple(findings),
        notes=tuple(notes),
        memory=memory,
        suggestion=_suggestion(whole, names) if whole.speculative is False else None,
        checklist=_LEVER_CHECKLIST if whole.speculative is False else _checklist(whole),
    )


def of_command(command: ServerCommand, deployment: Deployment, findings: Sequence[Diagnosis] = ()) -> Observed:
    """Return what arguments show. ``deployment``: theirs, with what else is known before the start."""
    unreadable = [
        _found("before", Finding("FAIL", "Arguments", words, "vLLM refuses to start with it: mend the argument."))
        for words in command.problems
    ]
    if "speculative_config" in command.arguments and command.arguments["speculative_config"] is None:
        deployment = msgspec.structs.replace(deployment, speculative=None)
    return Observed(stage="before", deployment=deployment, findings=(*unreadable, *findings))


def of_log(reading: LogReading, *, up: bool = False) -> Observed:
    """Return what a log shows of the last start in it. ``up``: the server answers, so a later start succeeded."""
    log = reading.analysis
    findings = failed_starts(log, up=up)
    findings += [Finding("FAIL", "Log", words, "Give a log that can be read.") for words in reading.failures]
    if log.last_config is None and not findings:
        action = "Give the log from the server's start: it tells the release, the method and k."
        findings.append(Finding("WARN", "Log", "no line of a server's start", action))
    elif log.last_config is not None:
        findings.append(Finding("PASS", "Log", f"vLLM {log.last_config.vllm_version} began to start"))
    warnings = (
        Diagnosis(
            stage="log",
            level="PASS",
            subject="Warning in the log",
            found=warning.meaning,
            action=warning.action,
            code=warning.code,
            releases=warning.releases,
        )
        for warning in log.warnings
    )
    found = (*(_found("log", finding) for finding in findings), *warnings)
    return Observed(stage="log", deployment=reading.deployment, findings=found)


def of_running(examination: Examination, look: Look) -> Observed:
    """Return what a running server shows: the findings of ``check``, without facts and failed starts."""
    told = [pitfall_finding(pitfall) for pitfall in examination.pitfalls]
    told += failed_starts(examination.log, up=look.up) if examination.log else []
    found = tuple(_found("running", finding) for finding in examination.findings if finding not in told)
    return Observed(stage="running", deployment=look.evidence.known() if look.up else Deployment(), findings=found)


def together(earlier: Deployment, later: Deployment) -> Deployment:
    """Return what two stages know; the later one wins."""

    def value(field: str) -> Any:
        before, after = getattr(earlier, field), getattr(later, field)
        if isinstance(after, frozenset):
            return before | after
        return max(before, after) if field == "engines" else before if after is None else after

    return Deployment(**{field: value(field) for field in Deployment.__struct_fields__})


def _found(stage: Stage, finding: Finding) -> Diagnosis:
    return Diagnosis(stage=stage, **msgspec.structs.asdict(finding))


def _told(fact: Fact, deployment: Deployment, stage: Stage, guessed: frozenset[str]) -> Diagnosis:
    told = fact.told(deployment)
    level = _LEVELS[fact.level]
    found = told.meaning
    if guessed & {*fact.when, *fact.unless}:
        found = f"{found} {_GUESS}"
        level = "WARN" if level == "FAIL" else level
    release = _dotted(deployment)
    checked = f"read in the source of {', '.join(fact.checked)}"
    if release in fact.checked:
        checked = f"read in the source of this release, {release}"
    return Diagnosis(
        stage=stage,
        level=level,
        subject=f"vLLM {fact.releases}",
        found=found,
        action=told.action,
        code=fact.code,
        releases=fact.releases,
        sources=fact.sources,
        checked=checked if fact.checked else fact.unchecked,
    )


def _differences(observed: Sequence[Observed], known: Sequence[Deployment]) -> Iterator[Diagnosis]:
    """Say where a stage contradicts the one before it: it may be another server's."""
    for index, each in enumerate(observed[1:]):
        before, after = known[index], each.deployment
        for field, word in _SAME.items():
            one, other = getattr(before, field), getattr(after, field)
            if None in (one, other) or _alike(one) == _alike(other):
                continue
            source = _STAGE_WORDS[observed[index].stage]
            words = f"{source}: {word} {_word(one)}, {_STAGE_WORDS[each.stage]}: {word} {_word(other)}"
            action = "Give what belongs to one server, or restart it with its new arguments."
            yield _found(each.stage, Finding("WARN", "Not the same", words, action))


def _alike(value: Any) -> Any:
    return canonical_method(value) if isinstance(value, str) else value


def _word(value: Any) -> str:
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _draft_bytes(deployment: Deployment) -> float | None:
    """Return the size of the draft; 0 if it has no weights of its own, ``None`` if it is not known."""
    return 0.0 if deployment.draft_model is None else deployment.draft_bytes


def _no_room(memory: MemoryBudget, guessed: frozenset[str]) -> Diagnosis:
    weights = memory.target_bytes + (memory.draft_bytes or 0)
    found = (
        f"the weights take {size(round(weights))}, and vLLM may use {size(round(memory.budget_bytes))}: "
        "nothing is left for the KV cache"
    )
    is_guess = bool(guessed & {"target_bytes", "draft_bytes"})
    action = "Use more GPUs, a smaller draft or a quantised model."
    level: Level = "WARN" if is_guess else "FAIL"
    return _found("before", Finding(level, "Memory", f"{found}. {_GUESS}" if is_guess else found, action))


def _in_words(deployment: Deployment, guessed: frozenset[str]) -> dict[str, str]:
    """Say what was looked at."""
    words = {"Release": _dotted(deployment) or "not known, and most facts belong to releases: give --release"}
    if deployment.model is not None:
        parts = (deployment.model, *_size_words(deployment, "target", guessed), deployment.quantization)
        words["Model"] = ", ".join(filter(None, parts))
    if deployment.speculative:
        k = deployment.num_speculative_tokens
        parts = (deployment.method or "method not given", None if k is None else f"k = {k}", deployment.draft_model)
        words["Speculation"] = ", ".join(filter(None, (*parts, *_size_words(deployment, "draft", guessed))))
    elif deployment.speculative is False:
        words["Speculation"] = "off"
    sizes = {"TP": deployment.tensor_parallel_size, "PP": deployment.pipeline_parallel_size}
    sizes["DP"] = deployment.data_parallel_size
    parallel = [f"{name} {number}" for name, number in sizes.items() if number is not None]
    memory = deployment.gpu_memory_bytes
    if parallel or memory is not None:
        words["GPUs"] = ", ".join([*parallel, *([] if memory is None else [f"{size(round(memory))} together"])])
    return words


def _size_words(deployment: Deployment, part: str, guessed: frozenset[str]) -> Iterator[str]:
    parameters, weights = getattr(deployment, f"{part}_parameters"), getattr(deployment, f"{part}_bytes")
    if parameters is not None:
        yield f"{decimal(parameters / 1e9)} billion parameters{_mark(f'{part}_parameters', guessed)}"
    if weights is not None:
        yield f"{size(round(weights))} of weights{_mark(f'{part}_bytes', guessed)}"


def _mark(field: str, guessed: frozenset[str]) -> str:
    return " (guessed from the name)" if field in guessed else ""


def _dotted(deployment: Deployment) -> str | None:
    return None if deployment.release is None else ".".join(map(str, deployment.release))


def _suggestion(deployment: Deployment, names: Sequence[str]) -> Suggestion | None:
    """Return what to start with, unless a fact says that speculation is the wrong lever."""
    if any(fact.level != "note" for fact in facts_of(deployment, ["lever"])):
        return None
    point = starting_point(deployment, names)
    return Suggestion(
        speculative_config=point.config(deployment), why=point.why, needs=point.needs, sources=point.sources
    )


def _checklist(deployment: Deployment) -> tuple[str, ...]:
    return _CHECKLIST if deployment.draft_model is None else (_DRAFT_CHECK, *_CHECKLIST)


_DRAFT_CHECK: Final = (
    "Draft: it belongs to exactly this target, and gives each token the same number (--target-path and --draft-path "
    "compare tokenizers)."
)
_CHECKLIST: Final = (
    "Traffic: drafts fit the kind of text that the draft learnt. Elsewhere they are rejected, and no line says so.",
    "Temperature: acceptance falls as it rises. Measure with the temperatures that your clients send.",
    "Load: what pays with 8 requests at once may cost with 32. `compare` measures it at yours.",
)
_LEVER_CHECKLIST: Final = (
    "Answers of one token, embeddings and scores have nothing to draft: leave speculation off.",
    "Long prompts with short answers: speculation does not shorten the time to the first token.",
    "Many requests at once: the GPU has no time left for drafts. Measure at your load with `compare`.",
)
