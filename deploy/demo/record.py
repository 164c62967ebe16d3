"""Record the demo's baselines anew: ``PYTHONPATH=deploy .venv/bin/python -m demo.record``. It takes three minutes.

The recorded predictor is the demo's: once without speculation, and once as it usually is. Without
speculation its load changes twice, because drafts change the number of requests that run at a time. So that baseline
knows every load that the demo has.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

from demo.predictors import BEFORE, LOAD, PLAIN, settings
from demo.simulator.scenario import ChangeLoad
from demo.simulator.server import serving
from demo.simulator.settings import SimulatorSettings

_LOADS = ("15/s", "30/s", "50/s")
_SECONDS_EACH = 40.0


async def _record(file: Path, recorded: SimulatorSettings, loads: tuple[str, ...]) -> int:
    requests = f"{' then '.join(loads)}, {recorded.prompt_tokens} prompt and {recorded.output_tokens} output tokens"
    async with serving(recorded) as url:
        command = (
            *(sys.executable, "-m", "specdec_exporter", "baseline", "record"),
            *(f"--predictor.url={url}", f"--predictor.log-path={recorded.log_path}", f"--file={file}"),
            *("--hardware=none: simulated", "--command=python -m demo.simulator"),
            *(f"--duration={len(loads) * _SECONDS_EACH:g}s", f"--request-parameters={requests} in the mean"),
        )
        return await (await asyncio.create_subprocess_exec(*command)).wait()


async def _record_all(directory: Path) -> int:
    changes = [ChangeLoad(at=index * _SECONDS_EACH, load=load) for index, load in enumerate(_LOADS)]
    usual = settings("chat", directory / "usual.log")
    plain = msgspec.structs.replace(
        settings("chat", directory / "plain.log"), method=None, load=_LOADS[0], incidents=tuple(changes[1:])
    )
    return await _record(PLAIN, plain, _LOADS) or await _record(BEFORE, usual, (LOAD,))


def main() -> int:
    """Return the exit code of ``baseline record``."""
    for file in (PLAIN, BEFORE):
        file.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="specdec-demo-") as directory:
        return asyncio.run(_record_all(Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
