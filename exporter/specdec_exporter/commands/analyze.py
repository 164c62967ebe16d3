"""``analyze``: read a predictor's log, from files or stdin, and saved responses; print reports or JSON lines.

Memory does not grow with the log. JSON lines are written as their lines are read; the report of a stream is written at
its end, or at Ctrl-C.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Literal

import click
import msgspec

from specdec_exporter.commands import EXIT_CODES
from specdec_exporter.commands.flags import Checked, Choice, option, output_option
from specdec_exporter.commands.streams import complain
from specdec_exporter.config import valid_header
from specdec_exporter.formatting import plain
from specdec_exporter.inspection.examination import LogReading, examine_log
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.inspection.requests import RequestStory, RequestTemperatures
from specdec_exporter.predictor.log.counters import on_trust, unreadable
from specdec_exporter.predictor.log.events import REPORT_KINDS, EngineConfig, Event, RequestParams
from specdec_exporter.predictor.log.scan import LogTrust
from specdec_exporter.predictor.responses import ResponseSpeculation
from specdec_exporter.predictor.sources.inputs import LogInputs
from specdec_exporter.predictor.sources.stream import BinaryStream
from specdec_exporter.speculation.verdict import Level, worst

Output = Literal["text", "json", "jsonl"]


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

    ``text`` is a report of the log and one of the requests. ``json`` is one object for each of them: the log's is the
    document of an :class:`Examination`, the requests' their summary (``"kind": "responses"``). ``jsonl`` is one object
    per recognised line of any kind, in order, one for each response with a record (``"kind": "response"``), and last
    their summary; unreadable lines are counted on stderr.

    Returns the exit code by the worst finding. It is 1 if the last start of the server failed, or if an input could not
    be read to its end: such an input is named on stderr and the others are still read. It is 2 if no line was
    recognised, if no response has a record, or if the verdict asks for a look. Ctrl-C and a closed output pipe are not
    failures.
    """
    story, levels = LogStory(), list[Level]()
    temperatures = RequestTemperatures() if responses else None
    if paths:
        levels.append(_analyze_log(LogInputs(paths, stdin=stdin, trust=trust), story, temperatures, output))
    if temperatures is not None:
        partly = bool(story.deployment().adaptive_verification)
        levels.append(_analyze_responses(LogInputs(responses), temperatures, output, header, partly=partly))
    return EXIT_CODES[worst(levels)]


def _analyze_log(log: LogInputs, story: LogStory, temperatures: RequestTemperatures | None, output: Output) -> Level:
    """Read the log into ``story``, and print its lines, the report or its document; return the worst level."""
    kinds = REPORT_KINDS | {RequestParams} if temperatures else REPORT_KINDS
    with suppress(KeyboardInterrupt), _progress(log, output) as progress:
        events = _noted(log.events(None if output == "jsonl" else kinds, progress), temperatures)
        story.add(_written(events, flush=log.live) if output == "jsonl" else events)
    complain(_troubles(log))
    analysis = story.analysis(log.counters)
    examination = examine_log(LogReading(analysis, log.counters, tuple(log.failed.values())))
    if output == "jsonl":
        complain([*filter(None, [unreadable(log.counters)]), *on_trust(log.counters)])
    elif output == "json":
        sys.stdout.buffer.write(msgspec.json.encode(examination.document()) + b"\n")
    elif log.counters.bytes or len(log.failed) < len(log.paths):
        from specdec_exporter.terminal.console import write
        from specdec_exporter.terminal.log import print_analysis

        write(sys.stdout, lambda console: print_analysis(console, analysis, counters=log.counters, paths=log.paths))
        if temperatures is not None:  # the report of the requests follows
            sys.stdout.write("\n")
    return examination.level


def _progress(inputs: LogInputs, output: Output) -> AbstractContextManager[Callable[[int], None] | None]:
    """Show on a terminal how much was read. JSON lines that come to the terminal show it themselves."""
    if not sys.stderr.isatty() or (output == "jsonl" and sys.stdout.isatty()):
        return nullcontext()
    from specdec_exporter.terminal.console import reading_progress

    return reading_progress(sys.stderr, inputs.size(), live=inputs.live)


def _troubles(inputs: LogInputs) -> Iterator[str]:
    """Yield a line for each input that was left out."""
    yield from inputs.failed.values()
    for path, earlier in inputs.repeated.items():
        yield f"{plain(path)}: the same as {plain(earlier)}, counted once"


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
    saved: LogInputs, temperatures: RequestTemperatures, output: Output, header: str | None, *, partly: bool
) -> Level:
    """Read the responses, and print their records, or the report or summary; return the worst level.

    ``partly``: vLLM verified only part of each draft.
    """
    story = RequestStory(with_header=header is not None)
    with suppress(KeyboardInterrupt), _progress(saved, output) as progress:
        for line in saved.responses(header, progress):
            if not isinstance(line, ResponseSpeculation):
                story.add_other(line)
                continue
            record = temperatures.joined(line)
            story.add(record)
            if output == "jsonl":
                sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
    analysis = story.analysis(too_long=saved.counters.oversized_lines, partly_verified=partly)
    if output == "text":
        from specdec_exporter.terminal.console import write
        from specdec_exporter.terminal.requests import print_requests

        write(sys.stdout, lambda console: print_requests(console, analysis, saved.paths, header=header))
    else:
        sys.stdout.buffer.write(msgspec.json.encode(analysis) + b"\n")
    complain(_troubles(saved))
    if saved.failed:
        return "FAIL"
    return worst(finding.level for finding in analysis.findings) if story.requests else "WARN"


@click.command("analyze")
@click.argument("paths", nargs=-1, metavar="[FILE|-]...")
@output_option("A report, the verdict as JSON, or one JSON object per recognised line.", "text", "json", "jsonl")
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
    output: Output,
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
