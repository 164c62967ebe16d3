"""Options of the test run, and its promise: nothing is skipped."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from support.certificates import Identity

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
# Some of what is tested beside the real vLLM is not in every release; those tests name the release.
MAY_SKIP = Path(__file__).parent / "lab" / "vllm"

# Machines are noisy: being slow is no failure. With CI set, hypothesis brings a reproducible profile of its own. A test
# whose property is worth more than 50 examples says so.
settings.register_profile("unhurried", parent=settings(), deadline=None, max_examples=50)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


def not_skipped(report: Report, path: Path) -> Report:
    """A skipped test is a failed one: what it needs should have been installed."""
    if report.skipped and not path.is_relative_to(MAY_SKIP):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped. {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return not_skipped((yield), item.path)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return not_skipped((yield), collector.path)


@pytest.fixture(scope="module")
def authority() -> Identity:
    """An authority that signs certificates."""
    from support.certificates import issue  # few tests need it, and it is slow to import

    return issue("the authority")


@pytest.fixture
def folder(tmp_path: Path, authority: Identity) -> Path:
    """Holds server.crt, server.key, client.crt, client.key, and ca.crt, which signed both."""
    from support.certificates import issue

    authority.write(tmp_path, "ca")
    issue("server", authority).write(tmp_path, "server")
    issue("client", authority).write(tmp_path, "client")
    return tmp_path
