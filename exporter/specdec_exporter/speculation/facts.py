"""What is known of a predictor's release and of the warnings that it logged, as people are told it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from specdec_exporter.predictor.versions import WARNINGS, Facts, pitfalls_of, releases_in_words


class WarningCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often a known warning stood in the log, what it means, which releases log it and what to do."""

    code: str
    count: int
    meaning: str
    releases: str = ""
    action: str = ""


class KnownPitfall(msgspec.Struct, frozen=True, kw_only=True):
    """A known trait of the releases in a range (in words) that concerns this predictor, and what to do.

    ``costly``: requests suffer from it; otherwise only figures do.
    """

    code: str
    releases: str
    meaning: str
    action: str
    costly: bool


def known_pitfalls(facts: Facts) -> tuple[KnownPitfall, ...]:
    """Return the pitfalls that the facts show, those that cost requests something first."""
    return tuple(
        KnownPitfall(
            code=pitfall.code,
            releases=releases_in_words(pitfall.since, pitfall.until),
            meaning=pitfall.meaning,
            action=pitfall.action,
            costly=pitfall.costly,
        )
        for pitfall in pitfalls_of(facts)
    )


def warning_counts(warnings: Mapping[str, int]) -> tuple[WarningCount, ...]:
    """Return what was counted by code, in the codes' order, with what each means."""
    return tuple(
        WarningCount(
            code=code,
            count=count,
            meaning=WARNINGS[code].meaning,
            releases=releases_in_words(WARNINGS[code].since, WARNINGS[code].until),
            action=WARNINGS[code].action,
        )
        for code, count in sorted(warnings.items())
    )
