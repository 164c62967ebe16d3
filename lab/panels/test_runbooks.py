"""The queries of the runbooks, put to a real Prometheus that holds services in every state."""

from __future__ import annotations

import re

import pytest

from panels.database import NOW, Database
from support.promtool import REPOSITORY

pytestmark = pytest.mark.nightly

RUNBOOKS = REPOSITORY / "rules" / "runbooks"
# What nobody in this cast does: preempt, compile, miss or fail an evaluation, restart, stall, go away, or promise.
QUIET = re.compile(
    r"preemptions|_slo_|jit_compilation|iterations_missed|evaluation_failures|^resets|^specdec_requests_waiting.* > 0$"
    r"|^up\{|:up\{.* == 0$",
    re.MULTILINE,
)


def queries() -> list[tuple[str, str]]:
    """Page and query; the service of the examples is any service of any namespace."""
    found = []
    for path in sorted(RUNBOOKS.glob("*.md")):
        for query in re.findall(r"^```promql\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL):
            anywhere = query.replace('namespace="prod"', 'namespace=~".*"')
            found.append((path.stem, anywhere.replace('inference_service="chat"', 'inference_service=~".+"')))
    return found


def test_every_query_finds_something_somewhere(base: Database) -> None:
    silent = [(page, query) for page, query in queries() if not (base.instant(query, NOW) or QUIET.search(query))]

    assert silent == []


def test_the_first_query_names_the_replica(base: Database) -> None:
    """The page begins with a command that needs it."""
    first: dict[str, str] = {}
    for page, query in queries():
        first.setdefault(page, query)
    commands = {path.stem for path in RUNBOOKS.glob("SpecDecode*.md") if '"$POD"' in path.read_text()}
    lacking = {
        page: sorted(found["metric"])
        for page, query in first.items()
        if page in commands
        for found in base.instant(query, NOW)
        if "pod" not in found["metric"]
    }

    assert len(commands) > 10
    assert lacking == {}
