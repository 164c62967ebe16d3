"""The exporter's own log: one line a record, readable by machines."""

from __future__ import annotations

import json
import logging

from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.serving.logs import LineFormatter


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("specdec", logging.WARNING, __file__, 1, message, (), None)
    vars(made).update(extra)
    return made


def test_logfmt_quotes_only_what_needs_it() -> None:
    line = LineFormatter("logfmt").format(record("not reachable", predictor="chat", reason='said "no"'))
    assert 'level=warn msg="not reachable" predictor=chat reason="said \\"no\\""' in line


def test_json_is_one_object_a_line() -> None:
    decoded = json.loads(LineFormatter("json").format(record("ready", predictors=2)))
    assert (decoded["level"], decoded["msg"], decoded["predictors"]) == ("warn", "ready", 2)


def test_an_exception_is_a_field_and_never_a_traceback() -> None:
    error = OSError(5, "Input/output error")
    made = record("reading failed")
    made.exc_info = (OSError, error, None)
    line = LineFormatter("logfmt").format(made)
    assert 'error="OSError: [Errno 5] Input/output error"' in line
    assert "Traceback" not in line


@given(st.text())
def test_any_message_stays_on_one_line(text: str) -> None:
    made = record(text, field=text)
    assert len(LineFormatter("logfmt").format(made).split("\n")) == 1
    assert json.loads(LineFormatter("json").format(made))["field"] == text
