"""Facts about releases are well-formed data, and the look-ups over them do what they say."""

from __future__ import annotations

import re

import pytest

from specdec_exporter.predictor.versions import (
    WARNINGS,
    canonical_method,
    parse_release,
    releases_in_words,
)

Release = tuple[int, int, int]


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.9.2", (0, 9, 2)),
        ("v0.6.6.post1", (0, 6, 6)),
        ("0.32.0rc1.dev12+gabc", (0, 32, 0)),
        ("dev", None),
        ("gabc0.1.2", None),
    ],
)
def test_a_release_is_read_from_a_version(version: str, release: tuple[int, int, int] | None) -> None:
    assert parse_release(version) == release


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ((0, 8, 5), (0, 8, 5), "0.8.5"),
        ((0, 8, 3), (0, 8, 5), "0.8.3 to 0.8.5"),
        ((0, 15, 1), None, "since 0.15.1"),
        (None, (0, 9, 2), "up to 0.9.2"),
        (None, None, "all releases"),
    ],
)
def test_a_range_of_releases_is_said_in_words(since: Release | None, until: Release | None, words: str) -> None:
    assert releases_in_words(since, until) == words


@pytest.mark.parametrize("code", WARNINGS)
def test_a_warning_is_a_label_value_with_a_meaning_and_a_next_step(code: str) -> None:
    warned = WARNINGS[code]
    assert warned.code == code
    assert re.fullmatch(r"[a-z0-9_]{3,40}", code)
    for text in (warned.meaning, warned.action):
        assert re.fullmatch(r"[A-Z].*[a-z0-9)]\.", text)
    assert warned.since is None or parse_release(warned.since) is not None


@pytest.mark.parametrize(
    ("printed", "canonical"),
    [
        ("deepseek_mtp", "mtp"),
        ("some_later_model_mtp", "mtp"),
        ("[ngram]", "ngram"),
        ("ngram_gpu", "ngram"),
        ("ngram", "ngram"),
        ("mtp", "mtp"),
        ("eagle3", "eagle3"),
    ],
)
def test_renamed_methods_have_one_name(printed: str, canonical: str) -> None:
    assert canonical_method(printed) == canonical
