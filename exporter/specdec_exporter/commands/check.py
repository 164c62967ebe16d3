"""``check``: a smoke check beside a running predictor."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any, Literal

import click
import msgspec

from specdec_exporter.commands import EXIT_CODES
from specdec_exporter.commands.flags import access_flag, log_path_flag, option, output_flag, timeout_flag, window_flag
from specdec_exporter.config import Access


@click.command("check")
@click.argument("url")
@access_flag
@log_path_flag
@timeout_flag
@window_flag
@option("--baseline.file", "Baseline to compare the speed with, from `baseline record`.", metavar="PATH")
@output_flag
def command(
    url: str,
    *,
    access: Access,
    predictor_log_path: tuple[str, ...],
    predictor_timeout: float,
    window: float,
    baseline_file: str | None,
    output: Literal["text", "json"],
) -> int:
    """Examine the predictor at URL, and say what to do.

    Of a running exporter, such as http://127.0.0.1:10409, check shows the last minutes at once, with log and baseline.
    In a pod with the sidecar:

    kubectl exec POD -c specdec-exporter -- specdec-exporter check http://127.0.0.1:10409
    """
    from specdec_exporter.commands.streams import stop_at_signals

    async def run() -> int:
        return await check(
            url,
            access=access,
            log_paths=predictor_log_path,
            baseline_path=baseline_file,
            timeout_seconds=predictor_timeout,
            window_seconds=window,
            output=output,
            stop=stop_at_signals(),
        )

    return asyncio.run(run())


async def check(url: str, *, output: Literal["text", "json"] = "text", **given: Any) -> int:
    """Examine the predictor at ``url`` as :func:`livecheck.examined` does, print the findings, return the exit code.

    ``json`` is one object for each predictor: the fields of :class:`Examination`, the level and the status.
    """
    from specdec_exporter.inspection.livecheck import examined
    from specdec_exporter.speculation.verdict import worst
    from specdec_exporter.terminal.check import print_examination
    from specdec_exporter.terminal.console import time_progress, write

    levels = []
    for examination, status in await examined(url, progress=partial(time_progress, sys.stderr), **given):
        levels.append(examination.level)
        if output == "json":
            click.echo(msgspec.json.encode(examination.document(status)))
        else:
            write(sys.stdout, partial(print_examination, examination=examination, status=status))
    return EXIT_CODES[worst(levels)]
