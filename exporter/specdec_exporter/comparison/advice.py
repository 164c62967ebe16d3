"""What to run, of several recordings: the fastest at the load that was recorded most, or vLLM's k by load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.byload import AtLoad, stops_paying
from specdec_exporter.formatting import in_words
from specdec_exporter.predictor.speculativeconfig import Range, config_of, lacks_draft_model, one_k_because
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.benefit import worth_of
from specdec_exporter.speculation.chance import Estimate, times
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.measured import COMPARED, Compared
from specdec_exporter.speculation.policy import LatencyPolicy, Policy

AdviceCode = Literal["use", "off", "undecided"]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run at the load that was recorded most (``concurrency``), of the loads at which a speed-up is known.

    ``compared`` says whether that is at the same load, or at the same requests per second.
    ``recording`` and ``num_speculative_tokens`` are of what to run there; k is 0 for no speculation, and ``null`` where
    it is not known what to run. ``speedup`` is that of the recording to run, or of the fastest one if none is to run.
    ``stops_paying_at`` is the concurrency at which even the fastest falls below 1. ``speculative_config`` is the value
    of ``--speculative-config``, ``null`` unless ``code`` is ``use``. ``headline`` says what to run and what it gains,
    ``outlook`` where speculation pays, ``action`` what to do next, and ``note`` what else to know.
    """

    code: AdviceCode
    compared: Compared | None = None
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
    """Say what to run; ``recordings`` are those with speculation, by name.

    At the requests per second that they share, if that decides: a faster server has fewer requests in decode then.
    Else at the load at which they were recorded longest.
    """
    compared = [each for each in loads if each.speedups]
    present = max(compared, key=lambda each: _telling(each, policy.latency), default=None)
    if present is None or present.fastest is None or present.unjudged:
        return _record_more(present, recordings)
    known = _known_around(present, loads)
    best, limits = present.speedups[present.fastest], policy.latency
    common: dict[str, Any] = {
        "compared": present.compared,
        "concurrency": present.concurrency,
        "speedup": present.speedups[present.recording or present.fastest],
        "stops_paying_at": stops_paying(known),
        "outlook": _outlook(known, limits),
    }
    ranges, note = _by_load(known, _drafting(known, recordings), limits)
    if _pays(present, present.recording, limits) or (ranges and present.recording is None):
        return Advice(code="use", **common, **_use(present, known, recordings, ranges), note=note)
    off = _off(present, limits)
    found = "Run no speculation: the best is" if off else "It is not decided what to run:"
    return Advice(
        code="off" if off else "undecided",
        **common,
        num_speculative_tokens=0 if off else None,
        headline=f"{found} {called(recordings[present.fastest])}, {times(best)} {_at(present)}.",
        action="Look at the acceptance and the load." if off else "Record longer, then compare again.",
    )


def _telling(at: AtLoad, limits: LatencyPolicy) -> tuple[int, float]:
    if at.compared == "like_load":
        return 1, at.recorded_seconds
    return (2 if at.known and (_pays(at, at.recording, limits) or _off(at, limits)) else 0), at.recorded_seconds


def _off(at: AtLoad, limits: LatencyPolicy) -> bool:
    """Whether not even the fastest pays."""
    high = at.speedups[at.fastest].high if at.fastest is not None else None
    return high is not None and high < limits.speedup_min


def _known_around(present: AtLoad, loads: Sequence[AtLoad]) -> list[AtLoad]:
    """Return the neighbouring loads at which it is known what to run: beyond them nothing is advised."""
    if present.compared != "like_load":
        return [present]
    by_load = [each for each in loads if each.compared == "like_load"]
    runs = [list(run) for is_known, run in groupby(by_load, key=lambda each: each.known) if is_known]
    return next(run for run in runs if present in run)


def _drafting(known: Sequence[AtLoad], recordings: Mapping[str, Baseline]) -> list[Baseline]:
    """Return the recordings that are to run at some load."""
    chosen = {each.recording for each in known}
    return [each for name, each in recordings.items() if name in chosen]


def _use(
    present: AtLoad, known: Sequence[AtLoad], recordings: Mapping[str, Baseline], ranges: Sequence[Range]
) -> dict[str, Any]:
    """Return the fields of advice to speculate: k by load, or what runs at the load that was recorded most."""
    one = None if present.recording is None else recordings[present.recording]
    chosen = max(_drafting(known, recordings), key=lambda each: each.k or 0) if ranges or one is None else one
    config = config_of(chosen.server, ranges)
    limits = ", ".join(f"{each.k} up to {each.last}" for each in ranges)
    what = f"k by load ({limits} requests)" if ranges else called(chosen)
    gains = _gains([(each, each.recording if ranges else present.recording) for each in known])
    return {
        "recording": present.recording,
        "num_speculative_tokens": one.k if one else 0,
        "speculative_config": config,
        "headline": f"Run {what}: {gains}.",
        "action": _next_step(config),
    }


