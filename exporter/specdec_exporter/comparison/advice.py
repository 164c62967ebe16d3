"""What to run, of several recordings: the fastest one at the load that was recorded most, or a k by load. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.decision import times
from specdec_exporter.comparison.fastest import Fastest, Line, stops_paying
from specdec_exporter.comparison.schedule import Plan, in_words, plan
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.policy import Policy

AdviceCode = Literal["use", "off", "undecided", "record_more", "unknown"]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run at the load that was recorded most (``concurrency``), of the loads at which that is known.

    ``num_speculative_tokens`` is 0 for no speculation, and ``null`` where it is not known what to run. ``speedup`` is
    that of the fastest recording at this load. ``stops_paying_at`` is the concurrency at which the fastest one falls
    below 1. ``speculative_config`` is the value of ``--speculative-config``, ``null`` unless ``code`` is ``use``.
    """

    code: AdviceCode
    concurrency: float | None
    recording: str | None
    method: str | None
    num_speculative_tokens: int | None
    speedup: Estimate | None
    stops_paying_at: Estimate | None
    speculative_config: dict[str, Any] | None
    headline: str
    reasons: tuple[str, ...]
    action: str


def advise(
    fastest: Sequence[Fastest], lines: Sequence[Line], recordings: Mapping[str, Baseline], policy: Policy
) -> Advice:
    """Say what to run; ``recordings`` has those of ``lines`` by name."""
    known = [each for each in fastest if not each.unjudged]
    present = max(known, key=lambda each: (each.seconds, each.concurrency_bound), default=None)
    unjudged = {name for each in fastest for name in each.unjudged}
    if present is None or unjudged - {present.recording}:
        return _withheld(fastest, [line for line in lines if line.recording in unjudged], policy)
    found = plan(fastest, present, recordings)
    code: AdviceCode = "use" if _pays_by_load(fastest, found) else _code(present, policy)
    line = next((line for line in lines if line.recording == present.recording), None)
    used, runs = (found, line) if code == "use" else (Plan(None), None)
    headline, action = _words(code, present, line, used)
    return Advice(
        code=code,
        concurrency=present.concurrency,
        recording=runs.recording if runs else None,
        method=runs.method if runs else None,
        num_speculative_tokens=_k(code, runs),
        speedup=present.speedup,
        stops_paying_at=_stops_paying(fastest),
        speculative_config=used.config,
        headline=headline,
        reasons=tuple(_reasons(fastest, present, lines, used)),
        action=action,
    )


def _pays_by_load(fastest: Sequence[Fastest], found: Plan) -> bool:
    """Whether k is chosen by load, and the gain is beyond chance at one of them at least."""
    return bool(found.by_load) and any(_is_gain(each.speedup) for each in fastest if each.recording)


def _code(present: Fastest, policy: Policy) -> AdviceCode:
    least, found = policy.latency.speedup_min, present.speedup
    if _is_gain(found) and found.value >= least:
        return "use"
    return "off" if found.high is not None and found.high < least else "undecided"


def _is_gain(found: Estimate) -> bool:
    return found.low is not None and found.low > 1.0


def _k(code: AdviceCode, line: Line | None) -> int | None:
    if code == "use":
        return line.num_speculative_tokens if line else 0
    return 0 if code == "off" else None


def called(line: Line) -> str:
    """Return what a recording is called: ``k3.yaml (eagle3, k = 3)``."""
    k = f", k = {line.num_speculative_tokens}" if line.num_speculative_tokens else ""
    return f"{line.recording} ({line.method or 'method unknown'}{k})"


def _words(code: AdviceCode, present: Fastest, line: Line | None, found: Plan) -> tuple[str, str]:
    """Return headline and next step."""
    here = f"at {present.concurrency:.1f} running"
    measured = f"{times(present.speedup)} {here}"
    run = "Run this configuration" if found.config else f"Run {present.recording or 'without speculation'}"
    if code == "use" and found.by_load:
        return f"The fastest k by load: {in_words(found.by_load)}", f"{run}, record it, and compare again."
    if code == "use" and line:
        return f"{called(line)} is fastest: {measured}", f"{run}."
    if code == "off":
        action = "Run without --speculative-config at this load. Look at the acceptance, the temperature and the load."
        return f"No recording is faster than no speculation: the best one {measured}", action
    name = called(line) if line else "any recording"
    return f"Whether {name} pays is not decided: {measured}", "Record longer, then compare again."


