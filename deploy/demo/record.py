"""Record the demo's baseline anew: ``PYTHONPATH=deploy .venv/bin/python -m demo.record``. It takes two minutes.

The recorded predictor is the demo's, at the same speed, without speculation. Its load changes twice, because drafts
change the number of requests that run at a time. So the baseline knows every load that the demo has.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

from demo.predictors import SPEED, predictor, settings
from specdec_exporter.simulator.scenario import ChangeLoad

FILE = Path(__file__).with_name("baseline.yaml")
_LOADS = ("1.5/s", "3/s", "5/s")
_SECONDS_EACH = 40.0  # real seconds


async def _record(log: Path) -> int:
    changes = [ChangeLoad(at=index * _SECONDS_EACH * SPEED, load=load) for index, load in enumerate(_LOADS)]
    plain = msgspec.structs.replace(settings("chat", log), method=None, load=_LOADS[0], incidents=tuple(changes[1:]))
    requests = f"{', '.join(_LOADS)} in turn, {plain.prompt_tokens} prompt and {plain.output_tokens} output tokens"
    async with predictor(plain) as url:
        command = (
            *(sys.executable, "-m", "specdec_exporter", "baseline", "record"),
            *(f"--predictor.url={url}", f"--predictor.log-path={log}", f"--output={FILE}", "--force"),
            *("--name=demo", "--hardware=none: simulated", "--command=specdec-exporter simulate"),
            *(f"--duration={len(_LOADS) * _SECONDS_EACH:g}s", f"--request-parameters={requests} in the mean"),
        )
        return await (await asyncio.create_subprocess_exec(*command)).wait()


def main() -> int:
    """Return the exit code of ``baseline record``."""
    with tempfile.TemporaryDirectory(prefix="specdec-demo-") as directory:
        return asyncio.run(_record(Path(directory) / "plain.log"))


if __name__ == "__main__":
    sys.exit(main())
