"""``make demo``: simulated predictors, the exporter, Prometheus with the rule pack, Alertmanager, and the pages.

After a quarter of a minute one predictor gets a draft model that does not fit, and another predictor gets slow. The
pages follow. The rules are the pack's own. Every window and wait of theirs is a thirtieth of its production value.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from demo import pack
from demo.pager import pager
from demo.predictors import INCIDENT_AT_SECONDS, INCIDENT_SECONDS, exporter_config, predictors
from demo.processes import ProcessError
from demo.stack import alertmanager, exporter, prometheus
from demo.table import LiveTable
from specdec_exporter.errors import SpecdecError


async def demo(seconds: float | None, stop: asyncio.Event, directory: Path) -> None:
    """Run until ``stop`` or for ``seconds``. Raises :class:`ProcessError` when a part does not start, or ends."""
    table = LiveTable(Console())
    await pack.text("rules")  # before anything runs that would wait for it
    async with contextlib.AsyncExitStack() as stack:
        open_ = stack.enter_async_context
        simulated = await open_(predictors(directory))
        exp = await open_(exporter(exporter_config(simulated), directory))
        receiver = await open_(pager(table.say))
        am = await open_(alertmanager(receiver.url, directory))
        prom = await open_(prometheus({"demo-0": exp}, am, directory))
        table.say(
            "A demo: the predictors are simulated, no model runs. Everything else is real.\n"
            f"  status page    {exp.url}/\n"
            f"  metrics        {exp.url}/metrics\n"
            f"  Prometheus     {prom.url}/alerts\n"
            f"  Alertmanager   {am.url}/\n"
            f"At {INCIDENT_AT_SECONDS:.0f} s code restarts with a draft model that does not fit, and search gets slow, "
            f"for {INCIDENT_SECONDS:.0f} s.\n"
            "Pages are printed here as they arrive. The first takes about a minute. Ctrl-C ends the demo."
        )

        def alive() -> None:
            for server in (exp, am, prom):
                server.check()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await table.follow(exp, stop, alive)


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
