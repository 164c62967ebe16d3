"""What the log says of a predictor that cannot be read: each change once, not each flap."""

from __future__ import annotations

from typing import get_args

import pytest

from specdec_exporter.errors import FetchError, FetchReason
from specdec_exporter.serving.complaints import Complaints
from specdec_exporter.serving.families.exporter import REASONS
from support.builders import Clock


def said(story: str, seconds: float = 15) -> list[str]:
    """What is logged of reads ``seconds`` apart: ``.`` is a good one, other characters are reasons."""
    reasons: dict[str, FetchReason] = {"c": "connect", "t": "timeout"}
    clock, found = Clock(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specdec_exporter.serving.complaints.LOG.warning", lambda _, extra: found.append(extra["reason"]))
        patch.setattr("specdec_exporter.serving.complaints.LOG.info", lambda *_, **__: found.append("well"))
        complaints = Complaints("chat", clock.monotonic)
        for read in story:
            if read == ".":
                complaints.succeeded()
            else:
                complaints.failed(FetchError(reasons[read], read))
            clock.advance(seconds)
    return found


@pytest.mark.parametrize(
    ("story", "log"),
    [
        ("....", []),
        ("cccc", ["c"]),
        ("c.c.c.c.c..c...c", ["c"]),
        ("cct..tttc", ["c", "t", "c"]),
        ("c....", ["c"]),
        ("c.....", ["c", "well"]),
        ("c.......c.....c", ["c", "well", "c", "well", "c"]),
    ],
)
def test_each_change_is_said_once(story: str, log: list[str]) -> None:
    assert said(story) == log


def test_every_reason_is_explained_and_no_other() -> None:
    assert REASONS.keys() == set(get_args(FetchReason))
