"""``make demo``: simulated predictors, the exporter, Prometheus with the rule pack, Alertmanager, and the pages.

One predictor has a draft model that does not fit, another gets slow. The pages follow. The rules are the pack's own,
with short windows and waits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import shutil
import signal
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from demo import pack
from demo.pager import pager
from demo.predictors import CODE_RESTARTS, SEARCH_SLOW, SEARCH_WELL, exporter_config, predictors
from demo.processes import ProcessError
from demo.stack import alertmanager, alerts_page, exporter, prometheus
from demo.table import rows
from specdec_exporter.errors import SpecdecError

_CHECK_SECONDS = 0.5


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _amtool() -> str:
    """How a shell in this folder calls amtool: Debian's Alertmanager has no web application."""
    program = shutil.which("amtool") or "amtool"
    inside = Path(program).is_relative_to(Path.cwd())
    return os.path.relpath(program) if inside else program


async def demo(seconds: float | None, stop: asyncio.Event, directory: Path) -> None:
    """Run until ``stop`` or for ``seconds``. Raises :class:`ProcessError` when a part does not start, or ends."""
    now = asyncio.get_running_loop().time
    await pack.text("rules")  # before anything runs that would wait for it
    async with contextlib.AsyncExitStack() as stack:
        open_ = stack.enter_async_context
        begun, clock = now(), datetime.now().astimezone()

        def at(seconds: float) -> str:
            return f"{clock + timedelta(seconds=seconds):%H:%M:%S}"

        exp = await open_(exporter(exporter_config(await open_(predictors(directory))), directory))

        async def show(page: str, service: str | None) -> None:
            _say(f"{page}\n{await rows(exp, service)}" if service else page)

        receiver = await open_(pager(show))
        am = await open_(alertmanager(receiver.url, directory))
        prom = await open_(prometheus({"demo-0": exp}, am, directory))
        _say(
            "A demo: the predictors are simulated, no model runs. Everything else is real.\n"
            f"  status page    {exp.url}/\n"
            f"  metrics        {exp.url}/metrics\n"
            f"  Prometheus     {await alerts_page(prom)}\n"
            f"  Alertmanager   {_amtool()} --alertmanager.url={am.url}/ alert\n"
            "code runs with a draft model that does not fit. "
            f"At {at(CODE_RESTARTS)} it restarts with one that does.\n"
            f"search gets slow at {at(SEARCH_SLOW)} and is well again at {at(SEARCH_WELL)}.\n"
            "Alerts are printed here as they arrive. The first takes about a minute. Ctrl-C ends the demo."
        )
        first_look = True
        end = begun + seconds if seconds is not None else math.inf
        while not stop.is_set() and now() < end:
            for server in (exp, am, prom):
                server.check()
            # The verdict is said some seconds before its page.
            if first_look and "harmful: " in (table := await rows(exp)):
                first_look = False
                _say(table)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(_CHECK_SECONDS, max(end - now(), 0)))
        _say(f"The end, after {now() - begun:.0f} s:\n{await rows(exp)}")


async def _main(seconds: float | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with tempfile.TemporaryDirectory(prefix="specdec-demo-") as directory:
        await demo(seconds, stop, Path(directory))


def main() -> int:
    """Exit code 0 when it ended as asked, 1 when it could not go on."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seconds", type=float, help="end by itself after so many seconds")
    arguments = parser.parse_args()
    try:
        asyncio.run(_main(arguments.seconds))
    except (ProcessError, SpecdecError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
