"""``analyze``: read a predictor's log, from files or stdin, and saved responses; print reports or JSON lines.

Memory does not grow with the log. JSON lines are written as their lines are read; the report of a stream is written at
its end, or at Ctrl-C.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal

import click
import msgspec

from specdec_exporter.commands.flags import Checked, Choice, option, output_option
from specdec_exporter.commands.streams import complain
from specdec_exporter.config import valid_header
from specdec_exporter.inspection.logstory import Analysis, LogStory
from specdec_exporter.inspection.requests import RequestStory, RequestTemperatures
from specdec_exporter.predictor.log.counters import on_trust, unreadable
from specdec_exporter.predictor.log.events import REPORT_KINDS, EngineConfig, Event, RequestParams
from specdec_exporter.predictor.log.scan import LogTrust
from specdec_exporter.predictor.responses import ResponseSpeculation
from specdec_exporter.predictor.sources.inputs import LogInputs
from specdec_exporter.predictor.sources.stream import BinaryStream

Output = Literal["text", "jsonl"]


def analyze(
    paths: Sequence[str],
    *,
    responses: Sequence[str] = (),
    output: Output = "text",
    trust: LogTrust = "auto",
    header: str | None = None,
    stdin: BinaryStream | None = None,
) -> int:
    """Read ``paths`` in order as one log, then ``responses`` with one JSON object per line; print what both say.

    ``-`` is ``stdin``; gzipped files are unpacked. ``trust`` as for :class:`LogScanner`; ``header`` names a request
    header to group by. Responses and requests in the log are joined by their ids.

    ``text`` is a report of the log and one of the requests. ``jsonl`` is one object per recognised line of any kind,
    in order, one for each response with a record (``"kind": "response"``), and last their summary (``"kind":
    "responses"``); unreadable lines are counted on stderr.

    Returns the exit code: 0; 2 if no line was recognised (the report gives possible reasons), or if no response has a
    record; 1 if the last start of the server failed, or if an input could not be read to its end. Such an input is
    named on stderr and the others are still read. Ctrl-C and a closed output pipe are not failures.
    """
    log, saved = LogInputs(paths, stdin=stdin, trust=trust), LogInputs(responses)
    story, requests = LogStory(), RequestStory(with_header=header is not None)
    temperatures = RequestTemperatures() if responses else None
    failed_start = False
    if paths:
        failed_start = _analyze_log(log, story, temperatures, output).failed_start is not None
    if temperatures is not None:
        partly = bool(story.deployment().adaptive_verification)
        _analyze_responses(saved, requests, temperatures, output, header, partly=partly)
    if log.failed or saved.failed or failed_start:
        return 1
    return 0 if (requests.requests if responses else log.counters.matched_lines) else 2


def _analyze_log(log: LogInputs, story: LogStory, temperatures: RequestTemperatures | None, output: Output) -> Analysis:
    """Read the log into ``story``, and print its lines or the report."""
    if output == "jsonl":
        with suppress(KeyboardInterrupt):
            story.add(_written(_noted(log.events(None), temperatures), flush=log.live))
        complain(log.failed.values())
        complain([*filter(None, [unreadable(log.counters)]), *on_trust(log.counters)])
        return story.analysis(log.counters.uncounted)
    from specdec_exporter.terminal.console import reading_progress, write
    from specdec_exporter.terminal.log import print_analysis

    kinds = REPORT_KINDS | {RequestParams} if temperatures else REPORT_KINDS
    with suppress(KeyboardInterrupt), reading_progress(sys.stderr, log.size(), live=log.live) as progress:
        story.add(_noted(log.events(kinds, progress), temperatures))
    complain(log.failed.values())
    analysis = story.analysis(log.counters.uncounted)
    if log.counters.bytes or len(log.failed) < len(log.paths):
        write(sys.stdout, lambda console: print_analysis(console, analysis, counters=log.counters, paths=log.paths))
        if temperatures is not None:  # the report of the requests follows
            sys.stdout.write("\n")
    return analysis


def _noted(events: Iterable[Event], temperatures: RequestTemperatures | None) -> Iterable[Event]:
    """Note the temperatures of requests on the way."""
    return events if temperatures is None else temperatures.noting(events)


def _written(events: Iterable[Event], *, flush: bool) -> Iterator[Event]:
    """Yield events, each after it was written as a line of JSON with its documented keys."""
    encode = msgspec.json.Encoder().encode
    out = sys.stdout.buffer
    for event in events:
        shown = msgspec.structs.replace(event, settings={}) if isinstance(event, EngineConfig) else event
        out.write(encode(shown) + b"\n")
        if flush:
            out.flush()
        yield event


def _analyze_responses(
    saved: LogInputs,
    story: RequestStory,
    temperatures: RequestTemperatures,
    output: Output,
    header: str | None,
    *,
    partly: bool,
) -> None:
    """Read the responses, and print their records or the report. ``partly``: vLLM verified only part of each draft."""
    with suppress(KeyboardInterrupt):
        for line in saved.responses(header):
            if not isinstance(line, ResponseSpeculation):
                story.add_other(line)
                continue
            record = temperatures.joined(line)
            story.add(record)
            if output == "jsonl":
                sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
    analysis = story.analysis(too_long=saved.counters.oversized_lines, partly_verified=partly)
    if output == "jsonl":
        sys.stdout.buffer.write(msgspec.json.encode(analysis) + b"\n")
    else:
        from specdec_exporter.terminal.console import write
        from specdec_exporter.terminal.requests import print_requests

        write(sys.stdout, lambda console: print_requests(console, analysis, saved.paths, header=header))
    complain(saved.failed.values())


@click.command("analyze")
@click.argument("paths", nargs=-1, metavar="[FILE|-]...")
@output_option("A report, or one JSON object per recognised line.", "text", "jsonl")
@option(
    "--predictor.log-trust",
    "Whose lines count: those that name vLLM's own loggers (server), or any. auto: any, if the log has no header of "
    "vLLM's, such as a pasted message.",
    type=Choice(["auto", "server", "any"]),
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
    if header is not None and not responses:
        raise click.UsageError("--header needs --responses")
    gc.set_threshold(100_000)  # importing modules and reading a log leave little garbage
    if not responses:
        paths = paths or ("-",)
    return analyze(paths, responses=responses, output=output, trust=predictor_log_trust, header=header)
