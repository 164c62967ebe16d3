"""A line that a pattern takes gives what the general parser gives; every other line is left to that parser."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import CAPTURES
from loglines import HEADER, SPEC, STATS, drafts, rendered
from specdec_exporter.predictor.log.events import EngineStats, Event, SpecDecoding
from specdec_exporter.predictor.log.logline import parse_line
from specdec_exporter.predictor.log.usualline import Writer, take_usual_lines

SPEC_LINE, STATS_LINE = (HEADER + SPEC).encode(), (HEADER + STATS).encode()
PROCESSES = ["", "(APIServer pid=16694) ", "\x1b[1;36m(ApiServer_0 pid=4)\x1b[0;0m ", "(EngineCore_DP0 pid=0) "]
SOURCES = ["metrics.py:120", "v1/metrics/loggers.py:9"]
UNUSUAL_HEADERS = [
    "(INFO pid=1) INFO 11-20 21:44:52 [metrics.py:1] ",
    "(api pid=1) INFO 11-20 21:44:52 [metrics.py:1] ",
    "[pod] INFO 11-20 21:44:52 [metrics.py:1] ",
    "WARNING 11-20 21:44:52 [metrics.py:1] ",
    "INFO 11-20 21:44:52 metrics.py:1] ",
    "INFO 11-20 21:44:52 [1m.py:1] ",
    "INFO 11-20 21:44:52 [logger.py:1] ",
    "INFO 11-20 21:44:52 [v1/request_logger.py:1] ",
    "INFO 11-20 21:44:52 [stats.rs:1] ",
    "",
]


def take(data: bytes, engines: dict[Writer, str] | None = None, *, wants_stats: bool = True) -> tuple[list[Event], int]:
    events: list[Event] = []
    position = take_usual_lines(data, 0, len(data), {} if engines is None else engines, events, wants_stats=wants_stats)
    return events, position


@st.composite
def statistics(draw: st.DrawFn) -> str:
    def number() -> str:
        return draw(st.from_regex(r"\A(0|[1-9][0-9]{0,4})\.[0-9]\Z"))

    hits = f", Prefix cache hit rate: {number()}%" if draw(st.booleans()) else ""
    return (
        f"Engine {draw(st.integers(0, 99)):03d}: Avg prompt throughput: {number()} tokens/s, "
        f"Avg generation throughput: {number()} tokens/s, Running: {draw(st.integers(0, 10**6))} reqs, "
        f"Waiting: 0 reqs, {draw(st.sampled_from(['GPU', 'CPU']))} KV cache usage: {number()}%{hits}"
    )


MESSAGES = st.one_of(
    drafts().filter(lambda counts: counts[2] > 0).map(lambda counts: rendered("0.10.2", *counts)), statistics()
)


HEADERS = st.builds(
    "{}{} 11-20 21:44:52 [{}] ".format,
    st.sampled_from(PROCESSES),
    st.sampled_from(["INFO", "DEBUG"]),
    st.sampled_from(SOURCES),
)


@given(HEADERS, MESSAGES, st.sampled_from(["", "\r"]), st.sampled_from([b"", b"\n", b"\nnext"]))
def test_a_usual_line_is_taken_and_says_what_the_general_parser_says(
    header: str, message: str, carriage_return: str, rest: bytes
) -> None:
    line = (header + message + carriage_return).encode()
    assert take(line + rest) == ([parse_line(line)], len(line + rest[:1]))


@given(
    st.sampled_from([HEADER] * 3 + UNUSUAL_HEADERS),
    MESSAGES,
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=3)), max_size=2),
)
@example(HEADER, SPEC.replace("0.800", "0.801"), [])  # the shares no longer add up to the length, but almost
@example(HEADER, SPEC.replace("2.80", "02.80"), [])
@example(HEADER, SPEC.replace("9 tokens", "09 tokens"), [])
@example(HEADER, SPEC.replace("9 tokens", "99 tokens"), [])
@example(HEADER, SPEC.replace("0.600,", "0.900,"), [])
@example(HEADER, SPEC.replace("60.0%", "60.1%"), [])
@example(HEADER, SPEC.replace(", Avg Draft", "Avg Draft"), [])
@example(HEADER, SPEC.replace("9 tokens", "0 tokens").replace("15 tokens", "0 tokens"), [])
@example(HEADER, STATS.replace("2.7", "999999999999999.9"), [])
def test_whatever_a_pattern_takes_is_what_the_general_parser_says(
    header: str, message: str, damages: list[tuple[int, int, bytes]]
) -> None:
    line = (header + message).encode()
    for place, eaten, noise in damages:
        line = line[:place] + noise.replace(b"\n", b" ") + line[place + eaten :]
    events, position = take(line)
    assert (events, position) in (([parse_line(line)], len(line)), ([], 0))


@pytest.mark.parametrize("header", UNUSUAL_HEADERS)
@pytest.mark.parametrize("message", [SPEC, STATS])
def test_a_line_with_another_header_is_left_alone(header: str, message: str) -> None:
    assert take((header + message).encode()) == ([], 0)


@pytest.mark.parametrize("line", [SPEC_LINE, STATS_LINE])
def test_a_line_that_breaks_off_is_left_alone(line: bytes) -> None:
    whole_without_hits = line.partition(b", Prefix")[0]
    assert [line[:end] for end in range(len(line)) if take(line[:end])[0]] in ([], [whole_without_hits])


def test_drafts_get_the_engine_that_their_writer_printed_last() -> None:
    engines: dict[Writer, str] = {("APIServer", 9): "002"}
    pair = STATS_LINE + b"\n" + SPEC_LINE + b"\n"
    events, position = take(pair + SPEC_LINE, engines, wants_stats=False)
    assert ([event.engine for event in events], position) == (["000"], len(pair))
    assert [event.engine for event in take(SPEC_LINE, engines)[0]] == [None]
    assert engines == {("APIServer", 9): "002"}


@pytest.mark.parametrize("name", ["0.10.2-driven", "0.20.2-driven-2engines", "0.25.1-ngram-k5", "0.32.0-ngram-k5"])
def test_lines_of_real_runs_are_taken(name: str) -> None:
    lines = (CAPTURES / name / "server.log").read_bytes().splitlines()
    said = [event for line in lines if isinstance(event := parse_line(line), SpecDecoding | EngineStats)]
    drafting = [event for event in said if isinstance(event, EngineStats) or event.draft_tokens]
    assert [event for line in lines for event in take(line)[0]] == drafting
    assert re.search("SpecDecoding.*EngineStats", repr(said))
