"""Numbers for a terminal: a dash for what is not known, and no end of an interval made up."""

from __future__ import annotations

import pytest

from specdec_exporter.formatting import between, percent
from specdec_exporter.speculation.chance import Estimate, interval, times


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ((None, None), "-"),
        ((0.025, 0.05), "25 ms to 50 ms"),
        ((None, 0.001), "< 1 ms"),
        ((2560.0, None), "> 2,560 s"),
    ],
)
def test_a_quantile_is_shown_as_a_range(ends: tuple[float | None, float | None], shown: str) -> None:
    assert between(*ends) == shown


def test_an_interval_stands_in_brackets_if_there_is_one() -> None:
    assert times(Estimate(1.84, 1.79, 1.9)) == "1.84x (1.79 to 1.90)"
    assert (times(Estimate(1.84, None, None)), times(None)) == ("1.84x", "-")
    assert interval(Estimate(0.816, 0.799, None), percent) == "81.6% (79.9% to -)"
