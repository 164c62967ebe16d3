"""Any sequence of what happens to logs: 1,000 steps, and every night 5,000 others."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from support.loglife import LogLife

STEPS = settings(max_examples=20, stateful_step_count=50, deadline=None, derandomize=True)


def test_twenty_lives_of_a_log() -> None:
    run_state_machine_as_test(LogLife, settings=STEPS)


@pytest.mark.nightly
def test_a_hundred_others() -> None:
    """Other sequences every time."""
    run_state_machine_as_test(LogLife, settings=settings(STEPS, max_examples=100, derandomize=False))
