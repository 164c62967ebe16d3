"""What the log says of a predictor that cannot be read: each change once, not each flap."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from builders import Clock
from specdec_exporter.errors import FetchError, FetchReason
from specdec_exporter.predictor import metrics
from specdec_exporter.serving.complaints import Complaints
from specdec_exporter.serving.families.exporter import REASONS


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


def test_every_reason_is_given_somewhere_and_no_other() -> None:
    nodes = [
        node for path in Path(metrics.__file__).parent.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))
    ]
    errors = [node for node in nodes if isinstance(node, ast.Call)]
    reasons = [node.args[0] for node in errors if getattr(node.func, "id", "") in ("FetchError", "ExpositionError")]
    (no_connection,) = (node for node in nodes if getattr(node, "name", "") == "no_connection")
    returned = [node.value for node in ast.walk(no_connection) if isinstance(node, ast.Return)]
    reasons += [answer.elts[0] for answer in returned if isinstance(answer, ast.Tuple)]
    given = {reason.value for reason in reasons if isinstance(reason, ast.Constant)}
    assert given == set(get_args(FetchReason)) == REASONS.keys()
