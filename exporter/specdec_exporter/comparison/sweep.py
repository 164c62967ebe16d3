"""One setting under several conditions: workloads, request rates, temperatures. Where does it pay, where no longer?

Every recording with speculation is a row beside one without it. A limit lies between two measured conditions. Nothing
is claimed beyond them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.acceptance import acceptance_of
from specdec_exporter.comparison.keeping import Rule, RuleCode
from specdec_exporter.comparison.latency import Outcome, Pair
from specdec_exporter.comparison.loads import AtLoad, k_of, mean_seconds
from specdec_exporter.comparison.requests import temperature_of, without_temperature, workload_of
from specdec_exporter.formatting import plain as printable
from specdec_exporter.speculation.acceptance import mean_draft_length, ratio
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.policy import Policy

Along = Literal["requests_per_second", "temperature"]

_PAYS: dict[Outcome, bool] = {"faster": True, "no_difference": False, "slower": False, "tail_worse": False}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A recording with speculation (``candidate``) beside the one without it at the nearest request rate.

    ``workload`` is what the request parameters say, without the temperature. ``speedup`` is that of the time per output
    token, at like load where that decides; ``pays``: whether it is a gain beyond chance, ``null`` if that is not shown
    either way. ``code`` is that of the rule that all three must improve.
    """

    workload: str | None
    temperature: float | None
    method: str | None
    num_speculative_tokens: int | None
    baseline: str
    candidate: str
    requests_per_second: float | None
    time_to_first_token_seconds: Pair
    time_per_output_token_seconds: Pair
    generation_tokens_per_second: Pair
    mean_acceptance_length: Estimate | None
    acceptance_ratio: Estimate | None
    speedup: Estimate | None
    pays: bool | None
    code: RuleCode


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where one setting pays along the request rate or the temperature; every value was measured.

    It pays up to ``pays_up_to`` (``null``: not even at the lowest one) and not from ``stops_at`` on (``null``: at none
    that was measured). At the values between the two it is not shown either way. Both are ``null`` if there is no such
    limit, because it pays above a value at which it does not.
    """

    along: Along
    workload: str | None
    temperature: float | None
    method: str | None
    num_speculative_tokens: int | None
    pays_up_to: float | None
    stops_at: float | None
    headline: str


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to keep one setting in all measured conditions; ``mixed``: in some, and in others something is worse."""

    method: str | None
    num_speculative_tokens: int | None
    code: Literal["keep", "mixed", "do_not_keep", "undecided"]
    headline: str


def row_of(plain: Baseline, candidate: Baseline, whole: AtLoad, rule: Rule, policy: Policy) -> Row:
    """Return one row; ``whole`` has the candidate's speed-up at like load, which counts if latencies do not tell."""
    workload, counts = workload_of(candidate), candidate.counts
    accepted, length = acceptance_of(candidate, policy), mean_draft_length(counts.draft_tokens, counts.drafts)
    sides = (plain, candidate)
    return Row(
        workload=without_temperature(workload),
        temperature=temperature_of(workload),
        method=candidate.method,
        num_speculative_tokens=k_of(candidate),
        baseline=plain.name,
        candidate=candidate.name,
        requests_per_second=ratio(candidate.requests_finished, candidate.duration_seconds),
        time_to_first_token_seconds=Pair(*(mean_seconds([side.time_to_first_token_seconds]) for side in sides)),
        time_per_output_token_seconds=Pair(*(mean_seconds([side.time_per_output_token_seconds]) for side in sides)),
        generation_tokens_per_second=Pair(
            *(ratio(side.counts.generation_tokens, side.duration_seconds) for side in sides)
        ),
        mean_acceptance_length=accepted.scaled(length, 1.0) if accepted and length else None,
        acceptance_ratio=accepted,
        speedup=rule.speedup,
        pays=_PAYS.get(rule.time_per_output_token, whole.pays),
        code=rule.code,
    )


