"""Draw docs/status-page*.png anew: ``PYTHONPATH=deploy .venv/bin/python -m demo.picture``. It takes a minute.

The demo's predictors and exporter run without Prometheus. On a busy machine the speed-up is too uncertain for the
verdict that the picture shows; then nothing is drawn.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import aiohttp
import msgspec

from demo.predictors import CODE_RESTARTS, exporter_config, predictors
from demo.stack import exporter
from specdec_exporter.state.status import Status

DOCS = Path(__file__).parents[2] / "docs"
_WANTED = {"chat": "healthy", "code": "harmful", "search": "slower"}
_SHOTS = {  # of the first predictor, which is the worst
    "status-page.png": ("--window-size=1180,900",),
    "status-page-dark.png": ("--window-size=1180,900", "--blink-settings=preferredColorScheme=0"),
    "status-page-phone.png": ("--window-size=390,844",),
}


async def _draw(directory: Path) -> int:
    async with predictors(directory) as running, exporter(exporter_config(running), directory) as server:
        async with aiohttp.ClientSession(server.url) as session, asyncio.timeout(CODE_RESTARTS):
            found: dict[str, str] = {}
            while found != _WANTED:
                await asyncio.sleep(1.0)  # the exporter reads the predictors when it is scraped
                async with session.get("/metrics"), session.get("/api/v1/status") as answer:
                    status = msgspec.json.decode(await answer.read(), type=Status)
                found = {each.inference_service: each.verdict.code for each in status.predictors}
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000")
        for name, own in _SHOTS.items():
            command = ("chromium", *flags, *own, f"--screenshot={DOCS / name}", server.url)
            shooting = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
            if code := await shooting.wait():
                return code
        return 0


def main() -> int:
    """Return the exit code of Chromium, or 1 if the predictors never got the verdicts that the picture shows."""
    with tempfile.TemporaryDirectory(prefix="specdec-demo-") as directory:
        try:
            return asyncio.run(_draw(Path(directory)))
        except TimeoutError:
            sys.stderr.write(f"the verdicts never became {_WANTED}: is the machine busy?\n")
            return 1


if __name__ == "__main__":
    sys.exit(main())
