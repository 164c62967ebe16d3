"""What to run, of several recordings: the fastest at the load that was recorded most, or a k by load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.byload import AtLoad, stops_paying
from specdec_exporter.comparison.decision import in_words, times
from specdec_exporter.comparison.schedule import Plan, limits, plan
from specdec_exporter.predictor.speculativeconfig import lacks_draft_model
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy

AdviceCode = Literal["use", "off", "undecided"]
_TEN = 10.0


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run at the load that was recorded most (``concurrency``), of the loads at which a speed-up is known.

    ``recording`` and ``num_speculative_tokens`` are of what to run there; k is 0 for no speculation, and ``null`` where
    it is not known what to run. ``speedup`` is that of the recording to run, or of the fastest one if none is to run.
    ``stops_paying_at`` is the concurrency at which even the fastest falls below 1. ``speculative_config`` is the value
    of ``--speculative-config``, ``null`` unless ``code`` is ``use``. ``headline`` says what to run and what it gains,
    ``outlook`` where speculation pays, ``action`` what to do next, and ``note`` what else to know.
    """

    code: AdviceCode
    concurrency: float | None = None
    recording: str | None = None
    num_speculative_tokens: int | None = None
    speedup: Estimate | None = None
    stops_paying_at: Estimate | None = None
    speculative_config: dict[str, Any] | None = None
    headline: str
    outlook: str
    action: str
    note: str | None = None


def advise(loads: Sequence[AtLoad], recordings: Mapping[str, Baseline], policy: Policy) -> Advice:
    """Say what to run; ``recordings`` are those with speculation, by name."""
    present = max((each for each in loads if each.speedups), key=lambda each: each.recorded_seconds, default=None)
    if present is None or present.fastest is None or present.unjudged:
        return _record_more(present, recordings)
    # Beyond a load at which something unjudged may be faster, nothing is advised.
    runs = [list(run) for is_known, run in groupby(loads, key=lambda each: each.known) if is_known]
    known = next(run for run in runs if present in run)
    best = present.speedups[present.fastest]
    common: dict[str, Any] = {
        "concurrency": present.concurrency,
        "speedup": present.speedups[present.recording or present.fastest],
        "stops_paying_at": stops_paying(known),
        "outlook": _outlook(known),
    }
    found, least = plan(known, present, recordings), policy.latency.speedup_min
    if _pays(present, present.recording, least) or (
        found.ranges and any(_pays(each, each.recording) for each in known)
    ):
        chosen = recordings[present.recording] if present.recording is not None else None
        return Advice(
            code="use",
            **common,
            recording=present.recording,
            num_speculative_tokens=chosen.k if chosen else 0,
            speculative_config=found.config,
            headline=_run(present, known, found, recordings),
            action=_next_step(found.config),
            note=found.note,
        )
    fastest = f"{called(recordings[present.fastest])}, {times(best)} {_at(present)}"
    if best.high is not None and best.high < least:
        headline, action = f"Run no speculation: the best is {fastest}.", "Look at the acceptance and the load."
        return Advice(code="off", **common, num_speculative_tokens=0, headline=headline, action=action)
    headline, action = f"It is not decided what to run: {fastest}.", "Record longer, then compare again."
    return Advice(code="undecided", **common, headline=headline, action=action)


def _record_more(present: AtLoad | None, recordings: Mapping[str, Baseline]) -> Advice:
    """Advise nothing: what may be the fastest ran at other loads."""
    unknown = [recordings[name] for name in (present.unjudged if present else recordings)]
    here = _at(present) if present else "at a load without speculation"
    names = in_words(each.name for each in unknown)
    return Advice(
        code="undecided",
        concurrency=present.concurrency if present else None,
        headline=f"Record more: the fastest may be {in_words(map(called, unknown))}, not known {here}.",
        outlook=" ".join(map(_ran_at, unknown)),
        action=f"Record {names} {here} too, or the one without speculation at the load of {names}.",
    )


def _ran_at(recording: Baseline) -> str:
    load = sum((each for each in recording.intervals if each.ran), Load(0.0, Counts())).concurrency
    if not load:
        return f"{recording.name} has no step times."
    return f"{recording.name} ran at about {shown(load)} requests in decode."


def _pays(at: AtLoad, name: str | None, least: float = 1.0) -> bool:
    """Whether a recording pays at a load, beyond chance and by ``least``."""
    found = at.speedups.get(name) if name is not None else None
    return found is not None and found.low is not None and found.low > 1.0 and found.value >= least


def _run(present: AtLoad, known: Sequence[AtLoad], found: Plan, recordings: Mapping[str, Baseline]) -> str:
    """Say what to run, and its speed-up at the ends of the loads at which it drafts."""
    drafting = [(each, each.recording if found.ranges else present.recording) for each in known]
    gains = [(at.speedups[name], at) for at, name in drafting if name is not None and name in at.speedups]
    ends = ", ".join(f"{times(speedup)} at {shown(at.concurrency)}" for speedup, at in gains[:1] + gains[1:][-1:])
    what = f"k by load ({limits(found.ranges)})" if found.ranges else called(recordings[present.recording or ""])
    return f"Run {what}: {ends} requests in decode."


def _next_step(config: Mapping[str, Any] | None) -> str:
    if config is None:
        return "Its method or k is not known: record with --predictor.log-path."
    if lacks_draft_model({**config}):
        return 'Add "model", the draft model or head: no recorded --command names it.'
    return "Run it, record it, and compare again."


def _outlook(known: Sequence[AtLoad]) -> str:
    """Say at which load speculation stops paying, whichever recording is fastest."""
    if found := stops_paying(known):
        low, high = ("?" if end is None else shown(end) for end in (found.low, found.high))
        return f"Above about {shown(found.value)} ({low} to {high}) requests in decode speculation stops paying."
    paying = ", ".join(shown(each.concurrency) for each in known if _pays(each, each.fastest))
    compared = ", ".join(shown(each.concurrency) for each in known)
    return f"Of {compared} requests in decode, speculation is shown to pay at {paying or 'none'}."


def _at(load: AtLoad) -> str:
    return f"at {shown(load.concurrency)} requests in decode"


def shown(concurrency: float) -> str:
    """Return a number of requests in decode: ``2.4``, ``24``."""
    return f"{concurrency:.1f}" if concurrency < _TEN else f"{concurrency:.0f}"


def called(recording: Baseline) -> str:
    """Return what a recording is called: ``k3.yaml (eagle3, k = 3)``."""
    k = f", k = {recording.k}" if recording.k else ""
    return f"{recording.name} ({recording.method or 'method unknown'}{k})"
