"""What a predictor was last said to be worth, which chance alone must not change."""

from __future__ import annotations

import msgspec

from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.sentences import undecided
from specdec_exporter.speculation.verdict import Verdict, VerdictCode


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What a predictor was last said to be worth. Times are monotonic seconds.

    ``word``: the verdict that had enough drafts, ``None`` if there was none or it is too old. ``told_at``: the last
    look with enough drafts. ``other``: what all looks since ``other_since`` say instead. ``shown``: the verdict now.
    """

    shown: Verdict
    word: Verdict | None = None
    told_at: float = 0.0
    other: VerdictCode | None = None
    other_since: float = 0.0


def remembered(before: Remembered | None, judged: Verdict, now: float, policy: Policy) -> Remembered:
    """Return what to say now that ``judged`` is what the last figures say.

    A word that chance may confuse with the last one replaces it only after it has held for ``verdict_hold_seconds``:
    else the verdict of a service near a threshold would change at every look. Any other word is said at once. The last
    word also stands while there are too few drafts for another one, for the same time.
    """
    hold = policy.verdict_hold_seconds
    word = before.word if before and now - before.told_at < hold else None
    if judged.preliminary is not None or judged.basis is None:
        shown = judged
        if judged.preliminary is not None:
            few = "there are too few drafts now for another verdict"
            shown = _kept(word, judged, few) if word else _without_word(judged, judged.preliminary)
        return Remembered(shown=shown, word=word, told_at=before.told_at if before else 0.0)
    if word is None or judged.code == word.code or word.code not in judged.within_chance:
        return Remembered(shown=judged, word=judged, told_at=now)
    since = before.other_since if before and before.other == judged.code else now
    if now - since >= hold:
        return Remembered(shown=judged, word=judged, told_at=now)
    reason = f"it becomes {judged.code.replace('_', ' ')} if that holds for {hold / 60:.0f} minutes"
    shown = _kept(word, judged, reason)
    return Remembered(shown=shown, word=word, told_at=now, other=judged.code, other_since=since)


def _without_word(judged: Verdict, reason: str) -> Verdict:
    """Return a preliminary verdict without its word, which the next request may change."""
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
