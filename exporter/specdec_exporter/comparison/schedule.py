"""vLLM's ``--speculative-config`` for what is to run: that of a recording, or one with k by batch size. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.byload import Line
from specdec_exporter.comparison.choice import Choice, crossover
from specdec_exporter.comparison.loads import k_of
from specdec_exporter.predictor import speculativeconfig
from specdec_exporter.predictor.versions import parse_release


class Range(NamedTuple):
    """Batch sizes from ``first`` to ``last``, and their k: vLLM's ``num_speculative_tokens_per_batch_size``."""

    first: int
    last: int
    k: int


class Plan(msgspec.Struct, frozen=True):
    """The configuration, what a reader must do about it, and what to know.

    ``ranges`` is empty unless k is chosen by load.
    """

    config: dict[str, Any] | None
    ranges: tuple[Range, ...] = ()
    action: str | None = None
    notes: tuple[str, ...] = ()


def plan(
    choices: Sequence[Choice], present: Choice, lines: Mapping[str, Line], recordings: Mapping[str, Baseline]
) -> Plan:
    """Return a k by load if it differs and the release can do it; else the configuration of what runs at ``present``.

    ``choices`` are neighbouring loads at which it is known what to run. ``lines`` and ``recordings`` are by name.
    """
    one = _of_one(recordings[present.recording]) if present.recording else Plan(None)
    running = [recordings[name] for name in {each.recording: None for each in choices} if name is not None]
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
    if given := speculativeconfig.given_config(recording.context.command):
        return Plan(given)
    k = k_of(recording)
    return _checked(speculativeconfig.config_for({}, recording.method, k) if k else None)


def _checked(config: dict[str, Any] | None, ranges: Sequence[Range] = (), notes: Sequence[str] = ()) -> Plan:
    action = None
    if config is None:
        action = "Its method or k is not known: record with --predictor.log-path."
    elif speculativeconfig.lacks_draft_model(config):
        action = 'Add "model", the draft model or head: no recording has a --command that names it.'
    return Plan(config, tuple(ranges) if config else (), action, tuple(notes) if config else ())


def _by_load(one: Plan, ranges: Sequence[Range], running: Sequence[Baseline]) -> Plan:
    """Return k by load in vLLM's spelling for the release; ``one`` if it has none."""
    largest = max(running, key=lambda each: k_of(each) or 0)
    versions = [each.vllm_version for each in sorted(running, key=lambda each: each.recorded_at) if each.vllm_version]
    release = parse_release(versions[-1]) if versions else None
    parallel = any(speculativeconfig.is_data_parallel(each.context.command) for each in running)
    given, k = speculativeconfig.given_config(largest.context.command), k_of(largest) or 0
    if speculativeconfig.has_schedule(release, data_parallel=parallel):
        config = speculativeconfig.config_for(given, largest.method, k, schedule=ranges)
        return _checked(
            config,
            ranges,
            (
                f"Beyond {ranges[-1].last} requests it is not known what to run: vLLM goes on with "
                f"k = {ranges[-1].k} there.",
                "Data parallel engines ignore a k by load, or wait for each other.",
                "With a k by load, model runner V1 captures CUDA graphs in pieces only: compare it with one k.",
            ),
        )
    drafting = [each for each in ranges if each.k]
    if speculativeconfig.has_limit(release) and ranges[0].k and len(drafting) == 1:
        return _checked(speculativeconfig.config_for(given, largest.method, k, limit=ranges[0].last), ranges)
    why = "with data parallel engines" if parallel else f"in vLLM {versions[-1] if versions else '(release unknown)'}"
    note = f"The fastest k differs by load ({in_words(ranges)}), but {why} one k serves all loads."
    return msgspec.structs.replace(one, notes=(*one.notes, note))


def schedule(choices: Sequence[Choice], lines: Mapping[str, Line]) -> tuple[Range, ...]:
    """Return the k of each range of batch sizes, from 1 up to the last load.

    Between two loads of the grid k changes where the other recording becomes faster.
    """
    found: list[Range] = []
    alike = [list(same) for _, same in groupby(choices, key=lambda each: each.recording)]
    for same, following in zip(alike, [*alike[1:], None], strict=True):
        end = _change(same[-1], following[0], lines) if following else same[-1].concurrency
        first, last = found[-1].last + 1 if found else 1, int(end)
        if last >= first:
            name = same[-1].recording
            found.append(Range(first, last, lines[name].num_speculative_tokens or 0 if name else 0))
    return tuple(found)


def _change(before: Choice, after: Choice, lines: Mapping[str, Line]) -> float:
    """Return the load between two at which the recording of the first stops being faster than that of the second."""

    def advantage(load: float) -> float | None:
        found = [_speedup(name, load, lines) for name in (before.recording, after.recording)]
        return None if None in found else (found[0] or 0.0) / (found[1] or 1.0)

    ratios = [(each.concurrency, found) for each in (before, after) if (found := advantage(each.concurrency))]
    return crossover(ratios) or before.concurrency


def _speedup(name: str | None, load: float, lines: Mapping[str, Line]) -> float | None:
    if name is None:
        return 1.0
    found = lines[name].speedup_at(load)
    return found.value if found else None


def in_words(ranges: Sequence[Range]) -> str:
    """Return ``k = 3 up to 16, k = 1 up to 32 requests``."""
    return f"{', '.join(f'k = {each.k} up to {each.last}' for each in ranges)} requests"
