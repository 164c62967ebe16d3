"""Options of the test run."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Machines are noisy: being slow is no failure. With CI set, hypothesis brings a reproducible profile of its own.
settings.register_profile("unhurried", parent=settings(), deadline=None)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")
