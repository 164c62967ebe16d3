"""vLLM's ``--speculative-config`` for what is to run: that of a recording, or one with k by batch size. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.byload import AtLoad
from specdec_exporter.predictor.speculativeconfig import config_for, given_config, has_schedule, is_data_parallel
from specdec_exporter.predictor.versions import parse_release


class Range(NamedTuple):
    """Batch sizes from ``first`` to ``last``, and their k: vLLM's ``num_speculative_tokens_per_batch_size``."""

    first: int
    last: int
    k: int


class Plan(NamedTuple):
    """The configuration and what to know about it. ``ranges`` is empty unless k is chosen by load."""

    config: dict[str, Any] | None
    ranges: tuple[Range, ...] = ()
    note: str | None = None


def plan(loads: Sequence[AtLoad], present: AtLoad, recordings: Mapping[str, Baseline]) -> Plan:
    """Return a k by load if it differs and vLLM can do it; else the configuration of what runs at ``present``.

    ``loads`` are neighbours at which it is known what to run.
    """
    running = {each.recording: recordings[each.recording] for each in loads if each.recording is not None}
    one = _config_of(running[present.recording]) if present.recording is not None else None
    ranges = schedule(loads, {None: 0, **{name: each.k or 0 for name, each in running.items()}})
    if not running or len(ranges) <= 1:
        return Plan(one)
    if why := _one_k_because([*running.values()]):
        return Plan(one, note=f"What is fastest differs by load, but {why}: one configuration serves all loads.")
    largest = max(running.values(), key=lambda each: each.k or 0)
    note = f"Beyond {ranges[-1].last} requests it is not known what to run: vLLM keeps k = {ranges[-1].k} there."
    config = config_for(given_config(largest.context.command), largest.method, largest.k or 0, schedule=ranges)
    return Plan(config, ranges, note)


def _config_of(recording: Baseline) -> dict[str, Any] | None:
    """Return the configuration that a recording ran with, as its command says; else one of its method and k."""
    given = given_config(recording.context.command)
    return given or (config_for({}, recording.method, recording.k) if recording.k else None)


def _one_k_because(running: Sequence[Baseline]) -> str | None:
    """Return why vLLM cannot choose among these by load; ``None`` if it can."""
    configs = (config_for(given_config(each.context.command), each.method, 1) for each in running)
    if len({msgspec.json.encode(each, order="sorted") for each in configs}) > 1 or not all(each.k for each in running):
        return "not in k alone"
    version = max(running, key=lambda each: each.recorded_at).vllm_version
    parallel = any(is_data_parallel(each.context.command) for each in running)
    if has_schedule(parse_release(version) if version else None, data_parallel=parallel):
        return None
    return f"vLLM {version or '(release unknown)'}{' with data parallel engines' if parallel else ''} takes one k"


def schedule(loads: Sequence[AtLoad], ks: Mapping[str | None, int]) -> tuple[Range, ...]:
    """Return the k of each range of batch sizes, which ends at the last load where that k was chosen."""
    found: list[Range] = []
    for name, run in groupby(loads, key=lambda each: each.recording):
        first, last = found[-1].last + 1 if found else 1, round([*run][-1].concurrency)
        if last >= first:  # no batch is smaller than 1
            found.append(Range(first, last, ks[name]))
    return tuple(found)


def limits(ranges: Sequence[Range]) -> str:
    """Return ``3 up to 16, 1 up to 32 requests``."""
    return f"{', '.join(f'{each.k} up to {each.last}' for each in ranges)} requests"
