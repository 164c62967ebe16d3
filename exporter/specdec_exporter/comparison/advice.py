"""What to run, of several recordings: the fastest at the load that was recorded most, or a k by load. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.byload import Line
from specdec_exporter.comparison.choice import Choice, is_gain, stops_paying
from specdec_exporter.comparison.decision import times
from specdec_exporter.comparison.schedule import in_words, plan
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import Policy

AdviceCode = Literal["use", "off", "undecided", "record_more", "unknown"]


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
    present = max((each for each in choices if each.best), key=lambda each: each.step_seconds, default=None)
    unknown = tuple(_unknown(choices, lines))
    if present is None or present.best is None or present.fastest is None:
        return Advice(
            code="unknown",
            headline="It is not known what to run: no recording ran near a load of the one without speculation.",
            outlook=_where(lines.values()),
            action="Record all at the same loads, for at least ten minutes each.",
        )
    here, least = f"at {_load(present)} requests in decode", policy.latency.speedup_min
    if present.unjudged:
        unjudged = [lines[name] for name in present.unjudged]
        return Advice(
            code="record_more",
            headline=f"Record more: {_list(map(called, unjudged))} may be the fastest, but is not known {here}.",
            outlook=f"{_where(unjudged)} Its time per output token is the lowest, or was not recorded.",
            reasons=unknown,
            action=f"Record {_list(present.unjudged)} {here} too, or the one without speculation at its load.",
        )
    known = next(run for run in _runs(choices) if present in run)
    found = plan(known, present, lines, recordings)
    line = lines[present.recording] if present.recording else None
    pays = is_gain(present.speedup) and present.speedup is not None and present.speedup.value >= least
    best = f"{called(lines[present.fastest])}, {times(present.best)} {here}"
    code: AdviceCode = "undecided"
    headline, action = f"It is not decided what to run: {best}.", "Record longer, then compare again."
    if pays or (found.ranges and any(is_gain(each.speedup) for each in known)):
        code, what = "use", f"k by load ({in_words(found.ranges)})" if found.ranges else called(line) if line else ""
        headline, action = f"Run {what}: {_gains(present, known)}.", found.action
    elif present.best.high is not None and present.best.high < least:
        code, headline = "off", f"Run no speculation: the best is {best}."
        action = "Look at the acceptance, the temperature and the load."
    run = line if code == "use" else None
    return Advice(
        code=code,
        concurrency=present.concurrency,
        recording=run.recording if run else None,
        method=run.method if run else None,
        num_speculative_tokens=None if code == "undecided" else run.num_speculative_tokens if run else 0,
        speedup=present.speedup if run else present.best,
        stops_paying_at=stops_paying(known),
        speculative_config=found.config if code == "use" else None,
        headline=headline,
        outlook=_outlook(known),
        reasons=unknown + (found.notes if code == "use" else ()),
        action=action,
    )


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
    here = [f"{times(each.speedup)} at {_load(each)} requests in decode" for each in drafting if each is present]
    ends = dict.fromkeys(each for each in (drafting[0], drafting[-1]) if each is not present)
    return ", ".join((*here, *(f"{each.speedup.value:.2f}x at {_load(each)}" for each in ends if each.speedup)))


def _where(lines: Iterable[Line]) -> str:
    return " ".join(
        f"{line.recording} ran at about {line.concurrency:.1f} requests in decode."
        if line.concurrency
        else f"{line.recording} has no step times."
        for line in lines
    )


def _unknown(choices: Sequence[Choice], lines: Mapping[str, Line]) -> Iterator[str]:
    """Yield the loads at which it is not known what to run, and why."""
    for each in choices:
        here = f"At {_load(each)} requests in decode it is not known what to run"
        if each.best is None:
            yield f"{here}: it was recorded only with speculation, or only without."
        elif each.unjudged:
            yield f"{here}: {_list([called(lines[name]) for name in each.unjudged])} may be faster, but ran elsewhere."


def _outlook(known: Sequence[Choice]) -> str:
    """Say at which load speculation stops paying, whichever recording is fastest."""
    if found := stops_paying(known):
        low, high = ("?" if end is None else f"{end:.0f}" for end in (found.low, found.high))
        return f"Above about {found.value:.0f} ({low} to {high}) requests in decode speculation stops paying."
    paying = [_load(each) for each in known if is_gain(each.best)]
    loads = "every load" if len(paying) == len(known) else ", ".join(paying) or "no load"
    span = f"{_load(known[0])} to {_load(known[-1])} requests in decode"
    return f"Of {span}, speculation is shown to pay at {loads}."


def _load(choice: Choice) -> str:
    return f"{choice.concurrency:g}"


def _list(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
