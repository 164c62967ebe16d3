"""``analyze``: read files of a predictor's log, or its stream on stdin, and print a report or JSON lines.

Memory does not grow with the log. JSON lines are written as their lines are read; the report of a stream is written at
its end, or at Ctrl-C.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import click

from specdec_exporter.commands.flags import Checked, option, output_option
from specdec_exporter.commands.streams import closable_stdout, complain, written
from specdec_exporter.config import valid_header
from specdec_exporter.predictor.log.counters import on_trust
from specdec_exporter.predictor.log.events import RUNNING_KINDS, StartFailure
from specdec_exporter.predictor.log.scan import LogTrust
from specdec_exporter.predictor.sources.inputs import REPORT_KINDS, LogInputs
from specdec_exporter.predictor.sources.stream import BinaryStream


def analyze(
    paths: Sequence[str],
    *,
    output: Literal["text", "jsonl"] = "text",
    trust: LogTrust = "auto",
    stdin: BinaryStream | None = None,
) -> int:
    """Read ``paths`` in order as one log and print what it says.

    ``-`` is ``stdin``; gzipped files are unpacked. ``text`` is one report over everything. ``jsonl`` is one object per
    recognised line of any kind, in order; unreadable lines are counted on stderr. ``trust`` as for
    :class:`LogScanner`. Returns the exit code: 0; 2 if no line was recognised (the report gives possible reasons); 1 if
    the last start of the server failed, or if an input could not be read to its end. Such an input is named on
    stderr and the others are still read. Ctrl-C and a closed output pipe are not failures.
    """
    inputs = LogInputs(paths, stdin=stdin, trust=trust)
    failed_start = False
    with closable_stdout():
        failed_start = _write_json_lines(inputs) if output == "jsonl" else _write_report(inputs)
    if inputs.failed or failed_start:
        return 1
    return 0 if inputs.counters.matched_lines else 2


def _write_json_lines(inputs: LogInputs) -> bool:
    """Write the events; return whether the last start failed."""
    failed_start = False
    with suppress(KeyboardInterrupt):
        for event in written(inputs.events(None), flush=inputs.live):
            failed_start = isinstance(event, StartFailure) or (failed_start and not isinstance(event, RUNNING_KINDS))
    complain(inputs.failed.values())
    if inputs.counters.parse_errors:
        complain([f"{inputs.counters.parse_errors} lines could not be read (cut or garbled)"])
    complain(on_trust(inputs.counters))
    return failed_start


def _write_report(inputs: LogInputs) -> bool:
    """Print the report; return whether the last start failed."""
    from specdec_exporter.inspection.logstory import LogStory
    from specdec_exporter.terminal.console import reading_progress, write
    from specdec_exporter.terminal.log import print_analysis

    story = LogStory()
    with suppress(KeyboardInterrupt), reading_progress(sys.stderr, inputs.size(), live=inputs.live) as progress:
        story.add(inputs.events(REPORT_KINDS, progress))
    complain(inputs.failed.values())
    if len(inputs.failed) == len(inputs.paths) and not inputs.counters.bytes:
        return False
    analysis = story.analysis()
    write(sys.stdout, lambda console: print_analysis(console, analysis, counters=inputs.counters, paths=inputs.paths))
    return analysis.failed_start is not None


@click.command("analyze")
@click.argument("paths", nargs=-1, metavar="[FILE|-]...")
@output_option("A report, or one JSON object per recognised line.", "text", "jsonl")
@option(
    "--predictor.log-trust",
    "Whose lines count: those that name vLLM's own loggers (server), or any. auto: any, if the log has no header of "
    "vLLM's, such as a pasted message.",
    type=click.Choice(["auto", "server", "any"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--responses",
    multiple=True,
    metavar="FILE",
    help="Saved responses of vLLM 0.29.0 or later with --per-request-spec-decode-metrics, one JSON object per line; "
    "repeatable. The temperature of each request comes from the log, if FILE is given too, or from its saved body.",
)
@click.option(
    "--header",
    type=Checked("name", valid_header),
    metavar="NAME",
    help="With --responses: a header of the saved requests to group by, e.g. X-Tenant.",
)
def command(
    paths: tuple[str, ...],
    *,
    output: Literal["text", "jsonl"],
    predictor_log_trust: LogTrust,
    responses: tuple[str, ...],
    header: str | None,
) -> int:
    """Report what a predictor's log says about speculation.

    For example: kubectl logs POD | specdec-exporter analyze -
    """
    if responses:
        from specdec_exporter.commands.responses import analyze_responses

        return analyze_responses(paths, responses, output=output, trust=predictor_log_trust, header=header)
    if header is not None:
        raise click.UsageError("--header needs --responses")
    gc.set_threshold(100_000)  # importing modules and reading a log leave little garbage
    return analyze(paths or ("-",), output=output, trust=predictor_log_trust)
