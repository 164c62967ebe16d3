"""``compare``: two recordings beside each other, or several by load."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

import click

<<<<<<< HEAD
from specdec_exporter.baseline.file import Baseline, read_baseline
=======
from specdec_exporter.baseline.reading import read_baseline
from specdec_exporter.commands.flags import DURATION, log_path_flag
from specdec_exporter.commands.recording import context_flags, given_context, one_line, record_beside
from specdec_exporter.config import SYSTEM_TRUST
>>>>>>> main

if TYPE_CHECKING:
    from specdec_exporter.comparison.decision import Decision

Output = Literal["text", "markdown", "json"]


@click.command("compare")
@click.argument("baseline")
@click.argument("candidates", metavar="CANDIDATE...", nargs=-1, required=True)
@click.option(
    "--output",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="For a terminal, for a report, or for programs.",
)
@click.option("--plot", metavar="FILE", help="Also draw the speed-up over the load: FILE.svg or FILE.png.")
@click.option(
    "--fail-on-regression",
    is_flag=True,
    help="Exit with 1 if a CANDIDATE is certainly slower in anything, drafts worse without being faster, or if the "
    "data decide nothing.",
)
<<<<<<< HEAD
def command(
    *, baseline: str, candidates: tuple[str, ...], output: Output, plot: str | None, fail_on_regression: bool
=======
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
>>>>>>> main
) -> int:
    r"""Compare recordings: is CANDIDATE faster than BASELINE, is its tail, and is the difference more than chance?

<<<<<<< HEAD
    All are files of `baseline record`.
=======
    Both are files of `baseline record`. CANDIDATE may also be the URL of a predictor (http://...), which is then
    recorded first; flags such as --hardware add what the predictor does not report. If it needs a token or a
    certificate, record it with `baseline record --config.file`.
>>>>>>> main

    With three or more, one of them was recorded without speculation. The others may have any methods and k. The answer
    is the fastest one at each load, the load at which speculation stops paying, and the --speculative-config to use.

    \b
    compare plain.yaml k1.yaml k3.yaml k6.yaml --plot speedup.svg
    """
<<<<<<< HEAD
    if plot is not None:
        from specdec_exporter.terminal.plot import check_plot

        check_plot(plot)
    recordings = [read_baseline(path) for path in (baseline, *candidates)]
    if len(recordings) > 2 or plot is not None:
        decisions = _compare_several(recordings, output, plot)
    else:
        decisions = [_compare_two(recordings[0], recordings[1], output)]
    return int(fail_on_regression and any(map(_fails, decisions)))


def _compare_two(baseline: Baseline, candidate: Baseline, output: Output) -> Decision:
=======
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
>>>>>>> main
    from specdec_exporter.comparison.compare import compare
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.comparison import write_comparison

<<<<<<< HEAD
    comparison = compare(baseline, candidate, load_policy())
=======
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
>>>>>>> main
    write_comparison(sys.stdout, comparison, output)
    return comparison.decision


def _compare_several(recordings: list[Baseline], output: Output, plot: str | None) -> list[Decision]:
    from specdec_exporter.comparison.several import compare_several
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.several import write_several

    several = compare_several(recordings, load_policy())
    write_several(sys.stdout, several, output)
    if plot is not None:
        from specdec_exporter.terminal.plot import draw

        draw(plot, several)
    return [each.decision for each in several.comparisons]


def _fails(decision: Decision) -> bool:
    # A pipeline must not pass because there were too few requests to decide.
    return decision.regression or decision.code == "undecided"
