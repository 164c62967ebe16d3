"""``analyze --responses``: saved responses, request by request; the log gives their temperatures."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from specdec_exporter.commands.streams import closable_stdout, complain, written
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.inspection.requests import RequestsAnalysis, RequestStory, RequestTemperatures
from specdec_exporter.predictor.log.events import Event, RequestParams
from specdec_exporter.predictor.log.scan import LogTrust
from specdec_exporter.predictor.responses import ResponseSpeculation
from specdec_exporter.predictor.sources.inputs import REPORT_KINDS, LogInputs
from specdec_exporter.predictor.sources.responses import ResponseInputs


def analyze_responses(
    log_paths: Sequence[str],
    response_paths: Sequence[str],
    *,
    output: Literal["text", "jsonl"] = "text",
    trust: LogTrust = "auto",
    header: str | None = None,
) -> int:
    """Read logs (if any), then files of responses with one JSON object per line; print what both say.

    ``text`` is a report of the log and a report of the requests. ``jsonl`` is the log's recognised lines, one object
    for each response with a record (``"kind": "response"``), and last the summary (``"kind": "responses"``). Responses
    and requests in the log are joined by their ids. ``header`` names a request header to group by. Returns the exit
    code: 0; 2 if no response has a record; 1 if an input could not be read. Such an input is named on stderr.
    """
    responses = _Responses(response_paths, header)
    inputs = LogInputs(log_paths, trust=trust) if log_paths else None
    with closable_stdout(), suppress(KeyboardInterrupt):
        if output == "jsonl":
            _write_json_lines(inputs, responses)
        else:
            _write_report(inputs, responses, header)
    failed = [*(inputs.failed.values() if inputs else ()), *responses.inputs.failed.values()]
    complain(failed)
    if failed:
        return 1
    return 0 if responses.analysis().all.requests else 2


class _Responses:
    """Iterates over the records of all files in order; ``story`` counts every line."""

    def __init__(self, paths: Sequence[str], header: str | None) -> None:
        self.story = RequestStory(with_header=header is not None)
        self.inputs = ResponseInputs(paths, header=header)
        self.log = LogStory()
        self._temperatures = RequestTemperatures()

    def noting_temperatures(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass the log's events on, and remember the temperature of each request."""
        for event in events:
            self._temperatures.observe_event(event)
            yield event

    def __iter__(self) -> Iterator[ResponseSpeculation]:
        for line in self.inputs.lines():
            if not isinstance(line, ResponseSpeculation):
                self.story.add_other(line)
                continue
            record = self._temperatures.joined(line)
            self.story.add(record)
            yield record

    def analysis(self) -> RequestsAnalysis:
        """Return what was read so far."""
        partly = bool(self.log.deployment().adaptive_verification)
        return self.story.analysis(too_long=self.inputs.counters.oversized_lines, partly_verified=partly)


def _write_json_lines(inputs: LogInputs | None, responses: _Responses) -> None:
    if inputs is not None:
        responses.log.add(written(responses.noting_temperatures(inputs.events(None))))
    out = sys.stdout.buffer
    for record in responses:
        out.write(msgspec.json.encode(record) + b"\n")
    out.write(msgspec.json.encode(responses.analysis()) + b"\n")


def _write_report(inputs: LogInputs | None, responses: _Responses, header: str | None) -> None:
    from specdec_exporter.terminal.console import write
    from specdec_exporter.terminal.log import print_analysis
    from specdec_exporter.terminal.requests import print_requests

    if inputs is not None:
        story = responses.log
        story.add(responses.noting_temperatures(inputs.events(REPORT_KINDS | {RequestParams})))
        analysis, counters, paths = story.analysis(), inputs.counters, inputs.paths
        write(sys.stdout, lambda console: print_analysis(console, analysis, counters=counters, paths=paths))
        sys.stdout.write("\n")
    for _ in responses:
        pass
    requests = responses.analysis()
    write(sys.stdout, lambda console: print_requests(console, requests, responses.inputs.paths, header=header))
