r"""One line of a predictor's log -> its event. Pure; raises on no input.

A line counts only if vLLM itself wrote it: the message begins directly after the line's first header, or at the line's
start if the operator's formatter prints no header. A line that a user's text quotes does not count. Which file or
logger the header must name is in :mod:`writers`.

Shapes, where log collectors and VLLM_LOGGING_PREFIX add the PREFIX::

    PREFIX INFO 11-20 21:44:52 metrics.py:489] MESSAGE                                up to 0.7.3
    PREFIX (APIServer pid=1) INFO 11-20 21:44:52 [metrics.py:96] MESSAGE              later; the process since 0.10.1
    [2026-11-20 21:44:52,123] [INFO] [vllm.v1.metrics.loggers] MESSAGE                an operator's own formatter
    {"asctime": "...", "levelname": "INFO", "name": "vllm.v1...", "message": "MESSAGE", ...}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log.events import EngineConfig, Event, Malformed, SpecDecoding
from specdec_exporter.predictor.log.message import (
    NOWHERE,
    SERVERS_OWN,
    SPEC_DECODING,
    SPECULATIVE_V0,
    How,
    Origin,
    read_message,
)
from specdec_exporter.predictor.log.writers import writes

_LEVEL: Final = r"(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)"
# The following also fit verbose patterns.
_DAY: Final = r"(?:\d\d\d\d-\d\d-\d\d|\d\d/\d\d/\d\d\d\d)"
_CLOCK: Final = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_TIME: Final = rf"{_DAY}[T\ ]{_CLOCK}(?:\ [AP]M)?"
_PROCESS: Final = r"\((?P<process>[A-Za-z][\w:.-]{0,199})\ pid=(?P<pid>\d{1,10})(?:,\ ip=[\w.:]{1,64})?\)"
_LOGGER: Final = r"vllm(?:\.\w+)*"
_FILE: Final = r"[\w/.-]{1,200}\.(?:py|rs)"
# Other words that formatters print: level, process id, names of the process and the thread.
_WORD: Final = rf"(?:{_LEVEL}|\d{{1,10}}|Main(?:Process|Thread))"
_BRACKETED_TIME: Final = rf"\[(?P<bracketed_time>{_TIME})\]"

_HEADER: Final = re.compile(
    rf"(?P<level>{_LEVEL})[ \t]+(?P<timestamp>\d\d-\d\d \d\d:\d\d:\d\d)[ \t]+"
    r"(?:\[(?P<tag>[^\]\[\s]{1,200}):\d{1,6}\]|(?P<old_tag>[^\]\[\s]{1,200}):\d{1,6}\]) ",
    re.ASCII,
)

# Colours, also where a collector dropped the escape character or spelled it out.
_CODE: Final = r"(?:\[[0-9;?]{0,20}[A-Za-z]|\([A-Z0-9])"
_ANSI: Final = re.compile(
    rf"\x1b{_CODE}|\\(?:u001b|x1b|033){_CODE}|#033{_CODE}|\^\[{_CODE}|\[\d{{1,3}}(?:;\d{{1,3}}){{0,4}}m", re.ASCII
)

_WRAPPING: Final = re.compile(
    rf"""
      [A-Z][a-z]{{2}}\ [ \d]\d\ {_CLOCK}\ +(?:[\w.-]{{1,100}}\ [\w./@:-]{{1,100}}(?:\[\d{{1,10}}\])?:\ +)?  # syslog, ts
    | (?:[A-Z][a-z]{{2}}\ )?(?P<time>{_TIME})(?:\ (?!{_LEVEL}\b)[A-Z]{{2,5}}(?=\ ))?\ +(?:                  # journal
          (?:stdout|stderr)\ [PF](?::\S{{0,40}})?\                                          # kubectl, CRI
        | (?!{_LEVEL}\ )[\w.-]{{1,100}}\ [\w./@:-]{{1,100}}\[\d{{1,10}}\]:\ +                # syslog with an ISO time
      )?
    | {_BRACKETED_TIME}\ *
    | \[(?!(?:{_LOGGER}|{_WORD}|{_FILE}:\d{{1,6}})\])(?:
          (?P<bracketed_name>(?!vllm)[^\s\[\]/]{{1,200}})           # a collector's word, or the name of another server
        | (?P<pod>[^\s\[\]]{{1,200}})                         # pod/name/container
      )\]\ *
    | (?P<service>[\w./-]{{1,100}})\ *\|\ +                                             # compose: service-1  |
    | {_PROCESS}\ *
    | [^|]{{0,200}}?\d{{1,3}}%(?:\|[^|]{{0,400}}|\ Completed\ )\|\ ?[^\[\]]{{0,80}}\[[^\[\]]{{0,120}}\]\ *  # bar
    """,
    re.ASCII | re.VERBOSE,
)
# The operator sets VLLM_LOGGING_PREFIX to a word or two. More words are a sentence that quotes a line. A quotation mark
# or the name of a speaker at the beginning also shows a quotation.
_OPERATORS_WORD: Final = re.compile(
    r"(?!>|(?i:user|human|assistant)\ ?:)"
    r"(?:\[[^\[\]]{1,80}\]\s*|(?:(?!\([A-Za-z][\w:.-]{0,199} pid=)\S){1,80}(?:\s+|(?=\()|$))",
    re.ASCII,
)
_OPERATORS_WORDS: Final = 2
_NAME_MARK: Final = re.compile(r"[\d\[\]():|/=_-]", re.ASCII)  # as in names of pods and nodes
_USER_TEXT: Final = re.compile(rf"[\"'`{{}}\\\r\n\u2018-\u201e\xab\xbb]|\b{_LEVEL}\b", re.ASCII)
_BAR: Final = re.compile(r"\d{1,3}%(?:\|| Completed \|)|\dit \[", re.ASCII)

# Headers of operators' own formatters.
_OWN_HEADER: Final = re.compile(
    rf"""(?:[|:-][ \t]+)?(?:
    (?: (?P<time>{_TIME}) | (?P<clock>(?:\d\d-\d\d\ )?{_CLOCK}|{_DAY}) | {_PROCESS}
      | \[?(?P<logger>{_LOGGER})\]? | \[?(?P<file>{_FILE}):\d{{1,6}}\]? | \[?(?P<word>{_WORD})\]? | {_BRACKETED_TIME}
      | \[(?P<bracketed_name>[^\s\[\]]{{1,200}})\]
    )[ \t]*[|:-]?[ \t]*)""",
    re.ASCII | re.VERBOSE,
)
_FORMATTED: Final = frozenset({"time", "bracketed_time", "clock", "word", "file"})
_MOST_PARTS: Final = 12

# JSON keys of the message, in order of preference, and of the other parts. All in lower case.
_MESSAGE_KEYS: Final = (
    "message", "msg", "event", "text", "log", "line", "body",
    "@message", "short_message", "full_message", "textpayload",
)  # fmt: skip
_USER_CONTENT_KEYS: Final = frozenset(
    {
        "prompt", "input", "inputs", "output", "outputs", "content", "completion", "response", "request", "query",
        "question", "answer", "messages", "url", "path", "user", "user_agent", "exc_info", "exception", "stack_trace",
    }
)  # fmt: skip
_LOGGER_KEYS: Final = ("name", "logger", "logger_name", "loggername", "log.logger", "target")
_LEVEL_KEYS: Final = ("levelname", "level", "severity", "log.level", "lvl", "level_name")
_TIME_KEYS: Final = ("asctime", "timestamp", "time", "@timestamp", "ts", "datetime", "date")
_PROCESS_KEYS: Final = ("vllm_process_name",)  # "processName" is Python's own: MainProcess for most
_PID_KEYS: Final = ("process", "pid", "process_id", "process.pid")
_BROKEN_JSON: Final = re.compile(
    rf'"(?:{"|".join(map(re.escape, _MESSAGE_KEYS))})"\s*:\s*"(?:{SPEC_DECODING}|{SPECULATIVE_V0})', re.IGNORECASE
)
_BROKEN_LOGGER: Final = re.compile(
    rf'"(?:{"|".join(map(re.escape, _LOGGER_KEYS))})"\s*:\s*"([^"\\]{{1,200}})"', re.IGNORECASE
)
_MOST_NESTED: Final = 2  # a collector's object around vLLM's


def parse_line(line: bytes, how: How = SERVERS_OWN) -> Event | Malformed | None:
    """Return the event of one line (without its newline); ``None`` where vLLM did not write it, or it is of no use."""
    return parse_text(line.decode("utf-8", "replace"), how)


def parse_text(text: str, how: How = SERVERS_OWN) -> Event | Malformed | None:
    """Like :func:`parse_line`, for decoded text."""
    text = _ANSI.sub("", text.lstrip("\0\ufeff").rstrip("\r\n"))
    return _read_line(_after_progress_bar(text), how, nested=0)


def continues(previous: str, text: str) -> bool:
    """Whether the text goes on with the previous line's message, which ends in a carriage return.

    vLLM prints a message of several lines with a carriage return at the end of all but the last, and repeats the
    header. A user's text with line ends is the usual reason.
    """
    if not previous.endswith("\r") or (header := _HEADER.search(text := _ANSI.sub("", text))) is None:
        return False
    return _ANSI.sub("", previous).startswith(text[: header.end()])


def has_header(text: str) -> bool:
    """Whether the text is a line of its own and not the rest of another: it has vLLM's header or is a JSON object."""
    found = _HEADER.search(text) or _HEADER.search(_ANSI.sub("", text))  # colours are rare
    return found is not None or text.startswith("{")


