r"""Why a start failed: the lines between the first sign of a server and its being ready. Pure.

No header protects the lines that matter: argparse, pydantic and the interpreter print plain text. What protects them is
that nobody can send a request before the server is ready. So every line counts until then, and none afterwards::

    (APIServer pid=1) INFO 11-23 00:10:24 [api_utils.py:286] non-default args: {...}      the start begins
    pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig
      Value error, Target and draft model should have the same vocabulary size...          the cause
    (APIServer pid=1) INFO 11-20 21:49:48 [entry.py:140] Starting vLLM server on ...       the server is ready

The beginning of a file may be that of a log, or the middle of one that was rotated, with users' text. Before the first
sign of a start, a cause is therefore held until the file ends, and is dropped once anything shows a running server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from specdec_exporter import bounds
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.facts.failures import UNKNOWN, known_cause
from specdec_exporter.predictor.log.envelope import json_object
from specdec_exporter.predictor.log.events import EngineConfig, LogEvent, ServerArguments, ServerReady, StartFailure
from specdec_exporter.predictor.log.kinds import KINDS

_Told = StartFailure | ServerReady
# beginning: of a file; whether a server starts or runs is not known. failed: until the next start.
_State = Literal["beginning", "starting", "failed", "running"]

_LINE: Final = re.compile(
    r"(?:[\w./-]{1,100} *\| )?(?:\d{4}-\d\d-\d\dT\S{8,30} (?:std(?:out|err) [FP] )?)?"  # compose, kubectl, CRI
    r"(?:\((?P<process>[A-Za-z][\w:.-]{0,63}) pid=\d{1,10}(?:, ip=[\w.:]{1,64})?\) ?)*"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?[^\[\]\s]{1,200}:\d{1,6}\] ?)?",
    re.ASCII,
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_READY: Final = re.compile(
    r"Starting vLLM (?:API )?server |Application startup complete|Uvicorn running on"
    r"|\"(?:GET|POST|HEAD|PUT|DELETE|OPTIONS) (?:/|https?:)|"
    + "|".join(kind.begins for kind in KINDS if kind.shows_running)
)
_BANNER: Final = "vLLM API server version "  # before the arguments; releases up to 0.9 print no other sign of them
_USAGE: Final = "usage: "  # argparse prints it before its error, and no header
_RAISED: Final = re.compile(r"(?:[A-Za-z_][\w.]{0,150})?(?:Error|Exception)(?:: |:?$)", re.ASCII)
_REFUSED: Final = re.compile(r"[\w./ \[\]-]{1,80}: error: ", re.ASCII)  # argparse
# Kubernetes and KServe say this in `kubectl get events` and `describe`, and in the answer to `kubectl apply`.
_CLUSTER: Final = re.compile(r"storageUri|StorageUri|ProgressDeadlineExceeded|timed out progressing|Initial scale was")
_CHAINED: Final = re.compile(r"During handling of the above exception|The above exception was the direct cause")
# An error behind the prefix of a collector that is not known here.
_RAISED_BEHIND: Final = re.compile(r"[\])}:|>-] +(?=(?:[A-Za-z_][\w.]{0,150})?(?:Error|Exception): )", re.ASCII)
_VALIDATION: Final = re.compile(r"(?:[\w.]{1,100}: )?\b\d{1,4} validation errors? for (\w{1,80})", re.ASCII)
_INDENT: Final = "  "
_INPUT: Final = " [type="  # pydantic repeats the input: it may be long, or secret
_KEY: Final = re.compile(r"(?:\S.*\s)?(?P<key>[\w.-]{1,80})")
_ARGUMENTS: Final = "unrecognized arguments: "
_ENGINE_FAILED: Final = "Engine core initialization failed"  # the API server's last words; the cause is above
_SEE_ABOVE: Final = re.compile(r"See root cause above|See stack trace|WorkerProc initialization failed")
_MOST_HELD: Final = 100


class StartWatch:
    """Watches ONE log stream for starts that fail. While :attr:`active`, it wants every line."""

    def __init__(self) -> None:
        self._set("beginning")
        self._printed_arguments = False
        self._failed_before = False
        self._lines = 0
        self._new_try()
        self._held: list[StartFailure] = []

    def _set(self, state: _State) -> None:
        self._state: _State = state
        self.active = state != "running"  # so that a running server's lines cost nothing

    def _new_try(self) -> None:
        self._unknown: StartFailure | None = None  # an error that ends a traceback
        self._validated: str | None = None  # what pydantic validates, and then the key
        self._header: StartFailure | None = None  # "1 validation error for ...": not yet the cause
        self._concluded = False  # this try has its failure
        self._time: str | None = None  # of the last line that prints one
        self._lines = 0

    def started(self, event: LogEvent) -> list[_Told]:
        """Take in one of the events that vLLM prints at its start; return those of the try before."""
        if isinstance(event, ServerArguments):
            self._printed_arguments = True
        elif not isinstance(event, EngineConfig) or self._state in ("starting", "failed") or self._printed_arguments:
            return []  # each data-parallel engine prints its configuration
        ended = self.finish()
        self._set("starting")
        return ended

    def finish(self) -> list[_Told]:
        """End the try: nothing follows, or another one. Return its failure, and those held back."""
        ended: list[_Told] = []
        if self._state != "running":
            self._conclude_unknown()
            ended, self._held = [*self._held], []
        self._new_try()
        return ended

    def line(self, text: str, timestamp: str | None) -> list[_Told]:
        """Take in one line of the log."""
        self._lines += 1
        if self._lines > bounds.START_LINES:
            self._set("running")
            return []
        for part in _parts(text[: bounds.START_CHARACTERS]):
            self._take(part, timestamp)
            if self._state == "running":
                self._held = []
                ready = ServerReady(timestamp=timestamp)
                recovered, self._failed_before = self._failed_before, False
                return [ready] if recovered else []
        return self._told()

    def _told(self) -> list[_Told]:
        """Return what is certain: after a sign of a start, a cause is one at once."""
        if self._state == "beginning" or not self._held:
            return []
        told: list[_Told] = [*self._held]
        self._held, self._failed_before = [], True
        return told

    def _take(self, text: str, timestamp: str | None) -> None:
        line = _LINE.match(text)
        said = text if line is None else text[line.end() :]
        level = line and line["level"]
        process = line and line["process"]
        self._time = timestamp = (line and line["time"]) or timestamp or self._time
        if _READY.search(said):
            self._set("running")
        elif said.startswith(_USAGE) or (level and said.startswith(_BANNER)):
            self._conclude_unknown()
            self._new_try()
            if self._state == "failed":
                self._set("starting")
        elif not self._concluded:
            if level in ("INFO", "DEBUG"):
                self._goes_on(process)
            else:
                failure = StartFailure(failure=UNKNOWN, message=said.rstrip(), timestamp=timestamp, process=process)
                self._read(failure, any_prefix=level is None)

    def _goes_on(self, process: str | None) -> None:
        """The process that printed an error works on, so it was none that ended it."""
        if self._unknown is not None and self._unknown.process in (None, process):
            self._unknown = None

    def _read(self, line: StartFailure, *, any_prefix: bool) -> None:
        said = line.message
        if (validation := _VALIDATION.search(said)) is not None:
            self._validated = validation[1]
            self._header = msgspec.structs.replace(line, message=said[validation.start() :])
            self._unknown = self._unknown or self._header
        elif self._validated is not None and said:
            self._read_validation(line, self._validated)
        elif _RAISED.match(said) or _REFUSED.match(said) or _CLUSTER.search(said):
            self._judge(line)
        elif _CHAINED.search(said):
            self._unknown = None  # the error above was handled, and led to another one
        elif any_prefix and (behind := _RAISED_BEHIND.search(said)) and known_cause(said) is not None:
            self._judge(msgspec.structs.replace(line, message=said[behind.end() :]))

    def _read_validation(self, line: StartFailure, validated: str) -> None:
        """Take in a line below the header of a validation error: a key, or what is wrong with its value."""
        said = line.message
        if (invalid := _invalid(said)) is not None:
            if self._unknown is self._header:
                self._unknown = None
            self._judge(msgspec.structs.replace(line, message=f"{validated}: {invalid}"))
            self._validated = None
        elif (key := _KEY.fullmatch(said)) is not None:
            self._validated = f"{validated}.{key['key']}"

    def _judge(self, line: StartFailure) -> None:
        said = line.message
        if _ENGINE_FAILED in said:
            if self._unknown is None:
                self._conclude(line, known_cause(said) or UNKNOWN)
            self._conclude_unknown()
        elif _SEE_ABOVE.search(said):
            return
        elif (code := known_cause(said)) is not None:
            self._conclude(line, code)
        elif _CLUSTER.search(said) is None:
            self._unknown = self._unknown or line

    def _conclude_unknown(self) -> None:
        if self._unknown is not None and not self._concluded:
            self._conclude(self._unknown, UNKNOWN)

    def _conclude(self, found: StartFailure, code: str) -> None:
        self._concluded = True
        if len(self._held) < _MOST_HELD:
            self._held.append(msgspec.structs.replace(found, failure=code, message=_shortened(found.message)))
        if self._state == "starting":
            self._set("failed")
        self._unknown = None


def _parts(text: str) -> Iterator[str]:
    """Yield the lines that one line of the log holds: of a JSON object, its message and its traceback."""
    text = _COLOUR.sub("", text)
    if not text.startswith("{"):
        yield text
        return
    fields = json_object(text) or {}
    for key in ("message", "msg", "event", "exc_info", "exception"):
        if isinstance(value := fields.get(key), str):
            yield from value.split("\n")


def _invalid(said: str) -> str | None:
    """Return what pydantic refuses, without the input: what its line has below a key, indented by two spaces."""
    refused, input_type, _ = said.partition(_INPUT)
    if refused.startswith(_INDENT) and not refused.startswith(_INDENT + " "):
        return refused.removeprefix(_INDENT)
    _, indent, text = refused.rpartition(_INDENT)  # behind a prefix
    return text if input_type and indent else None


def _shortened(said: str) -> str:
    """Shorten a line, and drop the values of arguments: one may be a secret."""
    before, found, arguments = said.partition(_ARGUMENTS)
    if found:
        names = [word.partition("=")[0] for word in arguments.split() if word.startswith("-")]
        said = f"{before}{found}{' '.join(names)}"
    return plain(said[: bounds.MESSAGE_CHARACTERS])
