"""``analyze``: files of a predictor's log, or its stream on stdin, as a report or as JSON lines.

Reading costs about what grep costs and works in memory of its own size, not the log's. JSON lines are written as they
are read; a report of a stream comes at its end, or at Ctrl-C.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TextIO

import click
import msgspec

from specdec_exporter.commands import PROG
from specdec_exporter.predictor.sources.inputs import REPORT_KINDS, LogInputs
from specdec_exporter.predictor.sources.stream import BinaryStream


def analyze(
    paths: Sequence[str],
    *,
    output: Literal["text", "jsonl"] = "text",
    stdin: BinaryStream | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Read ``paths`` in order as one story (``-``, or none at all, is ``stdin``; gzipped files are unpacked); print it.

    ``text`` is one report over everything. ``jsonl`` is one object per recognised line, in order, of all kinds; lines
    that could not be read are counted on ``stderr``. Returns the exit code: 0, also where nothing was recognised (the
    report says why that can be), or 1 if an input could not be read to its end (named on ``stderr``; the others are
    read all the same). Ctrl-C, and a reader of our output that went away, are no failures.
    """
    stdout, stderr = stdout or sys.stdout, stderr or sys.stderr
    inputs = LogInputs(paths, stdin=stdin)
    try:
        if output == "jsonl":
            _write_json_lines(inputs, stdout, stderr)
        else:
            _write_report(inputs, stdout, stderr)
        stdout.flush()
    except BrokenPipeError:
        discard(stdout)
    return 1 if inputs.failed else 0


def _write_json_lines(inputs: LogInputs, stdout: TextIO, stderr: TextIO) -> None:
    encode = msgspec.json.Encoder().encode
    out = stdout.buffer
    with suppress(KeyboardInterrupt):
        for event in inputs.events(None):
            out.write(encode(event) + b"\n")
            if inputs.live:
                out.flush()
    _complain(inputs, stderr)
    if inputs.counters.parse_errors:
        print(f"{PROG}: {inputs.counters.parse_errors} lines could not be read (cut or garbled)", file=stderr)


def _write_report(inputs: LogInputs, stdout: TextIO, stderr: TextIO) -> None:
    from specdec_exporter.inspection.logstory import LogStory  # noqa: PLC0415
    from specdec_exporter.speculation.policy import load_policy  # noqa: PLC0415
    from specdec_exporter.terminal.console import reading_progress, write  # noqa: PLC0415  JSON lines need neither rich nor sums
    from specdec_exporter.terminal.log import print_analysis  # noqa: PLC0415

    story = LogStory()
    with suppress(KeyboardInterrupt), reading_progress(stderr, inputs.size(), live=inputs.live) as progress:
        story.add(inputs.events(REPORT_KINDS, progress))
    _complain(inputs, stderr)
    if len(inputs.failed) == len(inputs.paths) and not inputs.counters.bytes:
        return
    analysis = story.analysis()
    write(
        stdout,
        lambda console: print_analysis(
            console, analysis, counters=inputs.counters, paths=inputs.paths, min_drafts=load_policy().min_drafts
        ),
    )


def _complain(inputs: LogInputs, stderr: TextIO) -> None:
    for words in inputs.failed.values():
        print(f"{PROG}: {words}", file=stderr)


def discard(stdout: TextIO) -> None:
    """Let the interpreter's last flush of ``stdout`` go nowhere instead of failing."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout.fileno())
        os.close(nowhere)


@click.command("analyze")
@click.argument("paths", nargs=-1, metavar="[FILE|-]...")
@click.option(
    "--output",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    help="A report, or one JSON object per recognised line.",
)
@click.option(
    "--responses",
    multiple=True,
    metavar="FILE",
    help="Saved responses, one JSON object a line, of vLLM 0.29.0 or later with --per-request-spec-decode-metrics; "
    "repeatable. Logs given beside it tell the temperature of each request.",
)
def command(paths: tuple[str, ...], output: Literal["text", "jsonl"], responses: tuple[str, ...]) -> int:
    """Tell what a predictor's log says about speculation: kubectl logs POD | specdec-exporter analyze -"""
    if responses:
        from specdec_exporter.commands.responses import analyze_responses  # noqa: PLC0415

        return analyze_responses(paths, responses, output=output)
    gc.set_threshold(100_000)  # neither loading modules nor reading a log leaves much behind
    return analyze(paths or ("-",), output=output)
