"""The decision of a comparison: one word, what was found, what to do, and the reasons. Decoding decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from specdec_exporter.comparison.acceptance import fell
from specdec_exporter.comparison.latency import TITLES, LatencyComparison, Outcome
from specdec_exporter.formatting import percent, percentage_points, seconds
from specdec_exporter.speculation.chance import Estimate, interval, times
from specdec_exporter.speculation.measured import COMPARED, Measured
from specdec_exporter.speculation.policy import Policy


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """``headline`` says what was found, ``action`` what to do, ``reasons`` what the figures alone do not tell.

    ``code`` is the outcome of the time per output token. ``regression``: whether decoding, or its tail, became slower
    beyond doubt, or acceptance fell and decoding is not faster.
    """

    code: Outcome
    headline: str
    action: str
    reasons: tuple[str, ...]
    regression: bool


def decide(
    latencies: Sequence[LatencyComparison],
    measured: Measured | None,
    acceptance_change: Estimate | None,
    policy: Policy,
    *,
    speculates: tuple[bool, bool],
) -> Decision:
    """Decide by decoding, the first of ``latencies``; the others are findings. ``speculates``: whether sides do."""
    decoding, *others = latencies
    code, dropped = decoding.outcome, fell(acceptance_change, policy)
    action = _action(code, measured, speculates)
    if code == "faster" and any(each.outcome in ("slower", "tail_worse") for each in others):
        action += _MIXED
    if dropped:
        action += " Fewer draft tokens are accepted: look for a change of models, prompts, temperature or release."
    drop = acceptance_change if dropped else None
    return Decision(
        code=code,
        headline="; ".join(_headline(decoding, measured, drop)),
        action=action,
        reasons=tuple(_reasons(latencies, acceptance_change, dropped=dropped)),
        regression=code in ("slower", "tail_worse") or (dropped and code != "faster"),
    )


def _headline(decoding: LatencyComparison, measured: Measured | None, drop: Estimate | None) -> Iterator[str]:
    if decoding.outcome == "undecided":
        why = decoding.undecided_because
        yield f"The speed-up of decoding is not known: {why}" if measured else f"Nothing is decided: {why}"
    elif measured is not None and measured.speedup is not None and measured.compared is not None:
        compared = f" {COMPARED[measured.compared]}"
        load = f"{measured.concurrency or 0.0:.1f} requests in decode"
        yield f"{_FOUND[decoding.outcome]}: decoding is {times(measured.speedup)} as fast{compared}, {load}"
    else:
        yield f"{_FOUND[decoding.outcome]}: {TITLES[decoding.sli]} is {times(decoding.mean_ratio)} the baseline's"
    if drop is not None:
        yield f"acceptance changed by {percentage_points(drop.value)}"


def _reasons(latencies: Sequence[LatencyComparison], change: Estimate | None, *, dropped: bool) -> Iterator[str]:
    for latency in latencies:
        # The headline says why nothing is known of decoding.
        if latency is not latencies[0] or latency.outcome != "undecided":
            yield from _of_latency(latency)
    if change is not None:
        drop = ", which is a drop beyond chance" if dropped else ""
        yield f"acceptance: {interval(change, percentage_points)} against the baseline{drop}"


_FOUND: Final[dict[Outcome, str]] = {
    "slower": "Slower",
    "tail_worse": "The slowest requests became slower",
    "faster": "Faster",
    "inconclusive": "No difference shown",
    "no_difference": "No difference",
}
_NEXT: Final[dict[Outcome, str]] = {
    "undecided": "Fix what the flags and reasons name, record again, and compare again.",
    "tail_worse": "Find the slow requests: long prompts, one client, one language, one temperature. Route them to a "
    "service without speculation. The mean hides them.",
    "faster": "Keep the candidate's setting, and make its recording the new baseline.",
    "slower": "Look at waiting requests, prompt lengths, the load, and what else differs (the flags name it).",
    "no_difference": "Choose by other things: memory, risk, throughput. These latencies do not differ.",
    "inconclusive": "Record longer. Change nothing until then.",
}
_ON: Final = "Keep speculation on. Serve the recording without it, and an alert fires when the speed-up disappears."
_MIXED: Final = (
    " Another latency became longer: weigh it for your users. If it is the time to first token, the draft model may be "
    "why: it reads prompts too."
)
_OFF: Final = "Run without speculation at this load. To find a better setting, record several and compare all of them."


def _action(code: Outcome, measured: Measured | None, speculates: tuple[bool, bool]) -> str:
    """Return the next step. Only decoding that is slower with speculation speaks against it."""
    before, after = speculates
    if code == "undecided" and measured is not None and measured.unknown is not None:
        return f"{measured.unknown.remedy[0].upper()}{measured.unknown.remedy[1:]}, then compare again."
    if before == after or code not in ("faster", "slower"):
        return _NEXT[code]
    return _ON if (code == "faster") is after else _OFF


def _of_latency(latency: LatencyComparison) -> Iterator[str]:
    title, tail = TITLES[latency.sli], latency.tail_shift
    if latency.outcome == "undecided":
        yield f"{title} is not judged: {latency.undecided_because}"
        return
    if latency.outcome in ("faster", "slower") and latency.like_load_ratio is None:
        yield f"{title}: {latency.outcome}, {times(latency.mean_ratio)} the baseline's"
    if tail is not None and tail.shifted:
        yield (
            f"{title}: {percent(tail.share)} of the requests, on top of those expected, are slower than "
            f"{seconds(tail.limit_seconds)} (chance explains at most {percent(tail.margin)})"
        )