def _record_more(present: AtLoad | None, recordings: Mapping[str, Baseline]) -> Advice:
    """Advise nothing: what may be the fastest ran at other loads."""
    unknown = [recordings[name] for name in (present.unjudged if present else recordings)]
    here, names = _at(present) if present else "at a load of the baseline", in_words(each.name for each in unknown)
    loads = [sum((each for each in one.intervals if each.ran), Load(0.0, Counts())).concurrency for one in unknown]
    return Advice(
        code="undecided",
        compared=present.compared if present else None,
        concurrency=present.concurrency if present else None,
        headline=f"Record more: the fastest may be {in_words(map(called, unknown))}: not known {here}.",
        outlook=" ".join(
            f"{one.name} ran at about {load:.1f} requests in decode." if load else f"{one.name} has no step times."
            for one, load in zip(unknown, loads, strict=True)
        ),
        action=f"Record {names} {here} too, or the one without speculation at the load of {names}.",
    )


def _pays(at: AtLoad, name: str | None, limits: LatencyPolicy) -> bool:
    """Whether a recording pays at a load, as beyond chance as a verdict says so."""
    found = at.speedups.get(name) if name is not None else None
    return found is not None and worth_of(found, limits) == "healthy"


def _gains(runs: Sequence[tuple[AtLoad, str | None]]) -> str:
    """Return the speed-up of what is to run at the ends of the loads at which it drafts."""
    found = [(at.speedups[name], at) for at, name in runs if name is not None and name in at.speedups]
    if found and found[0][1].compared == "same_arrivals":
        return f"{times(found[0][0])} {COMPARED['same_arrivals']}"
    ends = (f"{times(speedup)} at {at.concurrency:.1f}" for speedup, at in found[:1] + found[1:][-1:])
    return f"{', '.join(ends)} requests in decode"


def _outlook(known: Sequence[AtLoad], limits: LatencyPolicy) -> str:
    """Say at which load speculation stops paying, whichever recording is fastest."""
    if found := stops_paying(known):
        low, high = ("?" if end is None else f"{end:.1f}" for end in (found.low, found.high))
        return f"Above about {found.value:.1f} ({low} to {high}) requests in decode speculation stops paying."
    if any(each.compared == "same_arrivals" for each in known):
        return "The recordings share no load, because a faster server has fewer requests in decode at a time."
    paying = ", ".join(f"{each.concurrency:.1f}" for each in known if _pays(each, each.fastest, limits))
    compared = ", ".join(f"{each.concurrency:.1f}" for each in known)
    return f"Of {compared} requests in decode, speculation is shown to pay at {paying or 'none'}."


def _next_step(config: dict[str, Any] | None) -> str:
    if config is None:
        return "Its method or k is not known: record with --predictor.log-path."
    if lacks_draft_model(config):
        return 'Add "model", the draft model or head: no recorded --command names it.'
    return "Run it, record it, and compare again."


def _at(load: AtLoad) -> str:
    if load.compared == "same_arrivals":
        return COMPARED[load.compared]
    return f"at {load.concurrency:.1f} requests in decode"


def called(recording: Baseline) -> str:
    """Return what a recording is called: ``k3.yaml (eagle3, k = 3)``."""
    k = f", k = {recording.k}" if recording.k else ""
    return f"{recording.name} ({recording.method or 'method unknown'}{k})"


# --- vLLM's configuration ---------------------------------------------------------------------------------------------


def _by_load(
    loads: Sequence[AtLoad], drafting: Sequence[Baseline], limits: LatencyPolicy
) -> tuple[tuple[Range, ...], str | None]:
    """Return k by load if it differs and vLLM can do it, and what to know about that."""
    if any(each.compared != "like_load" for each in loads):
        return (), None
    ranges = schedule(loads, {None: 0, **{each.name: each.k or 0 for each in drafting}})
    if len(ranges) <= 1 or not any(_pays(each, each.recording, limits) for each in loads):
        return (), None
    version = max(drafting, key=lambda each: each.recorded_at).vllm_version
    if why := one_k_because([each.server for each in drafting], version):
        return (), f"What is fastest differs by load, but {why}: one configuration serves all loads."
    last = ranges[-1]
    return ranges, f"Beyond {last.last} requests it is not known what to run: vLLM keeps k = {last.k} there."


def schedule(loads: Sequence[AtLoad], ks: Mapping[str | None, int]) -> tuple[Range, ...]:
    """Return the k of each range of batch sizes, which ends at the last load where that k was chosen."""
    found: list[Range] = []
    for name, run in groupby(loads, key=lambda each: each.recording):
        first, last = found[-1].last + 1 if found else 1, round([*run][-1].concurrency)
        if last >= first:  # no batch is smaller than 1
            found.append(Range(first, last, ks[name]))
    return tuple(found)
