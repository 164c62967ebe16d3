"""``check``: the flags of a smoke check beside a running predictor."""

from __future__ import annotations

import asyncio
from typing import Literal

import click

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

    If URL is that of a running exporter, such as http://127.0.0.1:10409, the figures of its last minutes count at once,
    with its log and its baseline. A pod with the sidecar needs nothing else:

    kubectl exec POD -c specdec-exporter -- specdec-exporter check http://127.0.0.1:10409
    """
    from specdec_exporter.commands.livecheck import check
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