def _after_progress_bar(text: str) -> str:
    """Return the text after a progress bar, which ends in a carriage return instead of a newline."""
    bars, returned, line = text.rpartition("\r")
    return line if returned and all(map(_is_bar, bars.split("\r"))) else text


def _is_bar(text: str) -> bool:
    return not text.strip() or (_BAR.search(text) is not None and _USER_TEXT.search(text) is None)


def _read_line(text: str, how: How, *, nested: int) -> Event | Malformed | None:
    header = _HEADER.search(text)
    brace = text.find("{", 0, len(text) if header is None else header.start())
    if brace >= 0 and _read_prefix(text[:brace]) is not None:
        return _read_json(text, brace, how, nested=nested)
    if header is None:
        return _read_without_header(text, how)
    if (around := _read_prefix(text[: header.start()])) is None:
        return None
    origin = around._replace(
        timestamp=header["timestamp"], level=header["level"], tag=header["tag"] or header["old_tag"]
    )
    return read_message(text[header.end() :], origin, how)


def _read_prefix(prefix: str) -> Origin | None:
    """Return the writer that the text before a header names; ``None`` where that text is no prefix."""
    if _USER_TEXT.search(prefix) is not None or prefix.startswith("  "):  # indented: an exception's source line
        return None
    origin = NOWHERE
    prefix = prefix.lstrip()
    position = 0
    words_left = _OPERATORS_WORDS
    words: list[str] = []  # not followed by a process, which a sentence seldom is
    while position < len(prefix):
        if (wrapping := _WRAPPING.match(prefix, position)) is not None:
            position = wrapping.end()
            origin = _with_process(origin, wrapping)
            if wrapping["process"] is not None:
                words.clear()
        elif words_left > 0 and (word := _OPERATORS_WORD.match(prefix, position)) is not None:
            position = word.end()
            words_left -= 1
            words.append(word[0])
        else:
            return None
    # Two plain words begin a sentence: "I saw".
    return None if len(words) > 1 and _NAME_MARK.search("".join(words)) is None else origin


