"""What the dashboard tests share: one Prometheus for all of them, and the rendered dashboards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.cast import REPLICAS
from dashboards.database import Database, database
from dashboards.grafana import Dashboard, load

DASHBOARDS = load()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(tmp_path_factory.mktemp("dashboards"), REPLICAS) as found:
        yield found


@pytest.fixture(params=DASHBOARDS, ids=lambda dashboard: dashboard.name)
def dashboard(request: pytest.FixtureRequest) -> Dashboard:
    found: Dashboard = request.param
    return found
