"""What to run, of several recordings: the fastest at the load that was recorded most, or a k by load. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.byload import Line
from specdec_exporter.comparison.choice import Choice, is_gain, stops_paying
from specdec_exporter.comparison.decision import in_words, times
from specdec_exporter.comparison.schedule import Plan, limits, plan
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import Policy

AdviceCode = Literal["use", "off", "undecided", "record_more", "unknown"]
_TEN = 10.0


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run at the load that was recorded most (``concurrency``), of the loads at which a speed-up is known.

    ``recording``, ``method`` and ``num_speculative_tokens`` are of what to run there; k is 0 for no speculation, and
    ``null`` where it is not known what to run. ``speedup`` is its speed-up at this load, or that of the fastest
    recording if none is to run. ``stops_paying_at`` is the concurrency at which even the fastest falls below 1.
    ``speculative_config`` is the value of ``--speculative-config``, ``null`` unless ``code`` is ``use``. ``outlook``
    says where speculation pays, ``action`` what to do next, and ``reasons`` what else to know.
    """

    code: AdviceCode
    concurrency: float | None = None
    recording: str | None = None
    method: str | None = None
    num_speculative_tokens: int | None = None
    speedup: Estimate | None = None
    stops_paying_at: Estimate | None = None
    speculative_config: dict[str, Any] | None = None
    headline: str
    outlook: str
    reasons: tuple[str, ...] = ()
    action: str


def advise(
    choices: Sequence[Choice], lines: Mapping[str, Line], recordings: Mapping[str, Baseline], policy: Policy
) -> Advice:
    """Say what to run; ``lines`` and ``recordings`` are by name."""
    present = max((each for each in choices if each.best), key=lambda each: each.recorded_seconds, default=None)
    unknown = tuple(_unknown(choices, lines))
    if present is None or present.best is None or present.fastest is None:
        return Advice(
            code="unknown",
            headline="It is not known what to run: no recording ran near a load of the one without speculation.",
            outlook=_where(lines.values()),
            action="Record all at the same loads, for at least ten minutes each.",
        )
    if present.unjudged:
        here, unjudged = _here(present), [lines[name] for name in present.unjudged]
        return Advice(
            code="record_more",
            headline=f"Record more: {in_words(map(called, unjudged))} may be the fastest, but is not known {here}.",
            outlook=f"{_where(unjudged)} Its time per output token is the lowest, or was not recorded.",
            reasons=unknown,
            action=f"Record {in_words(present.unjudged)} {here} too, or the one without speculation at its load.",
        )
    known = next(run for run in _runs(choices) if present in run)
    found = plan(known, present, lines, recordings)
    code = _code(present, known, found, policy.latency.speedup_min)
    line = lines[present.recording] if present.recording else None
    best = f"{called(lines[present.fastest])}, {times(present.best)} {_here(present)}"
    common: dict[str, Any] = {
        "code": code,
        "concurrency": present.concurrency,
        "speedup": present.best,
        "stops_paying_at": stops_paying(known),
        "outlook": _outlook(known),
        "reasons": unknown + (found.notes if code == "use" else ()),
    }
    if code == "off":
        action = "Look at the acceptance, the temperature and the load."
        headline = f"Run no speculation: the best is {best}."
        return Advice(**common, num_speculative_tokens=0, headline=headline, action=action)
    if code == "undecided":
        headline = f"It is not decided what to run: {best}."
        return Advice(**common, headline=headline, action="Record longer, then compare again.")
    return Advice(**common | _use(present, known, found, line))


def _use(present: Choice, known: Sequence[Choice], found: Plan, line: Line | None) -> dict[str, Any]:
    """Return the fields of advice to speculate; ``line``: what runs at the load that was recorded most."""
    what = f"k by load ({limits(found.ranges)})" if found.ranges else called(line) if line else ""
    fields: dict[str, Any] = {"headline": f"Run {what}: {_gains(present, known)}.", "action": found.action}
    fields |= {"speculative_config": found.config, "num_speculative_tokens": 0}
    if line is not None:
        fields |= {"recording": line.recording, "method": line.method, "speedup": present.speedup}
        fields["num_speculative_tokens"] = line.num_speculative_tokens
    return fields


def _code(present: Choice, known: Sequence[Choice], found: Plan, least: float) -> Literal["use", "off", "undecided"]:
    speedup, best = present.speedup, present.best
    if speedup is not None and is_gain(speedup) and speedup.value >= least:
        return "use"
    if found.ranges and any(is_gain(each.speedup) for each in known):
        return "use"
    return "off" if best is not None and best.high is not None and best.high < least else "undecided"


def _here(choice: Choice) -> str:
    return f"at {shown(choice.concurrency)} requests in decode"


def called(line: Line) -> str:
    """Return what a recording is called: ``k3.yaml (eagle3, k = 3)``."""
    k = f", k = {line.num_speculative_tokens}" if line.num_speculative_tokens else ""
    return f"{line.recording} ({line.method or 'method unknown'}{k})"


def _runs(choices: Sequence[Choice]) -> list[list[Choice]]:
    """Return the runs of neighbouring loads at which it is known what to run."""
    return [list(run) for known, run in groupby(choices, key=lambda each: each.known) if known]


def _gains(present: Choice, known: Sequence[Choice]) -> str:
    """Return the speed-up at the load that was recorded most, then at the ends of the loads at which drafts run."""
    drafting = [each for each in known if each.speedup]
    ends = [each for each in (drafting[0], drafting[-1]) if each is not present]
    found = [f"{times(present.speedup)} at {shown(present.concurrency)}"] * (present in drafting)
    found += dict.fromkeys(f"{times(each.speedup).split()[0]} at {shown(each.concurrency)}" for each in ends)
    return ", ".join((f"{found[0]} requests in decode", *found[1:]))


def _where(lines: Iterable[Line]) -> str:
    return " ".join(
        f"{line.recording} ran at about {shown(line.concurrency)} requests in decode."
        if line.concurrency
        else f"{line.recording} has no step times."
        for line in lines
    )


def _unknown(choices: Sequence[Choice], lines: Mapping[str, Line]) -> Iterator[str]:
    """Yield the loads at which it is not known what to run, and why."""
    for each in choices:
        here = f"At {shown(each.concurrency)} requests in decode it is not known what to run"
        if each.best is None:
            yield f"{here}: it was recorded only with speculation, or only without."
        elif each.unjudged:
            unjudged = in_words(called(lines[name]) for name in each.unjudged)
            yield f"{here}: {unjudged} may be faster, but ran elsewhere."


def _outlook(known: Sequence[Choice]) -> str:
    """Say at which load speculation stops paying, whichever recording is fastest."""
    if found := stops_paying(known):
        low, high = ("?" if end is None else shown(end) for end in (found.low, found.high))
        return f"Above about {shown(found.value)} ({low} to {high}) requests in decode speculation stops paying."
    paying = [shown(each.concurrency) for each in known if is_gain(each.best)]
    loads = "every load" if len(paying) == len(known) else ", ".join(paying) or "no load"
    compared = ", ".join(shown(each.concurrency) for each in known)
    return f"Of {compared} requests in decode, speculation is shown to pay at {loads}."


def shown(concurrency: float) -> str:
    """Return a number of requests in decode: ``2.4``, ``24``."""
    return f"{concurrency:.1f}" if concurrency < _TEN else f"{concurrency:.0f}"
