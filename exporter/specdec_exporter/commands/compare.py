"""``compare``: two recordings, a recording and a running predictor, or more than two recordings."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click

from specdec_exporter.baseline.reading import read_baseline
from specdec_exporter.commands.flags import DURATION, log_path_flag
from specdec_exporter.commands.recording import context_flags, given_context, one_line, record_beside
from specdec_exporter.config import SYSTEM_TRUST

if TYPE_CHECKING:
    from specdec_exporter.comparison.decision import Decision

Output = Literal["text", "markdown", "json"]

_DURATION_SECONDS = 300.0
_TIMEOUT_SECONDS = 5.0


@click.command("compare")
@click.argument("baseline")
@click.argument("candidates", metavar="CANDIDATE|URL...", nargs=-1, required=True)
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
    help="Exit with 1 if a CANDIDATE is certainly slower in anything, drafts worse without being faster, or if the "
    "data decide nothing.",
)
@click.option(
    "--aa",
    "repeated",
    is_flag=True,
    help="BASELINE and all files but the last are runs of one setting. Two files alone: how far do such runs differ?",
)
@click.option("--duration", type=DURATION, help="With URL: how long to record.  [default: 5m]")
@log_path_flag
@click.option("--name", help="With URL: the name of the recording.  [default: the served model]")
@context_flags
def command(
    *,
    baseline: str,
    candidates: tuple[str, ...],
    output: Output,
    fail_on_regression: bool,
    repeated: bool,
    duration: float | None,
    predictor_log_path: tuple[str, ...],
    name: str | None,
    **context: str | None,
) -> int:
    r"""Compare two recordings: is CANDIDATE faster than BASELINE, is its tail, and is the difference more than chance?

    Both are files of `baseline record`. CANDIDATE may also be the URL of a predictor (http://...), which is then
    recorded first; flags such as --hardware add what the predictor does not report. If it needs a token or a
    certificate, record it with `baseline record --config.file`.

    Two runs of one setting tell how far such runs differ by themselves: `compare RUN RUN --aa`. With `compare RUN RUN
    CANDIDATE --aa` every interval holds that.

    More than two files stand side by side, as `tune` shows them: workloads, request rates, temperatures, methods and k.
    Those recorded without speculation are found by themselves.

    \b
    compare base-chat.yaml spec-chat.yaml base-code.yaml spec-code.yaml --output markdown
    """
    urls = [each for each in candidates if each.startswith(("http://", "https://"))]
    if not urls and (duration or predictor_log_path or name or any(context.values())):
        raise click.UsageError(
            "--duration, --predictor flags, --name, --hardware and the like need the URL of a predictor; a file "
            "already says these things"
        )
    if urls and (len(candidates) > 1 or repeated):
        raise click.UsageError(f"expected files beside more than one other, found a URL: record {urls[0]} first")
    if repeated:
        return _compare_runs((baseline, *candidates), output, fail_on_regression=fail_on_regression)
    if len(candidates) > 1:
        return _compare_many((baseline, *candidates), output, fail_on_regression=fail_on_regression)
    from specdec_exporter.comparison.compare import compare
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.comparison import write_comparison

    before = read_baseline(baseline)
    if urls:
        after = asyncio.run(
            record_beside(
                urls[0],
                duration or _DURATION_SECONDS,
                access=SYSTEM_TRUST,
                log_paths=predictor_log_path,
                timeout_seconds=_TIMEOUT_SECONDS,
                name=one_line(name),
                context=given_context(context),
            )
        )
    else:
        after = read_baseline(candidates[0])
    comparison = compare(before, after, load_policy())
    write_comparison(sys.stdout, comparison, output)
    return int(fail_on_regression and _fails(comparison.decision))


def _fails(decision: Decision) -> bool:
    # A pipeline must not pass because there were too few requests to decide.
    return decision.regression or decision.code == "undecided"


def _compare_runs(paths: Sequence[str], output: Output, *, fail_on_regression: bool) -> int:
    """Show how far two runs differ, or compare the last file with the other ones, which are runs of one setting."""
    from specdec_exporter.comparison.compare import compare_runs, compare_with_runs
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.comparison import write_comparison

    *runs, last = map(read_baseline, paths)
    if len(runs) == 1:
        comparison = compare_runs(runs[0], last, load_policy())
    else:
        comparison = compare_with_runs(runs, last, load_policy())
    write_comparison(sys.stdout, comparison, output)
    return int(fail_on_regression and _fails(comparison.decision))


def _compare_many(paths: Sequence[str], output: Output, *, fail_on_regression: bool) -> int:
    """Show recordings side by side."""
    from specdec_exporter.comparison.tuning import tune
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.tuning import write_tuning

    tuning = tune([read_baseline(path) for path in paths], load_policy())
    write_tuning(sys.stdout, tuning, output)
    rules = [each.rule for each in tuning.recordings if each.rule]
    passed = bool(rules) and all(rule.judged and not rule.regression for rule in rules)
    return int(fail_on_regression and not passed)