def _with_process(origin: Origin, part: re.Match[str]) -> Origin:
    # Of several processes, the last is vLLM's own. Others, such as Ray, print theirs before it.
    if part["process"] is not None:
        return origin._replace(process=part["process"], pid=int(part["pid"]))
    if part.lastgroup in ("pod", "service"):
        return origin._replace(server=plain(part[part.lastgroup]))
    return origin._replace(timestamp=part["time"] or part["bracketed_time"] or origin.timestamp)


def _read_without_header(text: str, how: How) -> Event | Malformed | None:
    """Read a line of an operator's formatter: perhaps times, level, logger and the like, then the message."""
    origin = NOWHERE
    position = 0
    kinds: set[str | None] = set()
    for pattern in (_WRAPPING, _OWN_HEADER):
        for _ in range(_MOST_PARTS):
            if (part := pattern.match(text, position)) is None:
                break
            position = part.end()
            origin = _with_process(origin, part)
            kinds.add(part.lastgroup)
            if part.lastgroup in ("logger", "file"):
                origin = origin._replace(tag=part[part.lastgroup])
    return None if _is_another_servers(kinds) else read_message(text[position:], origin, how)


def _is_another_servers(kinds: set[str | None]) -> bool:
    """Whether a header of such parts belongs to another server.

    SGLang and LMDeploy print only the time, in brackets. A name in brackets beside other parts of a formatter may be
    that of another server. A name alone comes from a log collector.
    """
    if "logger" in kinds:
        return False
    if "bracketed_time" in kinds and kinds.isdisjoint({"word", "file"}):
        return True
    return "bracketed_name" in kinds and not kinds.isdisjoint(_FORMATTED)


