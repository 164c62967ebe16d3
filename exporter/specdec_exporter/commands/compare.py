"""``compare``: two recordings beside each other, or several by load; or results of a benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

import click

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.baseline.reading import parse_baseline
from specdec_exporter.commands import EXIT_CODES
from specdec_exporter.commands.benchfiles import is_bench, read_once, results_of
from specdec_exporter.commands.flags import output_option

if TYPE_CHECKING:
    from specdec_exporter.comparison.decision import Decision
    from specdec_exporter.predictor.benchresult import BenchResult

Output = Literal["text", "markdown", "json"]


class Compared(NamedTuple):
    """A comparison: how to print it, whether a pipeline that refuses regressions fails, and whether it has flags."""

    show: Callable[[TextIO], None]
    fails: bool
    flagged: bool


@click.command("compare")
@click.argument("baseline")
@click.argument("candidates", metavar="[CANDIDATE]...", nargs=-1)
@output_option("For a terminal, for a report, or for programs.", "text", "markdown", "json")
@click.option(
    "--paired",
    is_flag=True,
    help="Both recordings are of the same minutes, from two replicas that share the requests at random. Bursts are "
    "then in both and cancel. Start both `baseline record` at once, with the same --duration.",
)
@click.option("--plot", metavar="FILE", help="Also draw the speed-up over the load: FILE.svg or FILE.png.")
@click.option("--verbose", is_flag=True, help="Also print quantiles, acceptance by position and settings.")
@click.option(
    "--fail-on-regression",
    is_flag=True,
    help="Exit with 1 if a CANDIDATE is slower beyond chance, if its drafts are accepted less and nothing is faster, "
    "or if nothing can be decided.",
)
def command(
    *,
    baseline: str,
    candidates: tuple[str, ...],
    output: Output,
    paired: bool,
    plot: str | None,
    verbose: bool,
    fail_on_regression: bool,
) -> int:
    """Tell whether CANDIDATE is faster than BASELINE.

    Mean and tail of each latency are compared, and chance is ruled out or not. All files come from `baseline record`,
    or all are results of `vllm bench serve --save-result` or AIPerf.

    Give two recordings, or more: then one of them without speculation, the others with any methods and k. The answer
    is the fastest recording at each load, the load at which speculation stops paying, and the --speculative-config to
    use.

    Of a benchmark, give one folder with all results, two files or folders (the baseline first), or all files at once.
    In one folder, and with three or more, the results with drafts are the candidate.

    For example: compare plain.yaml k1.yaml k3.yaml k6.yaml --plot speedup.svg
    """
    if paired and (len(candidates) > 1 or plot is not None):
        raise click.UsageError("--paired compares two recordings, without --plot")
    from specdec_exporter.terminal.console import working

    paths = (baseline, *candidates)
    with working(sys.stderr, f"Comparing {len(paths)} files" if candidates else f"Comparing what is in {baseline}"):
        compared = _compared(paths, output, paired=paired, plot=plot, verbose=verbose)
    compared.show(sys.stdout)
    return EXIT_CODES["FAIL" if compared.fails and fail_on_regression else "WARN" if compared.flagged else "PASS"]


def _compared(paths: Sequence[str], output: Output, *, paired: bool, plot: str | None, verbose: bool) -> Compared:
    """Read the files and compare what they hold."""
    contents = list(map(read_once, paths))
    if any(map(is_bench, paths, contents)):
        if paired or plot is not None:
            raise click.UsageError("--paired and --plot need recordings, found results of a benchmark")
        sides = list(map(results_of, paths, contents))
        _refuse_copies(paths, contents)
        return _compare_bench(sides, output, verbose=verbose, folders=not any(contents))
    if plot is not None:
        from specdec_exporter.terminal.plot import check_plot

        check_plot(plot)
    recordings = [parse_baseline(content or b"", path) for content, path in zip(contents, paths, strict=True)]
    if len(paths) < 2:
        raise click.UsageError(f"expected two recordings or more, found one: {paths[0]}")
    _refuse_copies(paths, contents)
    if len(paths) > 2 or plot is not None:
        return _compare_several(recordings, output, plot, verbose=verbose)
    return _compare_two(recordings[0], recordings[1], output, paired=paired, verbose=verbose)


def _refuse_copies(paths: Sequence[str], contents: Sequence[bytes | None]) -> None:
    """Raise UsageError for a file that is given twice, and for two files with the same bytes."""
    for (path, content), (other, others) in combinations(zip(paths, contents, strict=True), 2):
        if Path(path).samefile(other):
            raise click.UsageError(f"expected different files, found {path} twice")
        if content and content == others:
            raise click.UsageError(f"expected different files, found that {other} is a copy of {path}")


def _compare_two(baseline: Baseline, candidate: Baseline, output: Output, *, paired: bool, verbose: bool) -> Compared:
    from specdec_exporter.comparison.compare import compare
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.comparison import write_comparison

    comparison = compare(baseline, candidate, load_policy(), paired=paired)
    show = partial(write_comparison, comparison=comparison, output=output, verbose=verbose)
    return Compared(show, _fails(comparison.decision), bool(comparison.flags))


def _compare_several(recordings: list[Baseline], output: Output, plot: str | None, *, verbose: bool) -> Compared:
    from specdec_exporter.comparison.several import compare_several
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.several import write_several

    several = compare_several(recordings, load_policy())

    def show(stream: TextIO) -> None:
        write_several(stream, several, output, verbose=verbose)
        if plot is not None:
            from specdec_exporter.terminal.plot import draw

            draw(plot, several)

    fails = any(_fails(comparison.decision) for comparison in several.comparisons)
    return Compared(show, fails, any(comparison.flags for comparison in several.comparisons))


def _compare_bench(given: list[list[BenchResult]], output: Output, *, verbose: bool, folders: bool) -> Compared:
    from specdec_exporter.comparison.bench import compare_bench, sides_of
    from specdec_exporter.speculation.policy import load_policy
    from specdec_exporter.terminal.bench import write_bench

    comparison = compare_bench(*sides_of(given, folders=folders), load_policy())
    fails = _fails(comparison.decision) or any(load.outcome == "undecided" for load in comparison.loads)
    show = partial(write_bench, comparison=comparison, output=output, verbose=verbose)
    return Compared(show, fails, bool(comparison.flags))


def _fails(decision: Decision) -> bool:
    # A pipeline must not pass because there were too few requests to decide.
    return decision.regression or decision.code == "undecided"
