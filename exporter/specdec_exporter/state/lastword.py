"""What a predictor was last said to be worth, which chance alone must not change."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from specdec_exporter.speculation.benefit import Basis
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.judging import tell
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.sentences import SUSPECTED
from specdec_exporter.speculation.verdict import GOOD, WORDS, Verdict, VerdictCode
from specdec_exporter.speculation.weighing import Weighed, no_word


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a predictor: ``code``, in the words of ``word``, for the reasons of ``now``, the last figures.

    ``stands``: why ``word`` is said though ``now`` says another. ``suspected``: harm that one look alone finds.
    """

    code: VerdictCode
    within_chance: tuple[VerdictCode, ...]
    word: Weighed
    now: Weighed
    suspected: bool = False
    stands: str | None = None

    @classmethod
    def of(cls, weighed: Weighed) -> Said:
        """Say what the last figures say."""
        return cls(code=weighed.code, within_chance=weighed.within_chance, word=weighed, now=weighed)

    @property
    def basis(self) -> Basis | None:
        """Whether it is about a measured speed, or about acceptance alone."""
        return self.word.basis

    @property
    def acceptance_ratio(self) -> Estimate | None:
        """Of the last figures."""
        return self.now.acceptance_ratio

    def verdict(self, policy: Policy) -> Verdict:
        """Tell it in sentences."""
        word, _ = tell(self.word, policy)
        now, _ = tell(self.now, policy)
        headline, action = SUSPECTED if self.suspected else (word.headline, word.action)
        return replace(
            word,
            code=self.code,
            headline=headline,
            reasons=now.reasons if self.stands is None else (*now.reasons, f"the last verdict stands: {self.stands}"),
            action=action,
            acceptance_ratio=self.acceptance_ratio,
            within_chance=self.within_chance,
        )


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What a predictor was last said to be worth. Times are monotonic seconds.

    ``shown``: what is said now. ``word``: the last one that had enough drafts, ``None`` if there was none. ``since``:
    when it was first said. ``said_at``: the last look that said it. ``shown_since``: since when ``shown`` has its code.
    ``first``: it was never healthy before, so what is wrong may be older. ``suspected_at``: the first of the looks in a
    row that find harm; ``None`` if the last one found none.
    """

    shown: Said
    word: Said | None = None
    since: float = 0.0
    said_at: float = 0.0
    shown_since: float = 0.0
    first: bool = True
    suspected_at: float | None = None


def remembered(before: Remembered | None, weighed: Weighed, now: float, policy: Policy) -> Remembered:
    """Return what to say now that ``weighed`` is what the last figures say.

    Harm is said when two looks in a row find it, and left when the measurement no longer tells it. What chance cannot
    confuse with the last word is said at once; a measurement goes before a guess. Any other word is left when no look
    has said it for ``verdict_hold_seconds``: else the verdict of a service near a threshold would change at every look.
    A ``healthy`` that has been said for as long is left as soon as the measurement doubts it.
    """
    judged = Said.of(weighed)
    if judged.code != "harmful":
        return replace(_next_word(before, judged, now, policy), suspected_at=None)
    suspected = before.suspected_at if before is not None else None
    if suspected is None or now - suspected < policy.harm_apart_seconds:
        harm = before is not None and before.word is not None and before.word.code == "harmful"
        judged = judged if harm else _suspected(judged)
    return replace(_next_word(before, judged, now, policy), suspected_at=now if suspected is None else suspected)


def _suspected(judged: Said) -> Said:
    """Return what one look that finds harm says."""
    possible = tuple(sorted({*judged.within_chance, "harmful", "not_paying"} - {"watch"}))
    return replace(judged, code="watch", suspected=True, within_chance=possible)


def _next_word(before: Remembered | None, judged: Said, now: float, policy: Policy) -> Remembered:
    hold = policy.verdict_hold_seconds
    before = before or Remembered(shown=judged)
    word = before.word if now - before.said_at < hold else None
    if judged.now.preliminary is not None or judged.basis is None:
        shown = judged if judged.now.preliminary is None else _preliminary(word, judged)
        return replace(before, shown=shown, word=word)
    guessed = judged.basis == "measured" and (before.word is None or before.word.basis == "assumed")
    if guessed and judged.code == "watch":  # the measurement does not tell yet: what it will tell is said at once
        return Remembered(shown=judged)
    if guessed or word is None or _is_left(word, judged, is_old=now - before.since >= hold):
        return Remembered(shown=judged, word=judged, since=now, said_at=now)
    if word.code == judged.code:
        return replace(before, shown=judged, word=judged, said_at=now)
    reason = f"it ends after {hold / 60:.0f} minutes in which no reading says {WORDS[word.code].title.lower()}"
    return replace(before, shown=_kept(word, judged, reason))


def _is_left(word: Said, judged: Said, *, is_old: bool) -> bool:
    """Whether ``word`` is left at once. ``is_old``: it was first said so long ago that a doubt suffices."""
    if word.code == judged.code:
        return False
    if word.code in GOOD and judged.code in GOOD:
        return True  # a gain that is measured no longer is called a guess at once
    # A guess tells nothing of a measured speed-up. Of latency it does: it is not slower than at baseline.
    by_guess = word.basis == "measured" and judged.basis == "assumed" and word.code != "slower"
    if judged.code == "harmful" or (word.code not in judged.within_chance and not by_guess):
        return True
    if word.code == "harmful" and judged.basis == "measured" and judged.code in ("watch", "healthy"):
        return True  # the interval of the speed-up holds 1, or is above it
    doubted = judged.basis == "measured" and judged.code in ("watch", "not_paying")
    return is_old and doubted and word.code == "healthy"


def _preliminary(word: Said | None, judged: Said) -> Said:
    """Return the last word; else that there is none."""
    if word is not None:
        return _kept(word, judged, "there are too few drafts now for another verdict")
    return Said.of(no_word(judged.now))


def _kept(word: Said, judged: Said, reason: str) -> Said:
    """Return the last word with the figures of now."""
    within_chance = {*judged.within_chance, *((judged.code,) if judged.basis else ())} - {word.code}
    return replace(word, now=judged.now, stands=reason, within_chance=tuple(sorted(within_chance)))
