"""vLLM's ``--speculative-config`` for the fastest recordings: one of theirs, or one with k by batch size. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.fastest import Fastest
from specdec_exporter.comparison.loads import k_of
from specdec_exporter.predictor import speculativeconfig
from specdec_exporter.predictor.versions import parse_release


class Plan(msgspec.Struct, frozen=True):
    """The configuration, and what a reader must know about it.

    ``by_load`` pairs the bound of each bin of loads with its k where k is chosen by load; else it is empty.
    """

    config: dict[str, Any] | None
    by_load: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()


def plan(found: Sequence[Fastest], present: Fastest, recordings: Mapping[str, Baseline]) -> Plan:
    """Return a k by load if the fastest k differs and the release can do it; else what is fastest at ``present``."""
    one = _of_one(recordings[present.recording]) if present.recording else Plan(None)
    winners = {each.recording for each in found}
    if len(winners) == 1:
        return one
    if any(each.unjudged for each in found):
        return _with_note(one, "which recording is fastest is not known at every load")
    running = [recordings[name] for name in winners if name is not None]
    if len({_drafter(each) for each in running}) > 1 or not all(map(k_of, running)):
        return _with_note(
            one, "which recording is fastest differs by load, and not in k alone: choose one for all loads"
        )
    by_load = tuple(
        (each.concurrency_bound, k_of(recordings[each.recording]) or 0 if each.recording else 0) for each in found
    )
    return _by_load(one, by_load, max(running, key=lambda each: k_of(each) or 0), running)


def _with_note(found: Plan, *notes: str) -> Plan:
    return msgspec.structs.replace(found, notes=(*found.notes, *notes))


def _drafter(recording: Baseline) -> bytes:
    """Return what drafts, whatever the k."""
    given = speculativeconfig.given_config(recording.context.command)
    return msgspec.json.encode(speculativeconfig.config_for(given, recording.method, 1), order="sorted")


def _of_one(recording: Baseline) -> Plan:
    """Return the configuration of a recording: the one that it ran with, if its command says so."""
    if given := speculativeconfig.given_config(recording.context.command):
        return Plan(given)
    k = k_of(recording)
    config = speculativeconfig.config_for({}, recording.method, k) if k else None
    if config is None:
        return Plan(None, notes=("method or k is not known: record with --predictor.log-path",))
    return _checked(config)


def _checked(config: dict[str, Any]) -> Plan:
    if speculativeconfig.lacks_draft_model(config):
        return Plan(config, notes=('add "model", the draft model or head: the recordings have no --command with it',))
    return Plan(config)


def _by_load(one: Plan, by_load: tuple[tuple[int, int], ...], largest: Baseline, running: Sequence[Baseline]) -> Plan:
    """Return k by load in vLLM's spelling for the release; ``one`` if it has none."""
    versions = [each.vllm_version for each in sorted(running, key=lambda each: each.recorded_at) if each.vllm_version]
    release = parse_release(versions[-1]) if versions else None
    parallel = any(speculativeconfig.is_data_parallel(each.context.command) for each in running)
    notes: tuple[str, ...] = ()
    given, k = speculativeconfig.given_config(largest.context.command), k_of(largest) or 0
    if speculativeconfig.has_schedule(release, data_parallel=parallel):
        config = speculativeconfig.config_for(given, largest.method, k, schedule=batch_schedule(by_load))
        notes = (
            f"beyond {by_load[-1][0]} running nothing was recorded: vLLM goes on with k = {by_load[-1][1]} there",
            "data parallel engines ignore a k by load, or wait for each other",
            "with a k by load, model runner V1 captures CUDA graphs in pieces only: compare it with one k",
        )
    elif speculativeconfig.has_limit(release) and (limit := _limit(by_load)) is not None:
        config = speculativeconfig.config_for(given, largest.method, k, limit=limit)
    else:
        why = "with data parallel engines" if parallel else f"in vLLM {versions[-1] if versions else '?'}"
        return _with_note(one, f"the fastest k differs by load ({in_words(by_load)}); {why} one k serves all loads")
    if config is None:
        return _with_note(one, "the method is not known: record with --predictor.log-path")
    found = _checked(config)
    return Plan(found.config, by_load, (*found.notes, *notes))


def _limit(by_load: Sequence[tuple[int, int]]) -> int | None:
    """Return the largest load that drafts, if one k is used up to it and none above."""
    bounds = [bound for bound, k in by_load if k]
    falls = all(k > 0 for bound, k in by_load if bound <= bounds[-1])
    return bounds[-1] if falls and len({k for _, k in by_load if k}) == 1 else None


def batch_schedule(by_load: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return vLLM's ``num_speculative_tokens_per_batch_size``: triples of first batch size, last batch size and k.

    ``by_load`` pairs the bound of a bin of concurrency with its k, ascending. The first triple begins at 1; loads that
    were not recorded take the k of the next larger one.
    """
    found: list[tuple[int, int, int]] = []
    for bound, k in by_load:
        first = found[-1][1] + 1 if found else 1
        if found and found[-1][2] == k:
            found[-1] = (found[-1][0], bound, k)
        else:
            found.append((first, bound, k))
    return found


def in_words(by_load: Sequence[tuple[int, int]]) -> str:
    """Return ``3 up to 16, 1 up to 32 running``."""
    return f"{', '.join(f'{k} up to {last}' for _, last, k in batch_schedule(by_load))} running"
