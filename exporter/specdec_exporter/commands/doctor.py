"""``doctor``: what the arguments of a server, its log and its metrics say, before anybody waits for traffic."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from specdec_exporter.commands import EXIT_CODES
from specdec_exporter.commands.flags import Checked, access_flag, log_path_flag, output_flag
from specdec_exporter.config import Access
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.versions import Release, parse_release

if TYPE_CHECKING:
    from specdec_exporter.doctor.reports import Given


def _release(text: str) -> Release:
    if (release := parse_release(text)) is None:
        raise ConfigError(f"expected a release such as 0.32.0, found {text[:40]!r}")
    return release


def _server_command(text: str) -> str:
    from specdec_exporter.predictor.servercommand import read_command

    read_command(text)
    return text


@click.command("doctor")
@click.argument("url", required=False)
@click.option(
    "--args",
    "arguments",
    metavar="TEXT",
    type=Checked("command", _server_command),
    help="vLLM's command, or only its arguments, in quotes.",
)
@click.option("--manifest", metavar="FILE|-", help="A Kubernetes manifest that starts vLLM, instead of --args.")
@log_path_flag
@click.option(
    "--release",
    type=Checked("release", _release),
    help="The release of vLLM, such as 0.32.0, where neither log, server nor the image's tag tells it.",
)
@access_flag
@output_flag
def command(
    url: str | None,
    *,
    arguments: str | None,
    manifest: str | None,
    predictor_log_path: tuple[str, ...],
    release: Release | None,
    access: Access,
    output: Literal["text", "json"],
) -> int:
    """Judge a vLLM server by its arguments, log and metrics.

    Give one of these, or all together.

    Before a deployment: doctor --args "vllm serve MODEL ..." --release 0.32.0, or doctor --manifest FILE. After a
    start: doctor --predictor.log-path FILE. On a running server: doctor URL.
    """
    if arguments is None and manifest is None and not predictor_log_path and url is None:
        raise click.UsageError("give at least one of --args, --manifest, --predictor.log-path and URL")
    if arguments is not None and manifest is not None:
        raise click.UsageError("--args and --manifest exclude each other")
    if [manifest, *predictor_log_path].count("-") > 1:
        raise click.UsageError("only one of --manifest and --predictor.log-path can be - (stdin)")
    from specdec_exporter.doctor.reports import Given

    given = Given(
        url=url,
        arguments=arguments,
        manifest=manifest,
        log_paths=predictor_log_path,
        release=release,
        access=access,
    )
    return asyncio.run(doctor(given, output=output))


async def doctor(given: Given, *, output: Literal["text", "json"] = "text") -> int:
    """Print a report for each server; return the exit code by the worst finding."""
    from specdec_exporter.doctor.reports import reports
    from specdec_exporter.speculation.verdict import worst
    from specdec_exporter.terminal.console import working, write
    from specdec_exporter.terminal.doctor import print_report

    with working(sys.stderr, "Examining"):
        told = await reports(given)
    for report in told:
        if output == "json":
            click.echo(msgspec.json.encode(report))
        else:
            write(sys.stdout, partial(print_report, report=report))
    return EXIT_CODES[worst(report.level for report in told)]
