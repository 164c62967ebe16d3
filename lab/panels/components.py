"""Grafana's own components and field configuration, from the bundles that ``make components`` makes of components/."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.grafana import Json, Panel
from panels.frames import Answer, frames
from support.fieldtools import ROOT
from support.processes import ran, said

BUNDLES = ROOT / ".tools" / "components"
_PACKAGES = json.loads((Path(__file__).parent / "components" / "package.json").read_text(encoding="utf-8"))
RELEASE: str = _PACKAGES["devDependencies"]["@grafana/ui"]
CHROMIUM_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
    "--force-color-profile=srgb",
)
PAGE_MILLISECONDS = 20_000  # of the page's own time, which passes as fast as the machine can
PATIENCE_SECONDS = 300


def given(panel: Panel, answers: Sequence[Answer]) -> Json:
    """A panel and what was answered, as the bundles take them."""
    return {"panel": panel.json, "frames": frames(answers)}


def fields(panels: Iterable[Json], now: float) -> list[list[Json]]:
    """For each of :func:`given`'s panels its fields after transformations, as components/fields.js says.

    ``now``: Unix seconds.
    """
    told = json.dumps({"now": 1000 * now, "panels": list(panels)})
    shown: list[list[Json]] = json.loads(said("node", _bundle("fields.mjs"), told=told))
    return shown


def screenshot(picture: Mapping[str, Any], folder: Path) -> bytes:
    """The page that components/page.jsx draws of ``picture``, as PNG. ``folder`` is an empty one."""
    script, style = _bundle("page.js"), _bundle("page.css")
    data = json.dumps(picture).replace("<", "\\u003c")
    page, png = folder / "page.html", folder / "page.png"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><link rel=stylesheet href='{style.as_uri()}'>"
        f"<body><script>window.picture = {data}</script><script src='{script.as_uri()}'></script>",
        encoding="utf-8",
    )
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: tests/debian.sh chromedriver"
    run = ran(
        chromium,
        *CHROMIUM_FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={picture['width']},{picture['height']}",
        f"--virtual-time-budget={PAGE_MILLISECONDS}",
        f"--screenshot={png}",
        page.as_uri(),
        seconds=PATIENCE_SECONDS,
    )
    assert f'"drawn: {len(picture["panels"])}"' in run.stderr, run.stderr
    assert '"failed: ' not in run.stderr, run.stderr
    return png.read_bytes()


def _bundle(name: str) -> Path:
    found = BUNDLES / name
    assert found.exists(), f"{found} is missing: make components"
    return found
