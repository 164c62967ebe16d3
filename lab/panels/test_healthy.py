"""What the dashboards show of a healthy service, asked of a real Prometheus; test_queries.py does all, every night."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from dashboards.grafana import Dashboard
from panels.cast import REPLICAS, VIEWS
from panels.conftest import Looked
from panels.database import database, fill
from panels.test_queries import QUIET_WHILE_HEALTHY, told

pytestmark = [pytest.mark.debian, pytest.mark.slow]
ABOUT_IT = {"specdec-service", "specdec-ab"}  # the other dashboards have panels about services in other states
WITH_CONTROL = [each for each in REPLICAS if each.service in {VIEWS["healthy"], f"{VIEWS['healthy']}-control"}]


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    with database(fill(tmp_path_factory.mktemp("healthy"), WITH_CONTROL)) as base:
        yield Looked(base)


def test_every_panel_shows_numbers(looked: Looked, dashboard: Dashboard) -> None:
    answers = looked.answers(dashboard.name, "healthy")
    empty = {panel.title for panel, asked in answers if asked and not any(each.series for each in asked)}
    wrong = [
        told(panel, each)
        for panel, asked in answers
        for each in asked
        if not all(math.isfinite(value) for value in each.values)
    ]

    assert wrong == []
    assert dashboard.name not in ABOUT_IT or empty <= QUIET_WHILE_HEALTHY
