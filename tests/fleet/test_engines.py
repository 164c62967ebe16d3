"""Every engine loads the rendered rules as they are, and wakes the right people; and how the engines differ."""

from __future__ import annotations

import asyncio
import json

import pytest

import yamltext
from fleet.engines import ENGINES
from fleet.story import PAGES, RULES
from fleet.telling import Seen, told


@pytest.fixture(scope="session")
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """The story as it was for all engines whose tests are run."""
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if "name" in getattr(item, "callspec", item).__dict__.get("params", {})
    }
    return asyncio.run(told([name for name in ENGINES if name in wanted], tmp_path_factory.mktemp("fleet")))


@pytest.fixture(params=ENGINES)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def seen(story: dict[str, Seen], name: str) -> Seen:
    found = story[name]
    assert not found.failure, found.failure
    return found


def test_dump(story: dict[str, Seen], name: str) -> None:
    s = story[name]
    print(name, s.failure, s.paged(), s.kept, s.vanished, s.increase, s.unmarked, s.first, s.slow_phases, s.verdicts)
    for p in PAGES:
        try:
            print(p, s.began(p) - s.down_at)
        except Exception as e:
            print(e)
    errs = [
        (g["name"], r["name"], r.get("health"), r.get("lastError"))
        for g in s.groups
        for r in g["rules"]
        if r.get("health") != "ok"
    ]
    print(len(s.groups), sum(len(g["rules"]) for g in s.groups), errs)
