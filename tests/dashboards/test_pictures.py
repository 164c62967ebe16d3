"""The previews are PNGs that repeat, and show every type of panel."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from dashboards.conftest import DASHBOARDS
from dashboards.database import NOW, Database
from dashboards.frames import View
from dashboards.grafana import Dashboard
from dashboards.pictures import DOCS, DRAW, WIDTH, picture

MAX_BYTES = 400 * 1024


def test_every_type_of_panel_can_be_drawn() -> None:
    used = {panel.type for dashboard in DASHBOARDS for panel in dashboard.panels}

    assert used <= DRAW.keys()


def test_a_picture_repeats(base: Database) -> None:
    (dashboard,) = [each for each in DASHBOARDS if each.name == "specdec-fleet"]
    first, second = (picture(View.of(dashboard, {}, base, NOW)) for _ in range(2))

    assert first == second
    assert len(first) < MAX_BYTES
    assert Image.open(io.BytesIO(first)).width == WIDTH


def test_every_dashboard_has_a_picture_that_is_not_too_large(dashboard: Dashboard) -> None:
    path: Path = DOCS / f"dashboard-{dashboard.name.removeprefix('specdec-')}.png"

    assert 10_000 < path.stat().st_size < MAX_BYTES
