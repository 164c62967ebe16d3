"""The exporter's own log: logfmt or JSON lines on stderr."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Literal

from aiohttp.http_exceptions import HttpProcessingError

from specdec_exporter.config import OwnLogSettings

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}
_PLAIN = re.compile(r"[\w./:@+\-]+")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return time, level, message and the caller's ``extra``."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    known: dict[str, object] = {
        "ts": f"{seconds}.{int(record.msecs):03d}Z",
        "level": _LEVELS[record.levelname],
        "msg": record.getMessage(),
    }
    known.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        known["error"] = f"{type(error).__name__}: {error}"
    return known


class LineFormatter(logging.Formatter):
    """One line for each record: a JSON object, or logfmt: ``key=value`` pairs, whose values are quoted if necessary."""

    def __init__(self, log_format: Literal["logfmt", "json"]) -> None:
        super().__init__()
        self._json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        if self._json:
            return json.dumps(_fields(record), default=str, ensure_ascii=False)
        return " ".join(f"{key}={_logfmt_value(value)}" for key, value in _fields(record).items())


def _logfmt_value(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _is_no_clients_fault(record: logging.LogRecord) -> bool:
    """Whether the record tells of more than a request that is not HTTP: anybody could fill the log with those."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


def configure(settings: OwnLogSettings) -> None:
    """Send records of ``settings.level`` and above to stderr in ``settings.format``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(settings.format))
    level = {"warn": "WARNING"}.get(settings.level, settings.level.upper())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Below WARNING these repeat our own messages, or do not help an operator.
    logging.getLogger("aiohttp.server").addFilter(_is_no_clients_fault)
    for name in ("aiohttp.access", "aiohttp.server", "aiohttp.client", "asyncio"):
        logging.getLogger(name).setLevel("WARNING" if settings.level != "debug" else "DEBUG")
