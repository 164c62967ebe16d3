"""The rendered dashboards."""

from __future__ import annotations

import pytest

from dashboards.grafana import Dashboard, load

DASHBOARDS = load()


@pytest.fixture(params=DASHBOARDS, ids=lambda dashboard: dashboard.name)
def dashboard(request: pytest.FixtureRequest) -> Dashboard:
    found: Dashboard = request.param
    return found
