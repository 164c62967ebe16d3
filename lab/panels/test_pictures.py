"""The previews: each dashboard has one, and Grafana's components draw it."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from PIL import Image

from dashboards.conftest import DASHBOARDS
from dashboards.grafana import Dashboard, Json
from panels.database import NOW
from panels.draw import DOCS, HEIGHT, WIDTH, picture
from panels.frames import View

MAX_BYTES = 400 * 1024
LABELS = {name: name for name in ("cluster", "namespace", "inference_service", "model_name", "pod", "instance")} | {
    "position": "1",
    "concurrency": "4",
    "verdict": "harmful",
}


class MadeUp:
    """Answers everything with one series."""

    def instant(self, expression: str, at: float) -> list[Json]:
        return [{"metric": LABELS, "value": [at, "1"]}]

    def range(self, expression: str, start: float, end: float, step: float) -> list[Json]:
        times = [start + step * number for number in range(int((end - start) / step) + 1)]
        return [{"metric": LABELS, "values": [[at, f"{1 + round(math.sin(at / 900))}"] for at in times]}]

    def series(self, selector: str, start: float, end: float) -> list[dict[str, str]]:
        return [LABELS]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_every_dashboard_has_a_picture_that_is_not_too_large(dashboard: Dashboard) -> None:
    path: Path = DOCS / f"dashboard-{dashboard.name.removeprefix('specdec-')}.png"

    assert 10_000 < path.stat().st_size < MAX_BYTES
    with Image.open(path) as image:
        assert image.width == WIDTH


@pytest.mark.field
def test_grafana_s_components_draw_a_dashboard() -> None:
    (dashboard,) = [each for each in DASHBOARDS if each.name == "specdec-service"]
    drawn = Image.open(io.BytesIO(picture(View.of(dashboard, {}, MadeUp(), NOW)))).convert("RGB")

    assert drawn.width == WIDTH
    assert drawn.height == HEIGHT