def ordered(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows in the order of workload, setting, temperature and rate."""
    return tuple(sorted(rows, key=lambda row: (*_setting(row), row.temperature or 0.0, row.requests_per_second or 0.0)))


def _setting(row: Row) -> tuple[str, str, int]:
    return row.workload or "", row.method or "", row.num_speculative_tokens or 0


def names_of(rows: Sequence[Row]) -> list[str]:
    """Return what tells the rows apart: the setting, the parts of the workload's text, temperature, rate."""
    parts = [[part.strip() for part in (row.workload or "requests not given").split(",")] for row in rows]
    common = set.intersection(*map(set, parts)) if parts else set()
    settings = len({_setting(row)[1:] for row in rows}) > 1
    temperatures = len({row.temperature for row in rows}) > 1
    rates = len({(*_setting(row), row.temperature) for row in rows}) < len(rows)
    found = []
    for row, own in zip(rows, parts, strict=True):
        words = [printable(part) for part in own if part not in common]
        if settings:
            words.append(_called(row))
        if temperatures:
            words.append("temperature not given" if row.temperature is None else f"temperature {row.temperature:g}")
        if rates and row.requests_per_second is not None:
            words.append(f"{row.requests_per_second:.3g}/s")
        found.append(", ".join(words) or printable(row.candidate))
    return found


# --- Limits -----------------------------------------------------------------------------------------------------------


def limits_of(rows: Sequence[Row], policy: Policy) -> Iterator[Limit]:
    """Yield a limit for each setting that was recorded at several temperatures, or at several rates of one temperature.

    Rates that differ by no more than the policy's tolerance are one.
    """
    for _, of_setting in groupby(rows, _setting):
        found = list(of_setting)
        if len({row.temperature for row in found if row.temperature is not None}) > 1:
            yield _limit("temperature", found, lambda row: row.temperature)
        for _, of_temperature in groupby(found, lambda row: row.temperature):
            same = list(of_temperature)
            rates = [row.requests_per_second for row in same if row.requests_per_second]
            if rates and max(rates) > min(rates) * (1.0 + policy.latency.traffic_tolerance):
                yield _limit("requests_per_second", same, lambda row: row.requests_per_second)


def _limit(along: Along, rows: Sequence[Row], value_of: Callable[[Row], float | None]) -> Limit:
    at: dict[float, set[bool | None]] = {}
    for row in rows:
        if (value := value_of(row)) is not None:
            at.setdefault(value, set()).add(row.pays)
    pays = {value: next(iter(found)) if len(found) == 1 else None for value, found in sorted(at.items())}
    gains, losses = ([value for value, gain in pays.items() if gain is wanted] for wanted in (True, False))
    up_to, stops = max(gains, default=None), min(losses, default=None)
    open_ = [value for value, gain in pays.items() if gain is None]
    turned = up_to is not None and stops is not None and stops < up_to
    return Limit(
        along=along,
        workload=rows[0].workload,
        temperature=rows[0].temperature if along == "requests_per_second" else None,
        method=rows[0].method,
        num_speculative_tokens=rows[0].num_speculative_tokens,
        pays_up_to=None if turned else up_to,
        stops_at=None if turned else stops,
        headline=f"{_called(rows[0])} {_words(along, list(pays), up_to, stops, open_)}",
    )


def _words(along: Along, all_: list[float], up_to: float | None, stops: float | None, open_: list[float]) -> str:
    def said(value: float) -> str:
        return f"temperature {value:g}" if along == "temperature" else f"{value:.3g} requests/s"

    measured = f"{said(all_[0])} to {said(all_[-1])}"
    unknown = f"; not shown either way at {', '.join(map(said, open_))}" if open_ else ""
    if up_to is None and stops is None:
        return f"is not shown to pay or not to pay from {measured}: record longer"
    if up_to is None:
        return f"is not shown to pay anywhere from {measured}{unknown}"
    if stops is None:
        return f"pays up to {said(up_to)}{unknown}; nothing was measured above {said(all_[-1])}"
    if stops < up_to:
        return f"pays at {said(up_to)} and not at {said(stops)}: no limit tells where it pays{unknown}"
    return f"stops paying between {said(up_to)}, where it pays, and {said(stops)}, where it does not{unknown}"


def _called(row: Row) -> str:
    k = f" with k = {row.num_speculative_tokens}" if row.num_speculative_tokens else ""
    return f"{printable(row.method or 'method not known')}{k}"


# --- All conditions ---------------------------------------------------------------------------------------------------


def overall_of(rows: Sequence[Row]) -> Iterator[Overall]:
    """Yield whether to keep each setting that was recorded under two or more conditions."""
    settings: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        settings.setdefault(_setting(row)[1:], []).append(row)
    for members in settings.values():
        if len(members) < 2:
            continue
        by_code: dict[RuleCode, list[str]] = {"keep": [], "do_not_keep": [], "undecided": []}
        for row, name in zip(members, names_of(members), strict=True):
            by_code[row.code].append(name)
        yield _overall(members[0], by_code)


def _overall(row: Row, by_code: dict[RuleCode, list[str]]) -> Overall:
    keep, worse, open_ = by_code["keep"], by_code["do_not_keep"], by_code["undecided"]
    code: Literal["keep", "mixed", "do_not_keep", "undecided"] = "undecided"
    if keep and worse:
        code = "mixed"
    elif not open_:
        code = "keep" if keep else "do_not_keep"
    parts = [
        f"{words} {'; '.join(names)}"
        for words, names in (("all three improve:", keep), ("worse:", worse), ("not shown:", open_))
        if names
    ]
    said = {
        "keep": "Keep {} in all measured conditions",
        "mixed": "Keep {} only where all three improve",
        "do_not_keep": "Do not keep {}",
        "undecided": "Whether to keep {} everywhere is not decided",
    }[code]
    return Overall(
        method=row.method,
        num_speculative_tokens=row.num_speculative_tokens,
        code=code,
        headline=f"{said.format(_called(row))}. {'. '.join(each[0].upper() + each[1:] for each in parts)}",
    )
