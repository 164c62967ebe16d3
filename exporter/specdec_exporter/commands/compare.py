"""``compare``: two recordings, or a recording and a running predictor."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

import click

from specdec_exporter.baseline.file import read_baseline
from specdec_exporter.commands.flags import DURATION, context_flags, log_paths_flag
from specdec_exporter.commands.recording import given_context, one_line, record_beside

_DURATION_SECONDS = 300.0
_TIMEOUT_SECONDS = 5.0


@click.command("compare")
@click.argument("baseline")
@click.argument("candidate", metavar="CANDIDATE|URL")
@click.option(
    "--output",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="For a terminal, for a report, or for programs.",
)
@click.option(
    "--fail-on-regression",
    is_flag=True,
    help="Exit with 1 if CANDIDATE is certainly slower in anything, or if the data decide nothing.",
)
@click.option("--duration", type=DURATION, help="With URL: how long to record.  [default: 5m]")
@log_paths_flag(
    "--predictor.log-path", "With URL: the predictor's log, for method, draft model and k: path or glob, repeatable."
)
@click.option("--name", help="With URL: the name of the recording.  [default: the served model]")
@context_flags
def command(
    *,
    baseline: str,
    candidate: str,
    output: Literal["text", "markdown", "json"],
    fail_on_regression: bool,
    duration: float | None,
    log_paths: tuple[str, ...],
    name: str | None,
    **context: str | None,
) -> int:
    """Compare two recordings: is CANDIDATE faster than BASELINE, is its tail, and is the difference more than chance?

    Both are files of `baseline record`. CANDIDATE may also be the URL of a predictor (http://...), which is then
    recorded first; flags such as --hardware add what the predictor does not report.
    """
    from specdec_exporter.comparison.compare import compare
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.comparison import write_comparison

    before = read_baseline(baseline)
    if candidate.startswith(("http://", "https://")):
        after = asyncio.run(
            record_beside(
                candidate,
                duration or _DURATION_SECONDS,
                log_paths=log_paths,
                timeout_seconds=_TIMEOUT_SECONDS,
                name=one_line(name),
                context=given_context(context),
            )
        )
    elif duration or log_paths or name or any(context.values()):
        raise click.UsageError(
            "--duration, --predictor.log-path, --name, --hardware and the like need the URL of a predictor; a file "
            "already says these things"
        )
    else:
        after = read_baseline(candidate)
    comparison = compare(before, after, load_policy())
    write_comparison(sys.stdout, comparison, output)
    decision = comparison.decision
    # A pipeline must not pass because there were too few requests to decide.
    return int(fail_on_regression and (decision.regression or decision.code == "undecided"))
