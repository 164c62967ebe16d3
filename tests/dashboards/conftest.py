"""What the dashboard tests share: one Prometheus for all of them, and the rendered dashboards."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.cast import REPLICAS
from dashboards.database import Database, database, fill
from dashboards.grafana import Dashboard, load
from fieldtools import either

DASHBOARDS = load()


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


@pytest.fixture(params=DASHBOARDS, ids=lambda dashboard: dashboard.name)
def dashboard(request: pytest.FixtureRequest) -> Dashboard:
    found: Dashboard = request.param
    return found