def _withheld(fastest: Sequence[Fastest], unjudged: Sequence[Line], policy: Policy) -> Advice:
    """Return no advice: nothing was compared, or what was not compared at some load may be faster than what was."""
    cost = policy.cost
    least = f"a load needs {cost.min_steps} request-steps in {cost.min_intervals} intervals"
    code: AdviceCode = "unknown"
    headline = "No recording shares a load with the one without speculation, so nothing is recommended"
    action = f"Record all at the same loads, for longer: {least}."
    if unjudged:
        code = "record_more"
        headline = (
            f"{_list([called(line) for line in unjudged])} may be the fastest, but was not compared at every load"
        )
        ran = [f"{line.recording} ran at about {_own_load(line):.1f}" for line in unjudged if line.by_load]
        action = f"Record all at the same loads ({', '.join((*ran, least))})."
    return Advice(
        code=code,
        concurrency=None,
        recording=None,
        method=None,
        num_speculative_tokens=None,
        speedup=None,
        stops_paying_at=None,
        speculative_config=None,
        headline=headline,
        reasons=tuple(_unjudged_loads(fastest)),
        action=action,
    )


def _own_load(line: Line) -> float:
    """Return the concurrency at which a recording spent most of its time."""
    return max(line.by_load, key=lambda each: each.seconds).concurrency


def _reasons(fastest: Sequence[Fastest], present: Fastest, lines: Sequence[Line], found: Plan) -> Iterator[str]:
    yield _where_it_pays(fastest)
    here = f"at {present.concurrency:.1f} running"
    for line in lines:
        speedup = line.speedup_at(present.concurrency_bound)
        if line.recording == present.recording:
            continue
        if speedup is None:
            yield f"{called(line)} was not compared {here}"
        elif present.recording is None:
            yield f"{called(line)} against no speculation {here}: {times(speedup)}"
        elif line.recording in present.within_chance:
            yield f"{called(line)} is within chance of it {here}: {times(speedup)}"
        else:
            yield f"{called(line)} is slower {here}: {times(speedup)}"
    yield from _unjudged_loads(fastest)
    doubtful = [each for each in fastest if each.recording and not each.unjudged and not _is_gain(each.speedup)]
    if found.by_load and doubtful:
        loads = ", ".join(f"{times(each.speedup)} at {each.concurrency:.1f}" for each in doubtful)
        yield f"whether speculation pays is not decided at every load: {loads} running"
    yield from found.notes


def _stops_paying(fastest: Sequence[Fastest]) -> Estimate | None:
    return stops_paying([(each.concurrency, each.speedup) for each in fastest])


def _where_it_pays(fastest: Sequence[Fastest]) -> str:
    """Say at which load speculation stops paying, whichever recording is fastest."""
    loads = [f"{each.concurrency:.1f}" for each in fastest]
    paying = [load for load, each in zip(loads, fastest, strict=True) if _is_gain(each.speedup)]
    if found := _stops_paying(fastest):
        interval = "" if found.low is None or found.high is None else f" ({found.low:.1f} to {found.high:.1f})"
        return f"speculation stops paying at about {found.value:.1f}{interval} running"
    if paying == loads:
        return f"speculation pays at every recorded load: {', '.join(loads)} running"
    if not paying:
        return f"speculation is shown to pay at no recorded load: {', '.join(loads)} running"
    return f"speculation pays at {', '.join(paying)} running, beyond chance"


def _unjudged_loads(fastest: Sequence[Fastest]) -> Iterator[str]:
    for each in fastest:
        if each.unjudged:
            names = _list(each.unjudged)
            yield f"at {each.concurrency:.1f} running nothing is recommended: {names} may be faster, not compared there"


def _list(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
