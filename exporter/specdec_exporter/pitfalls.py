"""What is known of a predictor's release and of the warnings that it logged, as people are told it."""

from __future__ import annotations

from collections.abc import Mapping

from specdec_exporter.predictor.versions import WARNINGS, Facts, pitfalls_of, releases_in_words
from specdec_exporter.status import KnownPitfall, WarningCount


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
