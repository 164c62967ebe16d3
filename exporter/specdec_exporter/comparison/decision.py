"""The decision of a comparison: one word, what was found, what to do, how sure that is, and the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from specdec_exporter.comparison.acceptance import AcceptanceChange
from specdec_exporter.comparison.latency import Direction, LatencyComparison, direction
from specdec_exporter.comparison.likeness import TITLES
from specdec_exporter.formatting import percent, percentage_points, seconds
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import LatencyPolicy
from specdec_exporter.speculation.speedup import Measured

DecisionCode = Literal["faster", "no_difference", "inconclusive", "slower", "tail_worse", "mixed", "undecided"]
REGRESSIONS: frozenset[DecisionCode] = frozenset({"slower", "tail_worse", "mixed"})

_MOST: Final = 0.95  # of the decoding; less is said


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """``headline`` says what was found, ``action`` what to do, ``confidence`` how sure that is.

    ``regression``: whether anything became slower beyond doubt, or acceptance fell and nothing became faster. A slower
    tail counts.
    """

    code: DecisionCode
    headline: str
    action: str
    confidence: str
    reasons: tuple[str, ...]
    regression: bool


def decide(
    latencies: Sequence[LatencyComparison],
    *,
    speculates: tuple[bool, bool],
    measured: Measured | None,
    preemptions: tuple[float, float],
    acceptance: AcceptanceChange | None,
    shared: str | None,
    flags: int,
    policy: LatencyPolicy,
) -> Decision:
    """Decide from the outcomes of the SLIs; the pairs are of baseline and candidate.

    The speed-up at like load tells whether speculation pays, so it chooses the next step where the candidate alone
    speculates. ``shared`` says how two replicas shared the traffic.
    """
    named = {
        outcome: [TITLES[each.sli] for each in latencies if each.outcome == outcome]
        for outcome in ("faster", "slower", "tail_worse", "no_difference", "inconclusive")
    }
    gain = direction(measured.speedup.inverse(), policy) if measured else None
    code, headline = _found(named, measured, gain)
    action = _action(code, named, speculates, gain)
    dropped = acceptance is not None and acceptance.outcome == "dropped"
    if acceptance is not None and dropped:
        headline, action = _with_drop(acceptance, code, headline, action)
    reasons = [reason for latency in latencies for reason in _of_latency(latency)]
    reasons += _of_drafts(measured)
    if shared is not None:
        reasons.append(f"two replicas shared the same minutes, so their loads differ by chance: {shared}")
    if preemptions[1] > preemptions[0]:
        reasons.append(
            f"the candidate preempted requests {preemptions[1]:,.0f} times, the baseline {preemptions[0]:,.0f} times: "
            "the candidate's KV cache is too small"
        )
    return Decision(
        code=code,
        headline=headline,
        action=action,
        confidence=f"{_CONFIDENCE[code]} Flags: {f'{flags} (see below)' if flags else 'none'}.",
        reasons=(*reasons, *_of_acceptance(acceptance)),
        regression=code in REGRESSIONS or (dropped and code != "faster"),
    )


def _found(named: dict[str, list[str]], measured: Measured | None, gain: Direction | None) -> tuple[DecisionCode, str]:
    """Return the code and, in words, what was found."""
    faster, slower, tail = named["faster"], named["slower"], named["tail_worse"]
    same, unknown = named["no_difference"], named["inconclusive"]
    decoding = ""
    if measured is not None and measured.speedup.low is not None:
        load = f"{measured.concurrency:.1f} requests in decode"
        decoding = f"decoding is {times(measured.speedup)} as fast at the same load, {load}"
    better = f", faster in {in_words(faster)}" if faster else ""
    code: DecisionCode
    if slower:
        worse = f", with a worse tail in {in_words(tail)}" if tail else ""
        code, words = "mixed" if faster else "slower", f"Slower in {in_words(slower)}{better}{worse}"
    elif tail:
        code, words = "tail_worse", f"The slowest requests became slower in {in_words(tail)}{better}"
    elif faster:
        if gain == "faster":
            return "faster", f"Faster: {decoding}"
        code, words = "faster", f"Faster in {in_words(faster)}"
    elif unknown:
        code, words = "inconclusive", f"No difference is shown or ruled out in {in_words(unknown)}"
    elif same:
        code, words = "no_difference", f"No difference in {in_words(same)}"
    else:
        code, words = "undecided", "These recordings allow no decision"
    return code, f"{words}; {decoding}" if decoding else words


_SHOWN: Final = "Sure: chance alone rarely shows such a difference."
_CONFIDENCE: Final[dict[DecisionCode, str]] = {
    "faster": _SHOWN,
    "slower": _SHOWN,
    "tail_worse": _SHOWN,
    "mixed": _SHOWN,
    "no_difference": "Sure: a difference that matters would have shown.",
    "inconclusive": "Not sure: chance alone may explain what was found.",
    "undecided": "Not sure: the reasons below say what is missing.",
}

_NEXT: Final[dict[DecisionCode, str]] = {
    "undecided": "Fix what the flags and reasons name, record again, and compare again.",
    "tail_worse": "Find the slow requests: long prompts, one client, one language, one temperature. Route them to a "
    "service without speculation. The mean hides them.",
    "mixed": "Decide what matters more to your users: the first token or the whole answer. For a slower first token, "
    "look at waiting requests and prompt lengths; for slower answers, at acceptance and batch size.",
    "faster": "Keep the candidate's setting, and make its recording the new baseline.",
    "slower": "Keep the baseline's setting, and look at what else differs (the flags name it).",
    "no_difference": "Choose by other things: memory, risk, throughput. These latencies do not differ.",
    "inconclusive": "Record longer: neither a difference nor the absence of one is shown. Change nothing until then.",
}
_TURNED_OFF: Final[dict[DecisionCode, str]] = {
    "faster": "Leave speculation off for this traffic: it is faster without.",
    "slower": "Leave speculation on: it is slower without.",
}
_OFF: Final = (
    "Switch speculation off at this load. To look for a better setting, record several and compare all of them."
)


def _action(
    code: DecisionCode, named: dict[str, list[str]], speculates: tuple[bool, bool], gain: Direction | None
) -> str:
    """Return the next step."""
    if speculates == (True, False):
        return _TURNED_OFF.get(code, _NEXT[code])
    if speculates != (False, True):
        return _NEXT[code]
    if code == "faster":
        return "Keep speculation on. Serve the baseline, and an alert fires when the speed-up disappears."
    if code == "slower":
        return _remedy(named["slower"], gain)
    if code in ("no_difference", "inconclusive") and gain == "faster":
        return "Keep speculation on: decoding is faster. Record longer to see it in the latencies too."
    return _OFF if code in ("no_difference", "inconclusive") and gain == "slower" else _NEXT[code]


def _remedy(slower: list[str], gain: Direction | None) -> str:
    """Say what to do where requests are slower with speculation. Only decoding that is slower speaks against it."""
    if gain == "slower" or (gain is None and TITLES["time_per_output_token"] in slower):
        return _OFF
    if slower == [TITLES["time_to_first_token"]]:
        return "Look at waiting requests, prompt lengths and the load: only the first token came later."
    return "Look at what else makes requests slower: waiting requests, prompt lengths, a higher load."


def _with_drop(found: AcceptanceChange, code: DecisionCode, headline: str, action: str) -> tuple[str, str]:
    """Add what acceptance that fell says; what became slower comes first."""
    if found.difference is not None:
        headline += f"; acceptance changed by {percentage_points(found.difference.value)}"
    because = "look at what changed: models, prompts, temperature, release"
    if found.likely_causes:
        because = f"undo this and record again: {found.likely_causes[0]}"
    if code == "faster":
        action = (
            f"Keep the candidate's setting: it is faster. Its drafts became worse, which costs speed-up: {because}."
        )
    elif code not in REGRESSIONS:
        action = f"Revisit the candidate's setting: {because}."
    return headline, action


def _of_latency(latency: LatencyComparison) -> Iterator[str]:
    title, tail = TITLES[latency.sli], latency.tail_shift
    if latency.outcome == "undecided":
        yield f"{title}: not judged: {latency.undecided_because}"
        return
    means = f"{seconds(latency.mean_seconds.baseline)} -> {seconds(latency.mean_seconds.candidate)}"
    yield f"{title}: mean {means}, {times(latency.mean_ratio)}"
    if latency.like_load_ratio is not None:
        yield f"{title}: {times(latency.like_load_ratio)} at the same load, which decides"
    if tail is not None and tail.shifted:
        yield (
            f"{title}: {percent(tail.share)} more of the requests than expected are slower than "
            f"{seconds(tail.limit_seconds)} (chance explains at most {percent(tail.margin)})"
        )


def _of_drafts(measured: Measured | None) -> Iterator[str]:
    if measured is not None:
        part = "" if measured.compared_ratio >= _MOST else f", of {percent(measured.compared_ratio)} of the decoding"
        yield f"speed-up of decoding at the same load: {times(measured.speedup)}{part}"
        yield f"speed-up for a fixed number of clients: {times(measured.closed_loop)}"


def _of_acceptance(found: AcceptanceChange | None) -> list[str]:
    if found is None:
        return []
    if found.undecided_because is not None or found.difference is None:
        return [f"acceptance: not judged against the baseline's: {found.undecided_because}"]
    words = {
        "dropped": "which is a drop beyond chance",
        "not_dropped": "which is no drop",
        "inconclusive": "so a drop is neither shown nor ruled out: record longer",
    }[found.outcome]
    value, low, high = (percentage_points(getattr(found.difference, each)) for each in ("value", "low", "high"))
    reasons = [f"acceptance: {value} ({low} to {high}) against the baseline, {words}"]
    return reasons + [f"possible cause, the likeliest first: {cause}" for cause in found.likely_causes]


def times(estimate: Estimate | None, unit: str = "x") -> str:
    """``1.84x (1.79 to 1.90)``; without the brackets if there is no interval."""
    if estimate is None:
        return "-"
    value = f"{estimate.value:.2f}{unit}"
    if estimate.low is None and estimate.high is None:
        return value
    low, high = ("?" if bound is None else f"{bound:.2f}" for bound in (estimate.low, estimate.high))
    return f"{value} ({low} to {high})"


def in_words(names: Iterable[str]) -> str:
    """``one, two and three``; there is at least one name."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
