"""Any sequence of what happens to logs: 5,000 steps."""

from __future__ import annotations

from hypothesis import settings

from loglife import LogLife

TestLogLife = LogLife.TestCase
# The same sequences every time; `make soak-tail` takes others.
TestLogLife.settings = settings(max_examples=100, stateful_step_count=50, deadline=None, derandomize=True)
