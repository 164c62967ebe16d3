"""vLLM's ``--speculative-config`` for what is to run: that of a recording, or one with k by batch size. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.byload import Line
from specdec_exporter.comparison.choice import PLAIN, Choice, crossover
from specdec_exporter.comparison.likeness import k_of
from specdec_exporter.predictor import speculativeconfig
from specdec_exporter.predictor.versions import parse_release


class Range(NamedTuple):
    """Batch sizes from ``first`` to ``last``, and their k: vLLM's ``num_speculative_tokens_per_batch_size``."""

    first: int
    last: int
    k: int


class Plan(msgspec.Struct, frozen=True):
    """The configuration, what to know about it, and the next step. ``ranges`` is empty unless k is chosen by load."""

    config: dict[str, Any] | None
    ranges: tuple[Range, ...] = ()
    notes: tuple[str, ...] = ()
    action: str = "Run it, record it, and compare again."


def plan(
    choices: Sequence[Choice], present: Choice, lines: Mapping[str, Line], recordings: Mapping[str, Baseline]
) -> Plan:
    """Return a k by load if it differs and the release can do it; else the configuration of what runs at ``present``.

    ``choices`` are neighbouring loads at which it is known what to run. ``lines`` and ``recordings`` are by name.
    """
    one = _of_one(recordings[present.recording]) if present.recording else Plan(None)
    running = [each for name, each in recordings.items() if any(name == choice.recording for choice in choices)]
    if not running or len({each.recording for each in choices}) == 1:
        return one
    if len({_drafter(each) for each in running}) > 1 or not all(map(k_of, running)):
        note = "What is fastest differs by load, and not in k alone: one configuration serves all loads."
        return msgspec.structs.replace(one, notes=(*one.notes, note))
    return _by_load(one, schedule(choices, lines), running)


def _drafter(recording: Baseline) -> bytes:
    """Return what drafts, whatever the k."""
    given = speculativeconfig.given_config(recording.context.command)
    return msgspec.json.encode(speculativeconfig.config_for(given, recording.method, 1), order="sorted")


def _of_one(recording: Baseline) -> Plan:
    """Return the configuration of a recording: the one that it ran with, if its command says so."""
    k, given = k_of(recording), speculativeconfig.given_config(recording.context.command)
    return _checked(given or (speculativeconfig.config_for({}, recording.method, k) if k else None))


def _checked(config: dict[str, Any] | None, ranges: tuple[Range, ...] = (), notes: tuple[str, ...] = ()) -> Plan:
    if config is None:
        return Plan(None, action="Its method or k is not known: record with --predictor.log-path.")
    if speculativeconfig.lacks_draft_model(config):
        return Plan(config, ranges, notes, 'Add "model", the draft model or head: no recorded --command names it.')
    return Plan(config, ranges, notes)


def _by_load(one: Plan, ranges: tuple[Range, ...], running: Sequence[Baseline]) -> Plan:
    """Return k by load in vLLM's spelling for the release; ``one`` if it has none."""
    largest = max(running, key=lambda each: k_of(each) or 0)
    versions = [each.vllm_version for each in sorted(running, key=lambda each: each.recorded_at) if each.vllm_version]
    release = parse_release(versions[-1]) if versions else None
    parallel = any(speculativeconfig.is_data_parallel(each.context.command) for each in running)
    given, k = speculativeconfig.given_config(largest.context.command), k_of(largest) or 0
    if speculativeconfig.has_schedule(release, data_parallel=parallel):
        notes = (
            f"Beyond {ranges[-1].last} requests it is not known what to run: vLLM keeps k = {ranges[-1].k} there.",
            "Data parallel engines ignore a k by load, or wait for each other.",
            "With a k by load, model runner V1 captures CUDA graphs in pieces only: compare it with one k.",
        )
        return _checked(speculativeconfig.config_for(given, largest.method, k, schedule=ranges), ranges, notes)
    why = "with data parallel engines" if parallel else f"in vLLM {versions[-1] if versions else '(release unknown)'}"
    note = f"The fastest k differs by load ({limits(ranges)}), but {why} one k serves all loads."
    return msgspec.structs.replace(one, notes=(*one.notes, note))


def schedule(choices: Sequence[Choice], lines: Mapping[str, Line]) -> tuple[Range, ...]:
    """Return the k of each range of batch sizes, from 1 up to the last load."""
    runs = [list(run) for _, run in groupby(choices, key=lambda each: each.recording)]
    ends = [_change(run[-1], after[0], lines) for run, after in pairwise(runs)]
    found: list[Range] = []
    for run, end in zip(runs, (*ends, runs[-1][-1].concurrency), strict=True):
        name, first = run[0].recording, found[-1].last + 1 if found else 1
        if end >= first:  # no batch is smaller than 1
            found.append(Range(first, int(end), lines[name].num_speculative_tokens or 0 if name else 0))
    return tuple(found)


def _change(before: Choice, after: Choice, lines: Mapping[str, Line]) -> float:
    """Return the load, between two neighbours, at which the one's recording stops being faster than the other's."""
    ratios = []
    for load in (before.concurrency, after.concurrency):
        one, other = (lines[each.recording].speedup_at(load) if each.recording else PLAIN for each in (before, after))
        if one is None or other is None:
            return before.concurrency
        ratios.append((load, one.value / other.value))
    # Both are as good at a load where the other is faster by next to nothing.
    return crossover(ratios) or (after if ratios[1][1] >= 1.0 else before).concurrency


def limits(ranges: Sequence[Range]) -> str:
    """Return ``3 up to 16, 1 up to 32 requests``."""
    return f"{', '.join(f'{each.k} up to {each.last}' for each in ranges)} requests"
