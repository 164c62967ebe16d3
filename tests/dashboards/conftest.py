"""What the dashboard tests share: one Prometheus for all of them, and the rendered dashboards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.cast import REPLICAS
from dashboards.database import Database, database
from dashboards.grafana import Dashboard, load
from fieldtools import either

DASHBOARDS = load()


@pytest.fixture(scope="session", params=either("", "3"))
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(tmp_path_factory.mktemp("dashboards"), REPLICAS, release=request.param) as found:
        yield found


@pytest.fixture(params=DASHBOARDS, ids=lambda dashboard: dashboard.name)
def dashboard(request: pytest.FixtureRequest) -> Dashboard:
    found: Dashboard = request.param
    return found
