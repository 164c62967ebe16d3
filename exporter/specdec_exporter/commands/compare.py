"""``specdec-exporter compare``: parse, call, print."""

from __future__ import annotations

import asyncio
import sys

import click

from specdec_exporter.baseline.file import Baseline, Context, read_baseline
from specdec_exporter.commands.baseline import one_line, record_beside
from specdec_exporter.commands.flags import DURATION, context_flags, log_paths_flag
from specdec_exporter.comparison.compare import compare
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.comparison import Output, write_comparison

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
    help="Exit with 1 if anything became slower beyond doubt, or if nothing can be decided.",
)
@click.option("--duration", type=DURATION, help="With URL: how long to record.  [default: 5m]")
@log_paths_flag(
    "--predictor.log-path",
    "With URL: the predictor's log, for method, draft model and k: path or glob, repeatable.",
)
@click.option("--name", help="With URL: what to call the recording.  [default: the served model]")
@context_flags
def command(
    *,
    baseline: str,
    candidate: str,
    output: Output,
    fail_on_regression: bool,
    duration: float | None,
    log_paths: tuple[str, ...],
    name: str | None,
    **context: str | None,
) -> int:
    """Compare two recordings: is CANDIDATE faster than BASELINE, is its tail, and is the difference more than chance?

    Both are files of `baseline record`. If the second is the URL of a predictor (http://...), it is recorded now; flags
    such as --hardware add what a predictor does not tell.
    """
    before = read_baseline(baseline)
    if candidate.startswith(("http://", "https://")):
        given = Context(**{key: one_line(value) for key, value in context.items()})
        after = _record(candidate, duration, log_paths, one_line(name), given)
    elif duration or log_paths or name or any(context.values()):
        raise click.UsageError(
            "--duration, --predictor.log-path, --name, --hardware and the like go with the URL of a predictor; a file "
            "has its own"
        )
    else:
        after = read_baseline(candidate)
    comparison = compare(before, after, load_policy())
    write_comparison(sys.stdout, comparison, output)
    decision = comparison.decision
    # A pipeline must not pass for want of requests.
    return int(fail_on_regression and (decision.regression or decision.code == "undecided"))


def _record(
    url: str, duration: float | None, log_paths: tuple[str, ...], name: str | None, context: Context
) -> Baseline:
    return asyncio.run(
        record_beside(
            url,
            duration or _DURATION_SECONDS,
            log_paths=log_paths,
            timeout_seconds=_TIMEOUT_SECONDS,
            name=name,
            context=context,
        )
    )
