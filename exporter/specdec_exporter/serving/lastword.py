"""What a predictor was last said to be worth, which chance alone must not change."""

from __future__ import annotations

import msgspec

from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.sentences import undecided
from specdec_exporter.speculation.verdict import Verdict


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What a predictor was last said to be worth. Times are monotonic seconds.

    ``shown``: the verdict now. ``word``: the last one that had enough drafts, ``None`` if there was none. ``since``:
    when it was first said. ``said_at``: the last look that said it. ``shown_since``: since when ``shown`` has its code.
    ``first``: it was never healthy before, so what is wrong may be older.
    """

    shown: Verdict
    word: Verdict | None = None
    since: float = 0.0
    said_at: float = 0.0
    shown_since: float = 0.0
    first: bool = True


def remembered(before: Remembered | None, judged: Verdict, now: float, policy: Policy) -> Remembered:
    """Return what to say now that ``judged`` is what the last figures say.

    Harm is said at once, and so is what chance cannot confuse with the last word; a measurement goes before a guess.
    Any other word is left when no look has said it for ``verdict_hold_seconds``: else the verdict of a service near a
    threshold would change at every look. A ``healthy`` that has been said for as long is left as soon as the
    measurement doubts it.
    """
    hold = policy.verdict_hold_seconds
    before = before or Remembered(shown=judged)
    word = before.word if now - before.said_at < hold else None
    if judged.preliminary is not None or judged.basis is None:
        shown = judged if judged.preliminary is None else _preliminary(word, judged, judged.preliminary)
        return msgspec.structs.replace(before, shown=shown, word=word)
    guessed = judged.basis == "measured" and (before.word is None or before.word.basis == "assumed")
    if guessed and judged.code == "watch":  # the measurement does not tell yet: what it will tell is said at once
        return Remembered(shown=judged)
    if guessed or word is None or _is_left(word, judged, is_old=now - before.since >= hold):
        return Remembered(shown=judged, word=judged, since=now, said_at=now)
    if word.code == judged.code:
        return msgspec.structs.replace(before, shown=judged, word=judged, said_at=now)
    reason = f"it ends after {hold / 60:.0f} minutes in which no reading says {word.code.replace('_', ' ')}"
    return msgspec.structs.replace(before, shown=_kept(word, judged, reason))


def _is_left(word: Verdict, judged: Verdict, *, is_old: bool) -> bool:
    """Whether ``word`` is left at once. ``is_old``: it was first said so long ago that a doubt suffices."""
    if word.code == judged.code:
        return False
    # A guess tells nothing of a measured speed-up. Of latency it does: it is not slower than at baseline.
    by_guess = word.basis == "measured" and judged.basis == "assumed" and word.code != "slower"
    if judged.code == "harmful" or (word.code not in judged.within_chance and not by_guess):
        return True
    doubted = judged.basis == "measured" and judged.code in ("watch", "not_paying")
    return is_old and doubted and word.code == "healthy"


def _preliminary(word: Verdict | None, judged: Verdict, reason: str) -> Verdict:
    """Return the last word; else a preliminary verdict without its own, which the next request may change."""
    if word is not None:
        return _kept(word, judged, "there are too few drafts now for another verdict")
    verdict = undecided("few_drafts", reason)
    return msgspec.structs.replace(verdict, acceptance_ratio=judged.acceptance_ratio, preliminary=reason)


def _kept(word: Verdict, judged: Verdict, reason: str) -> Verdict:
    """Return the last word with the figures of now."""
    within_chance = {*judged.within_chance, *((judged.code,) if judged.basis else ())} - {word.code}
    return msgspec.structs.replace(
        word,
        reasons=(*judged.reasons, f"the last verdict stands: {reason}"),
        acceptance_ratio=judged.acceptance_ratio,
        within_chance=tuple(sorted(within_chance)),
    )
