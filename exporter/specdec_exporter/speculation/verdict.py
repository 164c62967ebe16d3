"""Is speculation paying off? What a judgement says: one word, one sentence, the reasons, the next step.

``weighing.py`` chooses the word, ``sentences.py`` has the sentences, ``findings.py`` the reasons. Page, API, ``check``
and ``analyze`` show this judgement; the rule pack records the same states by the same thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from specdec_exporter.predictor.versions import KnownPitfall
from specdec_exporter.speculation.benefit import Basis
from specdec_exporter.speculation.chance import Estimate

VerdictCode = Literal[
    "no_metrics",
    "broken",
    "harmful",
    "not_paying",
    "slower",
    "watch",
    "unknown",
    "not_measured",
    "healthy",
    "idle",
    "off",
]
# The same drafts: a gain that is measured, and one that acceptance alone promises.
GOOD: Final[frozenset[VerdictCode]] = frozenset({"healthy", "not_measured"})
LOSSES: Final[frozenset[VerdictCode]] = frozenset({"broken", "harmful", "not_paying"})
# Words that say nothing against drafts.
FINE: Final[frozenset[VerdictCode]] = GOOD | {"watch"}
# Why there is no word though there are drafts.
Undecided = Literal["no_figures", "few_drafts", "synthetic", "unknown_k", "unusable"]
Level = Literal["PASS", "WARN", "FAIL"]
LEVELS: tuple[Level, ...] = get_args(Level)  # the worst is the last
Colour = Literal["red", "amber", "grey", "green"]


class Word(NamedTuple):
    """How a verdict reads wherever it is shown: its title, its colour, and the level of its finding."""

    title: str
    colour: Colour
    level: Level


# Only a measured speed-up is green, and a guess is grey. Off is nothing wrong, but whoever checks drafts must hear it.
WORDS: Final[dict[VerdictCode, Word]] = {
    "no_metrics": Word("No metrics", "red", "FAIL"),
    "broken": Word("Broken", "red", "WARN"),
    "harmful": Word("Harmful", "red", "WARN"),
    "not_paying": Word("Not paying off", "red", "WARN"),
    "slower": Word("Slower", "amber", "WARN"),
    "watch": Word("Watch", "amber", "WARN"),
    "unknown": Word("Unknown", "amber", "WARN"),
    "not_measured": Word("Not measured", "grey", "PASS"),
    "healthy": Word("Healthy", "green", "PASS"),
    "idle": Word("Idle", "grey", "PASS"),
    "off": Word("Off", "grey", "WARN"),
}


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst of ``levels``; without any all is good."""
    return max(levels, key=LEVELS.index, default="PASS")


class Finding(msgspec.Struct, frozen=True):
    """One finding: its level, what was found, and the next step if there is one."""

    level: Level
    subject: str
    found: str
    action: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict: one word, one sentence, the reasons, and the next step.

    ``basis``: whether this is about a measured speed, or about acceptance alone; ``None`` if there was nothing to
    judge. ``acceptance_ratio`` has its 95 % interval; ``None`` without counts. ``within_chance``: the other words that
    may be true of the same service, if only chance made the difference. ``preliminary``: the drafts come from so few
    requests that the next ones may say anything; in words, ``None`` if they suffice.
    """

    code: VerdictCode
    basis: Basis | None = None
    headline: str
    reasons: tuple[str, ...] = ()
    action: str
    acceptance_ratio: Estimate | None = None
    within_chance: tuple[VerdictCode, ...] = ()
    preliminary: str | None = None


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the findings behind it, and the known pitfalls of the predictor's release."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    pitfalls: tuple[KnownPitfall, ...]
