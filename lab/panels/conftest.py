"""What the tests of panels share: one Prometheus for all of them, and the rendered dashboards."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dashboards.conftest import DASHBOARDS, dashboard
from dashboards.grafana import Dashboard, Json, Panel
from panels import components
from panels.cast import REPLICAS, VIEWS
from panels.database import NOW, Database, database, fill
from panels.frames import Answer, View
from support.fieldtools import either

__all__ = ["dashboard"]
# With another service than the healthy one: a control, and itself, which is a comparison with its baseline.
COMPARED = {"healthy": "chat-control", "regression": VIEWS["regression"], "collapse": VIEWS["collapse"]}


class Looked:
    """Every dashboard as seen in every state; each question is asked once."""

    def __init__(self, base: Database) -> None:
        self._base = base
        self.view = cache(self._view)
        self.answers = cache(self._answers)
        self.fields = cache(self._fields)

    def _view(self, name: str, state: str) -> View:
        """Where several services can be looked at, the healthy one is seen among all."""
        (dashboard,) = [each for each in DASHBOARDS if each.name == name]
        given = {"inference_service": VIEWS[state], "compare_with": COMPARED.get(state, VIEWS["healthy"])}
        several = {variable["name"] for variable in dashboard.variables if variable.get("multi")}
        picks = {variable: pick for variable, pick in given.items() if variable not in several or state != "healthy"}
        return View.of(dashboard, picks, self._base, NOW)

    def _answers(self, name: str, state: str) -> list[tuple[Panel, list[Answer]]]:
        view = self.view(name, state)
        return [(panel, view.ask(panel)) for panel in view.dashboard.panels]

    def _fields(self, name: str, state: str) -> list[tuple[Panel, list[Json]]]:
        """Every panel with its fields, as Grafana transforms and calls them: components/fields.js."""
        panels, answers = zip(*self.answers(name, state), strict=True)
        return list(zip(panels, components.fields(map(components.given, panels, answers), NOW), strict=True))

    def everywhere(self, dashboard: Dashboard) -> Iterator[tuple[str, Panel, Answer]]:
        """Every answer: the state, the panel, the answer."""
        for state in VIEWS:
            for panel, answers in self.answers(dashboard.name, state):
                yield from ((state, panel, answer) for answer in answers)


@pytest.fixture(scope="session", params=either("", "3"))
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(blocks(tmp_path_factory, request.param), release=request.param) as found:
        yield found


def blocks(factory: pytest.TempPathFactory, release: str) -> Path:
    """Blocks for the database of one worker: the first that needs them makes them, the others wait and copy."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return fill(factory.mktemp("dashboards"), REPLICAS, release=release)
    shared = factory.getbasetemp().parent / f"dashboards{release}"
    shared.mkdir(exist_ok=True)
    made, own = shared / "made", factory.mktemp("dashboards") / "data"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            fill(shared, REPLICAS, release=release).rename(made)
    return Path(shutil.copytree(made, own))
