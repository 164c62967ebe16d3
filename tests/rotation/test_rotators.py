"""svlogd, multilog and s6-log, faster than the reader looks and slower."""

from __future__ import annotations

from pathlib import Path

import pytest

from rotation.rotators import ROTATORS, followed

SECONDS = 5.0
pytestmark = pytest.mark.field


@pytest.mark.parametrize("rotator", ROTATORS)
def test_what_a_real_rotator_keeps_is_read(rotator: str, tmp_path: Path) -> None:
    """Two rotations between two looks."""
    verdict = followed(rotator, tmp_path, rotations_a_second=4, seconds=SECONDS)
    assert verdict.good, verdict
    assert verdict.gone == verdict.gaps == 0, verdict


@pytest.mark.parametrize("rotator", ROTATORS)
def test_what_it_deletes_unread_is_a_gap(rotator: str, tmp_path: Path) -> None:
    """Twenty rotations between two looks, of which it keeps six files; on a busy machine fewer, but enough."""
    verdict = followed(rotator, tmp_path, rotations_a_second=40, seconds=SECONDS)
    assert verdict.good, verdict
    assert verdict.gone > 0, verdict
