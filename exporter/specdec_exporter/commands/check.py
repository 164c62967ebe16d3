"""``check``: the flags of a smoke check beside a running predictor."""

from __future__ import annotations

import asyncio
from typing import Literal

import click

from specdec_exporter.commands.flags import DURATION, access_flags, log_paths_flag
from specdec_exporter.config import Access


@click.command("check")
@click.argument("url")
@access_flags
@log_paths_flag("--log-path", "The predictor's log: path or glob, repeatable.")
@click.option("--timeout", type=DURATION, default="5s", show_default=True, help="Longest time for each request.")
@click.option(
    "--window",
    "--interval",
    "window",
    type=DURATION,
    default="2s",
    show_default=True,
    help="How long to read it: 1m tells more than 2s. An exporter has a window of its own.",
)
@click.option("--baseline", metavar="FILE", help="Baseline to compare the speed with, from `baseline record`.")
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, or one JSON object.",
)
def command(
    url: str,
    *,
    access: Access,
    log_paths: tuple[str, ...],
    timeout: float,
    window: float,
    baseline: str | None,
    output: Literal["text", "json"],
) -> int:
    """Examine the predictor at URL: what is well, what is not, and what to do.

    If URL is that of a running exporter, such as http://127.0.0.1:10409, the figures of its last minutes count at once,
    with its log and its baseline. A pod with the sidecar needs nothing else: kubectl exec POD -c specdec-exporter --
    specdec-exporter check http://127.0.0.1:10409

    Exit codes: 0 everything passed, 2 there are warnings, 1 something failed.
    """
    from specdec_exporter.commands.livecheck import check
    from specdec_exporter.commands.recording import stop_at_signals

    async def run() -> int:
        return await check(
            url,
            access=access,
            log_paths=log_paths,
            baseline_path=baseline,
            timeout_seconds=timeout,
            window_seconds=window,
            output=output,
            stop=stop_at_signals(),
        )

    return asyncio.run(run())
