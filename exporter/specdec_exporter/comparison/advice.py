"""What to run, of several recordings: the fastest at the load that was recorded most, or a k by load. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.byload import Line
from specdec_exporter.comparison.choice import Choice, is_gain, most_recorded, stops_paying
from specdec_exporter.comparison.decision import times
from specdec_exporter.comparison.schedule import Plan, in_words, plan
from specdec_exporter.formatting import seconds
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import Policy

AdviceCode = Literal["use", "off", "undecided", "record_more", "unknown"]
_LOAD = "requests in decode"


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run at the load that was recorded most (``concurrency``), of the loads at which a speed-up is known.

    ``recording``, ``method`` and ``num_speculative_tokens`` are of what to run there; k is 0 for no speculation, and
    ``null`` where it is not known what to run. ``speedup`` is its speed-up at this load; that of the fastest recording
    if none is to run. ``stops_paying_at`` is the concurrency at which even the fastest falls below 1.
    ``speculative_config`` is the value of ``--speculative-config``, ``null`` unless ``code`` is ``use``. The first
    reason says where speculation pays. ``action`` is the next step.
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
    choices: Sequence[Choice], lines: Sequence[Line], recordings: Mapping[str, Baseline], policy: Policy
) -> Advice:
    """Say what to run; ``recordings`` has those of ``lines`` by name."""
    present = most_recorded(choices)
    by_name = {line.recording: line for line in lines}
    if present is None or present.speedup is None or present.unjudged:
        return _withheld(present, choices, by_name)
    known = next(run for run in _known_runs(choices) if present in run)
    found = plan(known, present, by_name, recordings)
    pays_somewhere = any(is_gain(_speedup(each, by_name)) for each in known)
    line = by_name[present.recording] if present.recording else None
    code: AdviceCode = "use" if found.ranges and pays_somewhere else _code(present, line, policy)
    used = found if code == "use" else Plan(None)
    runs = line if code == "use" else None
    headline, action = _words(code, present, line, known, used, by_name)
    return Advice(
        code=code,
        concurrency=present.concurrency,
        recording=runs.recording if runs else None,
        method=runs.method if runs else None,
        num_speculative_tokens=(runs.num_speculative_tokens if runs else 0) if code in ("use", "off") else None,
        speedup=_speedup(present, by_name) if runs else present.speedup,
        stops_paying_at=stops_paying(known),
        speculative_config=used.config,
        headline=headline,
        reasons=(_where_it_pays(known), *_others(present, lines), *_unknown(choices, by_name), *used.notes),
        action=action,
    )


def _known_runs(choices: Sequence[Choice]) -> list[list[Choice]]:
    """Return the runs of neighbouring loads at which it is known what to run."""
    return [list(run) for known, run in groupby(choices, key=lambda each: each.known) if known]


def _speedup(choice: Choice, lines: Mapping[str, Line]) -> Estimate | None:
    """Return the speed-up of what is to run at a load."""
    return lines[choice.recording].speedup_at(choice.concurrency) if choice.recording else None


def _code(present: Choice, line: Line | None, policy: Policy) -> AdviceCode:
    least, best = policy.latency.speedup_min, present.speedup
    if best is not None and best.high is not None and best.high < least:
        return "off"
    found = line.speedup_at(present.concurrency) if line else None
    return "use" if found is not None and is_gain(found) and found.value >= least else "undecided"


def called(line: Line) -> str:
    """Return what a recording is called: ``k3.yaml (eagle3, k = 3)``."""
    k = f", k = {line.num_speculative_tokens}" if line.num_speculative_tokens else ""
    return f"{line.recording} ({line.method or 'method unknown'}{k})"


def _words(
    code: AdviceCode,
    present: Choice,
    line: Line | None,
    known: Sequence[Choice],
    found: Plan,
    lines: Mapping[str, Line],
) -> tuple[str, str]:
    """Return headline and next step."""
    fastest = lines[present.fastest] if present.fastest else line
    if code == "use":
        gains = ", ".join(_gains(present, line, known, lines))
        if found.ranges:
            again = "Run this configuration, record it, and compare again."
            return f"Run a k by load, {in_words(found.ranges)}: {gains}.", found.action or again
        name = called(line) if line else "it"
        return f"Run {name}: {gains}.", found.action or f"Run {line.recording if line else 'it'}."
    best = f"{called(fastest) if fastest else 'the fastest'} {times(present.speedup)} at {_load(present)} {_LOAD}"
    if code == "off":
        action = "Run without --speculative-config at this load. Look at the acceptance, the temperature and the load."
        return f"Run without speculation: no recording is faster. The best is {best}.", action
    return f"It is not decided whether speculation pays: {best}.", "Record longer, then compare again."


def _gains(present: Choice, line: Line | None, known: Sequence[Choice], lines: Mapping[str, Line]) -> Iterator[str]:
    """Yield the speed-up at the load that was recorded most, then at the ends of the loads at which drafts run."""
    if line:
        yield f"{times(line.speedup_at(present.concurrency))} at {_load(present)} {_LOAD}"
    drafting = [each for each in known if each.recording]
    for each in drafting[:1] + drafting[1:][-1:]:
        found = _speedup(each, lines)
        if each is not present and found is not None:
            yield f"{found.value:.2f}x at {_load(each)}"


def _withheld(present: Choice | None, choices: Sequence[Choice], lines: Mapping[str, Line]) -> Advice:
    """Return no advice: nothing was compared, or what was not compared may be faster than what was."""
    ran = [f"{called(line)} {_where(line)}" for line in lines.values()]
    if present is None:
        code: AdviceCode = "unknown"
        headline = "It is not known what to run: no recording ran near a load of the one without speculation."
        reasons, action = ran, "Record all at the same loads, for at least ten minutes each."
    else:
        code, names = "record_more", [lines[name] for name in present.unjudged]
        here = f"at {_load(present)} {_LOAD}"
        headline = f"Record more: {_list([called(line) for line in names])} may be the fastest {here}, and is not known."
        reasons = [_slower(line, present, lines) for line in names] + list(_unknown(choices, lines))
        ran = [f"{line.recording} {_where(line)}" for line in names]
        action = f"Record {_list([line.recording for line in names])} {here} too ({'; '.join(ran)})."
    return Advice(
        code=code,
        concurrency=present.concurrency if present else None,
        recording=None,
        method=None,
        num_speculative_tokens=None,
        speedup=None,
        stops_paying_at=None,
        speculative_config=None,
        headline=headline,
        reasons=tuple(reasons),
        action=action,
    )


def _slower(line: Line, present: Choice, lines: Mapping[str, Line]) -> str:
    """Say why a recording that was not compared may be faster."""
    own, name = line.mean_time_per_output_token_seconds, present.recording or "no speculation"
    if own is None:
        return f"The time per output token of {line.recording} was not recorded."
    other = lines[present.recording].mean_time_per_output_token_seconds if present.recording else None
    than = f" ({seconds(other)})" if other is not None else ""
    return f"{line.recording} took {seconds(own)} per output token, less than {name}{than}."


def _where(line: Line) -> str:
    if line.least_concurrency is None or line.most_concurrency is None:
        return "has too few step times"
    return f"ran at {line.least_concurrency:.1f} to {line.most_concurrency:.1f} {_LOAD}"


def _others(present: Choice, lines: Sequence[Line]) -> Iterator[str]:
    """Yield the speed-up of each recording that is not to run."""
    here = f"at {_load(present)} {_LOAD}"
    for line in lines:
        if line.recording != present.recording:
            found = line.speedup_at(present.concurrency)
            yield f"{called(line)} {here}: {times(found) if found else f'not known, it {_where(line)}'}."


def _unknown(choices: Sequence[Choice], lines: Mapping[str, Line]) -> Iterator[str]:
    """Yield the loads at which it is not known what to run, and why."""
    for each in choices:
        here = f"At {_load(each)} {_LOAD} it is not known what to run"
        if each.speedup is None:
            yield f"{here}: no recording ran near it beside one without speculation."
        elif each.unjudged:
            yield f"{here}: {_list([called(lines[name]) for name in each.unjudged])} may be faster, but ran elsewhere."


def _where_it_pays(known: Sequence[Choice]) -> str:
    """Say at which load speculation stops paying, whichever recording is fastest."""
    if found := stops_paying(known):
        low, high = ("?" if end is None else f"{end:.0f}" for end in (found.low, found.high))
        interval = "" if found.low is None and found.high is None else f" ({low} to {high})"
        return f"Above about {found.value:.0f}{interval} {_LOAD} speculation stops paying."
    paying = [_load(each) for each in known if is_gain(each.speedup)]
    if len(paying) == len(known):
        return f"Speculation pays at every load that was compared: {', '.join(paying)} {_LOAD}."
    if not paying:
        return f"Speculation is shown to pay at no load: {', '.join(map(_load, known))} {_LOAD} were compared."
    return f"Speculation pays beyond chance at {', '.join(paying)} {_LOAD}."


def _load(choice: Choice) -> str:
    return f"{choice.concurrency:g}"


def _list(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
