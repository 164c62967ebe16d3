r"""One line of a predictor's log -> the messages of vLLM in it, and what says who wrote them. Pure; raises on no input.

A message stands behind prefixes, which end in the header of vLLM's logger or of an operator's own, or in an envelope:
an object of JSON or a row of CSV, whose strings are read as lines. There may be envelopes in envelopes::

    PREFIX INFO 11-20 21:44:52 metrics.py:489] MESSAGE                                up to 0.7.3
    PREFIX (APIServer pid=1) INFO 11-20 21:44:52 [metrics.py:96] MESSAGE              later; the process since 0.10.1
    [2026-11-20 21:44:52,123] [INFO] [vllm.v1.metrics.loggers] MESSAGE                another formatter
    {"asctime": "...", "levelname": "INFO", "name": "vllm.v1...", "message": "MESSAGE", ...}

A line counts only if vLLM itself wrote it. Of several headers the first one is the line's own, and a message begins
directly behind it: all else may be a user's text. A prefix has names and times, and is no sentence that quotes a line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log.kinds import BEGINNINGS, WRITERS, kind_of
from specdec_exporter.predictor.log.message import Message, Place

_LEVEL: Final = r"(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)"
_CLOCK: Final = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_TIME: Final = rf"(?:\d\d\d\d-\d\d-\d\d|\d\d/\d\d/\d\d\d\d)[T\ ]{_CLOCK}(?:\ [AP]M)?"
_FILE: Final = r"[\w/.-]{1,200}\.(?:py|rs)"
_NAME: Final = r"[\w./@:-]{1,100}"
_SPEAKER: Final = "(?i:user|human|assistant|system|prompt)"

# vLLM's own header.
_HEADER: Final = re.compile(
    rf"(?P<level>{_LEVEL})[ \t]+(?P<timestamp>\d\d-\d\d \d\d:\d\d:\d\d)[ \t]+"
    r"\[?(?P<tag>[^\]\[\s]{1,200}):\d{1,6}\] ",
    re.ASCII,
)
# What collectors and formatters print before a message.
_PARTS: Final = re.compile(
    rf"""
    # journalctl -o export; labels of logcli; kubectl logs --prefix; Docker Compose
      ^MESSAGE=
    | \{{(?:[\w./-]{{1,100}}="(?:[^"\\]|\\.)*+"(?:,\ ?)?)++\}}
    | ^\[(?P<pod>[^\s\[\]/]{{1,200}}/[^\s\[\]]{{1,200}})\]
    | ^(?!{_SPEAKER}\b)(?P<service>[\w./-]{{1,100}})\ *\|\ +
    # a process, perhaps behind a VLLM_LOGGING_PREFIX of two words
    | \((?P<process>[A-Za-z][\w:.-]{{0,199}})\ pid=(?P<pid>\d{{1,10}})(?:,\ ip=[\w.:]{{1,64}})?\)
    | ^(?:\w{{1,80}}\ ){{2}}(?=\([A-Za-z][\w:.-]{{0,199}}\ pid=)
    # SkyPilot; the server in front of vLLM that prints what it reads from it: DJL, TorchServe
    | ^\([\w-]{{1,80}}(?:,\ \w{{1,20}}=[\w.:]{{1,64}}){{1,4}}\)
    | \[{_LEVEL}\ *\]\ (?:\w{{1,80}}\ -\ )?W-\d{{1,10}}-[\w.-]{{1,100}}-std(?:out|err)(?::|\ \w{{1,80}}\ -)
    # times, alone or as syslog, the journal and kubectl print them
    | [A-Z][a-z]{{2}}\ [\ \d]\d\ {_CLOCK}(?:\ +[\w.-]{{1,100}}\ {_NAME}(?:\[\d{{1,10}}\])?:)?
    | \[(?P<bracketed_time>{_TIME})\](?=\ *\[?{_LEVEL})
    | (?:[A-Z][a-z]{{2}}\ )?(?P<time>{_TIME})(?:\ (?!{_LEVEL}\b)[A-Z]{{2,5}}(?=\ ))?
      (?:\ (?:stdout|stderr)\ [PF](?::\S{{0,40}})?\ |\ (?!{_LEVEL}\ )[\w.-]{{1,100}}\ {_NAME}\[\d{{1,10}}\]:)?
    | (?:\d\d-\d\d\ )?{_CLOCK}
    # level, logger, file or module with its function and line, number, process and thread
    | (?<![\w.])\[?(?P<level>{_LEVEL})\ *\]?(?![\w.])
    | (?<![\w.])\[?(?P<tag>vllm(?:\.\w{{1,80}})+|{_FILE}(?=:\d)|(?:{"|".join(WRITERS)})(?=\.\w{{1,80}}:\s*$))
      (?:\.\w{{1,80}}:|(?::\w{{1,80}})?(?::\d{{1,6}})?(?:,\w{{1,80}})?)\]?
    | (?<!\S)(?:\[?(?:\d{{1,10}}|Main(?:Process|Thread))\]?|logging:\w{{1,80}}:\d{{1,6}})(?!\S)
    """,
    re.ASCII | re.VERBOSE,
)
# Progress bars, which may end in a carriage return instead of a newline, or in nothing.
_BARS: Final = re.compile(
    r"^(?:[^|\r\n\"'`]{0,200}?\d{1,3}%(?:\|[^|\r\n]{0,400}| Completed )\|[^\[\]\r\n]{0,80}\[[^\[\]\r\n]{0,120}\] *\r?"
    r"|[^|\r\n\"'`]{0,200}?\dit \[[^\[\]\r\n]{0,120}\] *\r?|\r)+",
    re.ASCII,
)
# What stands behind a message: who wrote it, or that Ray left out what others said in the same words.
_SUFFIX: Final = re.compile(
    rf" (?:\[\d{{1,10}}(?:,\d{{1,10}})*\])?"
    rf"\[(?P<tag>{_FILE}(?=:)|vllm(?:\.\w{{1,80}})+)(?::\d{{1,6}})?(?:,\w{{1,80}})?\]$"
    r"| \[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates [^()]{1,400}\))?$",
    re.ASCII,
)
# Signs of a sentence: two plain words, the name of a speaker, a quotation mark.
_SENTENCE: Final = re.compile(
    rf"[\"'`{{}}\\\r\n\u2018-\u201e\xab\xbb]|^  |(?:^|\s)>|\b{_SPEAKER}\s*[:|]|(?:Error|Exception):"
    r"|(?<!\S)[A-Za-z']+[,.:;!?]? +[A-Za-z']+[,.:;!?]?(?!\S)",
    re.ASCII,
)
_WORD: Final = re.compile(r"(?<!\S)[A-Za-z']+[,.:;!?]?(?!\S)", re.ASCII)
_SEPARATORS: Final = " \t|:-"
_PREFIX_CHARACTERS: Final = 1000
_PREFIX_WORDS: Final = 3

# Colours, also where a collector dropped the escape character or spelled it out.
_CODE: Final = r"(?:\[[0-9;?]{0,20}[A-Za-z]|\([A-Z0-9])"
_ANSI: Final = re.compile(
    rf"\x1b{_CODE}|\\(?:u001b|x1b|033){_CODE}|#033{_CODE}|\^\[{_CODE}|\[\d{{1,3}}(?:;\d{{1,3}}){{0,4}}m", re.ASCII
)
_SIZE: Final = re.compile(r"^[^\0]{1,3}\0{5,7}")  # of a message with colours in journalctl -o export, 8 bytes

# --- envelopes; all keys in lower case ---
# Where loggers and collectors put the message, and what holds it. Under any other key, it may be a request's text.
_MESSAGE_KEYS: Final = frozenset(
    {
        "message", "msg", "event", "text", "log", "line", "body", "@message", "short_message", "full_message",
        "original", "textpayload", "stringvalue", "_raw", "logmessage", "logentry",
    }
)  # fmt: skip
_HOLDERS: Final = frozenset(
    {
        "message", "event", "jsonpayload", "attributes", "content", "_source", "result", "logevents", "entries",
        "resourcelogs", "scopelogs", "logrecords",
    }
)  # fmt: skip
_USER_CONTENT_KEYS: Final = frozenset(
    {
        "prompt", "input", "inputs", "output", "outputs", "content", "completion", "response", "request", "query",
        "question", "answer", "messages", "url", "path", "user", "user_agent", "exc_info", "exception", "stack_trace",
    }
)  # fmt: skip
_LOGGER_KEYS: Final = ("name", "logger", "logger_name", "loggername", "log.logger", "target")
_LEVEL_KEYS: Final = ("levelname", "level", "severity", "log.level", "lvl", "level_name")
_TIME_KEYS: Final = ("asctime", "timestamp", "time", "@timestamp", "ts", "datetime", "date", "timeunixnano")
_PROCESS_KEYS: Final = ("vllm_process_name",)  # "processName" is Python's own: MainProcess for most
_PID_KEYS: Final = ("process", "pid", "process_id", "process.pid")
_MOST_NESTED: Final = 3  # envelopes in envelopes
_MOST_LEVELS: Final = 12  # of one object
# One line of an object over many lines, and a row whose fields have no blanks, or quotes around them.
_PRINTED_PAIR: Final = re.compile(
    r'\s*"(?:message|msg|log|line|textpayload|stringvalue)"\s*:\s*(".*"),?\s*', re.IGNORECASE
)
_OBJECT: Final = re.compile(r'\{\s*["}]')
# The second as Dynamo names it, by file and function.
_LOGGER: Final = re.compile(rf"(vllm(?:\.\w{{1,80}})*)|({'|'.join(WRITERS)})\.(?:log\w{{0,80}}|__init__)", re.ASCII)
_CSV_FIELD: Final = rf'(?:"(?:[^"]|"")*+"|{_TIME}|[^\s",]*+)'
_CSV_ROW: Final = re.compile(rf"{_CSV_FIELD}(?:,{_CSV_FIELD})+", re.ASCII)


class _Around(NamedTuple):
    """What stands around a message.

    Of a prefix, ``left`` are the names and marks that are of no known shape, ``behind_tag`` those behind the writer. Of
    an object, ``is_message``: the keys so far are those of a message.
    """

    place: Place
    tag: str | None = None
    level: str | None = None
    left: str = ""
    behind_tag: str = ""
    is_message: bool = True


def messages(text: str) -> list[Message]:
    """Return the messages of one line, without its newline. Nobody has looked at their writers yet."""
    return _of_line(text, 0)


def begins_a_line(text: str) -> bool:
    """Whether the text is a line of its own and not the rest of another: it has vLLM's header or is a JSON object."""
    return _HEADER.search(_plain(text)) is not None or text.startswith('{"')


def json_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object with its keys in lower case; ``None`` if the text is none."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return {key.lower(): item for key, item in value.items()} if isinstance(value, dict) else None


# --- a line of text ---------------------------------------------------------------------------------------------------


def _of_line(text: str, nested: int) -> list[Message]:
    if nested > _MOST_NESTED:
        return []
    text = _SIZE.sub("", text.lstrip("\0\ufeff"))
    text = _plain(text).rstrip()
    if "\r" in text or "it]" in text or "it/s]" in text:
        text = _BARS.sub("", text)
    header = _HEADER.search(text)
    before = text if header is None else text[: header.start()]
    if '"' in before and (enveloped := _of_envelope(text, nested)) is not None:
        return enveloped
    if header is None:
        return _of_other_formatter(text)
    around = _around(before)
    # A level or a writer before the header shows that another logger printed all of it.
    if around is None or around.level or around.tag:
        return []
    around.place["timestamp"] = header["timestamp"]
    said = text[header.end() :]
    said = _SUFFIX.sub("", said) if said.endswith(("]", ")")) else said
    return [Message(said, around.place, header["tag"], header["level"])]


def _of_other_formatter(text: str) -> list[Message]:
    """Find a message behind any header but vLLM's own, by its first words. In such a header, a name is a logger's."""
    begins = BEGINNINGS.search(text, 0, 2 * _PREFIX_CHARACTERS)
    if begins is None or (around := _around(text[: begins.start()])) is None:
        return []
    suffix = _SUFFIX.search(text)
    tag = around.tag or (suffix and suffix["tag"])
    foreign = _WORD.search(around.left) or around.behind_tag if tag else around.left
    if foreign:
        return []
    return [Message(text[begins.start() : suffix.start() if suffix else None], around.place, tag, around.level)]


def _plain(text: str) -> str:
    """Return the text without colours. All spellings end in the code that resets them, which is quickly looked for."""
    return _ANSI.sub("", text) if "\x1b" in text or "0m" in text else text


def _around(prefix: str) -> _Around | None:
    """Read what stands before a header or a message; ``None`` for a sentence, which may quote a line."""
    if len(prefix) > _PREFIX_CHARACTERS:
        return None
    place: Place = {}
    tag = level = None
    left = behind_tag = ""
    position = 0
    for part in _PARTS.finditer(prefix):
        between = prefix[position : part.start()]
        left, behind_tag, position = f"{left}{between}\t", f"{behind_tag}{between}", part.end()
        # Of several processes, the last is vLLM's own. Others, such as Ray, print theirs before it.
        if part["process"]:
            place["process"], place["pid"] = part["process"], int(part["pid"])
        if server := part["pod"] or part["service"]:
            place["server"] = plain(server)
        if time := part["time"] or part["bracketed_time"]:
            place["timestamp"] = time
        level = part["level"] or level
        if part["tag"]:
            tag, behind_tag = part["tag"], ""
    left, behind_tag = f"{left}{prefix[position:]}", f"{behind_tag}{prefix[position:]}"
    if _SENTENCE.search(left) is not None or len(left.split()) > _PREFIX_WORDS:
        return None
    return _Around(place, tag, level, left.strip(_SEPARATORS), behind_tag.strip(_SEPARATORS) if tag else "")


# --- envelopes --------------------------------------------------------------------------------------------------------


def _of_envelope(text: str, nested: int) -> list[Message] | None:
    """Return the messages of a row of CSV or an object of JSON; ``None`` for a text that is neither."""
    if (pair := _PRINTED_PAIR.fullmatch(text)) is not None:
        return _of_value(json_object(f'{{"message": {pair[1]}}}'), _Around({}), nested)
    if _CSV_ROW.fullmatch(text) is not None:
        return _longest(_of_value(field, _Around({}), nested) for field in next(csv.reader([text])))
    brace = _OBJECT.search(text)
    around = None if brace is None else _around(text[: brace.start()])
    if brace is None or around is None or around.level or around.tag:
        return None
    # The engine-init line is long, so a collector may cut the object inside it.
    fields = json_object(text[brace.start() :]) or json_object(text[brace.start() :] + '"}')
    return None if fields is None else _of_value(fields, around, nested)


def _of_value(value: object, around: _Around, nested: int, level: int = 0) -> list[Message]:
    """Return the messages of a value of JSON: of an object its longest string, of a list those of its items."""
    if isinstance(value, str):
        return _of_string(value, around, nested)
    if isinstance(value, list) and level < _MOST_LEVELS:
        if value and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):  # journalctl
            return _of_string(bytes(value).decode("utf-8", "replace"), around, nested)
        items = (item for item in value if isinstance(item, dict))
        return [message for item in items for message in _of_value(item, around, nested, level + 1)]
    if isinstance(value, dict) and level < _MOST_LEVELS:
        return _of_object({key.lower(): item for key, item in value.items()}, around, nested, level)
    return []


def _of_object(fields: Mapping[str, object], around: _Around, nested: int, level: int) -> list[Message]:
    named, tag = _logger_of(fields)
    if named and tag is None:
        return []  # of another logger, with whatever users wrote
    inner = around._replace(
        place=_place_of(fields, around.place),
        tag=tag or around.tag,
        level=_text(fields, _LEVEL_KEYS) or around.level,
    )
    return _longest(
        _of_value(item, inner._replace(is_message=around.is_message and _leads(key, item, level)), nested, level + 1)
        for key, item in fields.items()
        if key not in _USER_CONTENT_KEYS or (key == "content" and isinstance(item, dict))
    )


def _logger_of(fields: Mapping[str, object]) -> tuple[bool, str | None]:
    """Whether an object names its logger, and the name if that is one of vLLM's."""
    names = [name for key in _LOGGER_KEYS if isinstance(name := fields.get(key), str)]
    named = bool(names)
    if isinstance(scope := fields.get("scope"), dict):  # of OTLP, where it may name anything
        names.append(str(scope.get("name")))
    return named, next((logger[1] or logger[2] for name in names if (logger := _LOGGER.fullmatch(name))), None)


def _leads(key: str, item: object, level: int) -> bool:
    """Whether a key of an object leads to a message; ``body`` holds one inside the lists of OTLP, or is one."""
    return key in (_MESSAGE_KEYS if isinstance(item, str) else _HOLDERS) or (key == "body" and level > 0)


def _of_string(value: str, around: _Around, nested: int) -> list[Message]:
    """Read a string of an envelope: the message alone if the envelope names its logger, or else a whole line."""
    level = (around.level or "").upper() or None
    if around.tag is not None:
        read = [Message(_plain(value).rstrip(), around.place, around.tag, level)]
    else:
        read = [
            message._replace(place={**around.place, **message.place}, level=message.level or level)
            for message in _of_line(value, nested + 1)
        ]
    read = [message for message in read if kind_of(message) is not None]
    return read if around.is_message else [message._replace(tag=None) for message in read]


def _longest(candidates: Iterable[list[Message]]) -> list[Message]:
    """Return the longest messages, of those that have a writer if any has."""

    def worth(some: list[Message]) -> tuple[bool, int]:
        return any(message.tag for message in some), max((len(message.text) for message in some), default=0)

    return max(candidates, key=worth, default=[])


def _place_of(fields: Mapping[str, object], outer: Place) -> Place:
    place = outer.copy()
    if (time := _text(fields, _TIME_KEYS)) is not None:
        place["timestamp"] = time
    if (process := _text(fields, _PROCESS_KEYS)) is not None:
        place["process"] = process
    if (pid := _text(fields, _PID_KEYS) or "").isascii() and pid.isdigit() and len(pid) <= 10:
        place["pid"] = int(pid)
    return place


def _text(fields: Mapping[str, object], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, str) and value:
            return plain(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    return None