# --- JSON -----------------------------------------------------------------------------------------------------------


def _read_json(text: str, brace: int, how: How, *, nested: int) -> Event | Malformed | None:
    if nested >= _MOST_NESTED:
        return None
    if (fields := json_object(text[brace:])) is not None:
        return _read_fields(fields, how, nested=nested)
    # An object that was cut inside the message may still hold the engine's configuration, at the message's beginning.
    if (fields := json_object(text[brace:] + '"}')) is not None:
        said = _read_fields(fields, how, nested=nested)
        if isinstance(said, EngineConfig):
            return said
    logger = _BROKEN_LOGGER.search(text, brace)
    if _BROKEN_JSON.search(text, brace) is None or not writes(
        logger[1] if logger else None, SpecDecoding, any_writer=how.any_writer
    ):
        return None
    return Malformed(reason="the JSON object cannot be read", incomplete=not text.rstrip().endswith("}"))


def json_object(text: str) -> dict[str, object] | None:
    """Return a JSON object with its keys in lower case; ``None`` if the text is none."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return {key.lower(): value for key, value in found.items()} if isinstance(found, dict) else None


def _read_fields(fields: Mapping[str, object], how: How, *, nested: int) -> Event | Malformed | None:
    loggers = [name for key in _LOGGER_KEYS if isinstance(name := fields.get(key), str)]
    of_vllm = [name for name in loggers if name.startswith("vllm")]
    if loggers and not of_vllm:
        return None
    origin = Origin(
        timestamp=_text(fields, _TIME_KEYS),
        process=_text(fields, _PROCESS_KEYS),
        pid=_pid(fields),
        level=(_text(fields, _LEVEL_KEYS) or "").upper() or None,
        tag=next(iter(of_vllm), None),
    )
    for key in _MESSAGE_KEYS:
        if isinstance(message := fields.get(key), str):
            return _read_value(message, origin, how, nested=nested)
    return _read_other_keys(fields, origin, how, nested=nested) if how.any_writer else None


def _read_other_keys(fields: Mapping[str, object], origin: Origin, how: How, *, nested: int) -> Event | None:
    """Look for the message under any key that holds no user's text."""
    for key, value in fields.items():
        if key not in _USER_CONTENT_KEYS and isinstance(value, str):
            said = _read_value(value, origin, how, nested=nested)
            if said is not None and not isinstance(said, Malformed):
                return said
    return None


def _read_value(value: str, outer: Origin, how: How, *, nested: int) -> Event | Malformed | None:
    """Read a JSON string: the message alone, or a whole line that a collector wrapped."""
    value = _ANSI.sub("", value.rstrip("\r\n"))
    said = read_message(value, outer, how)
    if said is None and outer.tag is None:
        said = _read_line(value, how, nested=nested + 1)
    if said is None or isinstance(said, Malformed):
        return said
    return msgspec.structs.replace(said, timestamp=said.timestamp or outer.timestamp)


def _text(fields: Mapping[str, object], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, str) and value:
            return plain(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    return None


def _pid(fields: Mapping[str, object]) -> int | None:
    for key in _PID_KEYS:
        value = fields.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
