"""The decision of a comparison: one word, what was found, what to do, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from specdec_exporter.comparison.acceptance import fell
from specdec_exporter.comparison.latency import SLIS, TITLES, LatencyComparison, direction
from specdec_exporter.formatting import in_words, interval, percent, percentage_points, seconds, times
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import LatencyPolicy, Policy
from specdec_exporter.speculation.speedup import Measured

DecisionCode = Literal["slower", "tail_worse", "faster", "inconclusive", "no_difference", "undecided"]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """``headline`` says what was found, ``action`` what to do, ``reasons`` what the figures alone do not tell.

    ``regression``: whether anything became slower beyond doubt, or acceptance fell and nothing became faster. A slower
    tail counts.
    """

    code: DecisionCode
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
    """Decide from the outcomes of the SLIs, the worst first; ``speculates``: whether baseline and candidate do."""
    named = {code: [TITLES[each.sli] for each in latencies if each.outcome == code] for code in _FOUND}
    code: DecisionCode = next((code for code in _FOUND if named[code]), "undecided")
    found = ", ".join(f"{words} {in_words(named[each])}" for each, words in _FOUND.items() if named[each])
    action = _action(code, speculates, _faster_decoding(code, latencies, measured, policy.latency))
    dropped = fell(acceptance_change, policy)
    if dropped:
        action += " Fewer drafts are accepted: look at what changed, models, prompts, temperature or release."
    return Decision(
        code=code,
        headline="; ".join(_headline(found, measured, acceptance_change if dropped else None)),
        action=action,
        reasons=tuple(_reasons(latencies, acceptance_change, dropped=dropped)),
        regression=code in ("slower", "tail_worse") or (dropped and code != "faster"),
    )


def _headline(found: str, measured: Measured | None, drop: Estimate | None) -> Iterator[str]:
    yield found.capitalize() or "These recordings allow no decision"
    if measured is not None and measured.speedup.low is not None:
        load = f"{measured.concurrency:.1f} requests in decode"
        yield f"decoding is {times(measured.speedup)} as fast at the same load, {load}"
    if drop is not None:
        yield f"acceptance changed by {percentage_points(drop.value)}"


def _reasons(latencies: Sequence[LatencyComparison], change: Estimate | None, *, dropped: bool) -> Iterator[str]:
    for latency in latencies:
        yield from _of_latency(latency)
    if change is not None:
        drop = ", which is a drop beyond chance" if dropped else ""
        yield f"acceptance: {interval(change, percentage_points)} against the baseline{drop}"


_FOUND: Final[dict[DecisionCode, str]] = {
    "slower": "slower in",
    "tail_worse": "the slowest requests became slower in",
    "faster": "faster in",
    "inconclusive": "it is still open whether there is a difference in",
    "no_difference": "no difference in",
}
_NEXT: Final[dict[DecisionCode, str]] = {
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
    "Decoding gains, and other times lose: weigh them for your users. Where it is the first token, the draft model, "
    "which reads prompts too, may be why."
)
_OFF: Final = "Run without speculation at this load. To find a better setting, record several and compare all of them."


def _faster_decoding(
    code: DecisionCode, latencies: Sequence[LatencyComparison], measured: Measured | None, policy: LatencyPolicy
) -> bool | None:
    """Whether the candidate decodes faster, ``False``: slower; at like load, else by the time per output token."""
    outcome = latencies[SLIS.index("time_per_output_token")].outcome
    found = direction(measured.speedup.inverse(), policy) if measured else outcome
    known = {"faster": True, "slower": False}
    return known.get(found or "", True if code == "faster" else None)


def _action(code: DecisionCode, speculates: tuple[bool, bool], faster: bool | None) -> str:
    """Return the next step. Only decoding that is slower with speculation speaks against it."""
    before, after = speculates
    if before == after or faster is None or code in ("tail_worse", "undecided"):
        return _NEXT[code]
    if code == "slower" and faster:
        return _MIXED if after else _NEXT[code]
    return _ON if faster is after else _OFF


def _of_latency(latency: LatencyComparison) -> Iterator[str]:
    title, tail = TITLES[latency.sli], latency.tail_shift
    if latency.outcome == "undecided":
        yield f"{title}: not judged: {latency.undecided_because}"
        return
    if latency.like_load_ratio is not None:
        yield f"{title}: {times(latency.like_load_ratio)} at the same load, which decides"
    if tail is not None and tail.shifted:
        yield (
            f"{title}: {percent(tail.share)} of the requests, on top of those expected, are slower than "
            f"{seconds(tail.limit_seconds)} (chance explains at most {percent(tail.margin)})"
        )
