"""``check``: the flags of a smoke check beside a running predictor."""

from __future__ import annotations

import asyncio
from typing import Literal

import click

from specdec_exporter.commands.flags import DURATION, log_paths_flag


@click.command("check")
@click.argument("url")
@log_paths_flag("--log-path", "The predictor's log: path or glob, repeatable.")
@click.option("--timeout", type=DURATION, default="5s", show_default=True, help="Longest time for each request.")
@click.option("--interval", type=DURATION, default="2s", show_default=True, help="Time between the two fetches.")
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
    log_paths: tuple[str, ...],
    timeout: float,
    interval: float,
    baseline: str | None,
    output: Literal["text", "json"],
) -> int:
    """Examine the predictor at URL: what is well, what is not, and what to do.

    Exit codes: 0 everything passed, 2 there are warnings, 1 something failed.
    """
    from specdec_exporter.commands.livecheck import check

    return asyncio.run(
        check(
            url,
            log_paths=log_paths,
            baseline_path=baseline,
            timeout_seconds=timeout,
            interval_seconds=interval,
            output=output,
        )
    )
