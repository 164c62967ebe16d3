"""Container runtimes' framing of log lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.log.container import Piece, detect_format, unwrap

TIME = "2026-11-20T21:44:52.123456789Z"


@pytest.mark.parametrize(
    ("line", "piece"),
    [
        (f"{TIME} stdout F hello world", Piece(b"hello world", "stdout", partial=False, timestamp=TIME)),
        (f"{TIME} stdout P:attr:x hello", Piece(b"hello", "stdout", partial=True, timestamp=TIME)),
        (f"{TIME} stdout F", Piece(b"", "stdout", partial=False, timestamp=TIME)),
        (
            rf'{{"log":"hello \u003c\"\u001b[0m\n","stream":"stdout","time":"{TIME}"}}',
            Piece(b'hello <"\x1b[0m', "stdout", partial=False, timestamp=TIME),
        ),
        (
            rf'{{"log":"hello\r\n","stream":"stderr","attrs":{{"tag":"x"}},"time":"{TIME}"}}' + "\r",
            Piece(b"hello\r", "stderr", partial=False, timestamp=TIME),
        ),
        ('{"stream":"stdout","log":"hello"}', Piece(b"hello", "stdout", partial=True, timestamp=None)),
        (
            f'{{"time":"{TIME}","stream":"stdout","logtag":"F","log":"hello"}}',
            Piece(b"hello", "stdout", partial=False, timestamp=TIME),
        ),
        ('{"stream":"stderr","_p":"P","log":"hello"}', Piece(b"hello", "stderr", partial=True, timestamp=None)),
    ],
)
def test_a_framed_line_is_unwrapped(line: str, piece: Piece) -> None:
    runtime = "docker" if line.startswith("{") else "cri"
    assert detect_format(line.encode()) == runtime
    assert unwrap(line.encode(), runtime) == piece


@pytest.mark.parametrize(
    "line",
    [
        "",
        "INFO 11-20 21:44:52 [metrics.py:96] hello",
        f"{TIME} hello",
        f"{TIME} stdin F hello",
        '{"message": "hello", "name": "vllm"}',
        '{"log": "hello", "stream": "main"}',
        r'{"log": "half a surrogate pair: \ud800", "stream": "stdout"}',
        '{"log": "hello", "stream": "stdout"',
        '{"other":' * 5000,
        '{"log": "\udcff", "stream": "stdout"}',
    ],
)
def test_a_plain_line_is_not_framed(line: str) -> None:
    written = line.encode(errors="surrogateescape")
    assert unwrap(written, "cri") is None
    assert unwrap(written, "docker") is None
    assert detect_format(written) is None


@given(st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"])), st.booleans())
def test_what_a_runtime_writes_is_read_back(text: str, partial: bool) -> None:
    cri = f"{TIME} stdout {'P' if partial else 'F'} {text}".encode()
    docker = json.dumps({"log": text + ("" if partial else "\n"), "stream": "stdout", "time": TIME}).encode()
    piece = Piece(text.encode(), "stdout", partial=partial, timestamp=TIME)
    assert unwrap(cri, "cri") == piece
    assert unwrap(docker, "docker") == piece
