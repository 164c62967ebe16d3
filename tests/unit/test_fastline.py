"""The compiled lane takes what it takes exactly as the general way reads it, and leaves the rest alone."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import CAPTURES
from loglines import HEADER, SPEC, STATS, drafts, rendered
from specdec_exporter.predictor.log import _fastline as compiled
from specdec_exporter.predictor.log import fastline
from specdec_exporter.predictor.log.events import EngineStats, Event, Malformed, SpecDecoding
from specdec_exporter.predictor.log.logline import parse_line
from specdec_exporter.predictor.log.scan import Writer

SPEC_LINE, STATS_LINE = (HEADER + SPEC).encode(), (HEADER + STATS).encode()
APISERVER = ("APIServer", 7)


def take(data: bytes, engines: dict[Writer, str] | None = None, *, wants_stats: bool = True) -> tuple[list[Event], int]:
    events: list[Event] = []
    found = {} if engines is None else engines
    return events, compiled.take_lines(data, 0, len(data), len(data), found, events, wants_stats)


def test_the_exporter_uses_it() -> None:
    assert fastline.take_lines is compiled.take_lines


# --- the two lines ---


@given(
    drafts(),
    st.sampled_from(["", "(APIServer pid=16694) ", "\x1b[1;36m(APIServer pid=4)\x1b[0;0m ", "[pod] ", "(api pid=1) "]),
    st.sampled_from(["INFO", "DEBUG", "WARNING"]),
    st.sampled_from(["metrics.py", "v1/metrics.py", "request_logger.py", "logger.py", "v1/logger.py", "stats.rs"]),
    st.sampled_from(["", "\r", "\r\r", " "]),
)
def test_a_spec_decode_line_is_read_as_the_general_way_reads_it(
    counts: tuple[int, list[int], int], prefix: str, level: str, source: str, ending: str
) -> None:
    message = rendered("0.10.2", *counts)
    line = f"{prefix}{level} 11-20 21:44:52 [{source}:120] {message}{ending}".encode()
    usual = (
        "[pod]" not in prefix
        and "api " not in prefix
        and level != "WARNING"
        and source.endswith("metrics.py")
        and ending in ("", "\r")
    )
    events, position = take(line + b"\nnext")
    if events:
        assert usual
        assert (events, position) == ([parse_line(line)], len(line) + 1)
    else:
        assert position == 0
        assert not usual or not counts[2] or rounding_decides(message)


def rounding_decides(message: str) -> bool:
    """Whether the figures are as far apart as rounding to the printed digits can make them."""
    length, _, _, accepted, drafted, *shares, rate = map(Fraction, re.findall(r"\d+(?:\.\d+)?", message))
    length_apart = abs(length - 1 - sum(shares))
    rate_apart = abs(rate - 100 * accepted / drafted)
    return length_apart >= Fraction(5 + len(shares) / 2) / 1000 or rate_apart >= Fraction(1, 20)


@given(
    st.lists(st.decimals(0, 100, places=1), min_size=4, max_size=4),
    st.integers(0, 10**6),
    st.sampled_from(["GPU", "CPU", "XPU", "KV fetch: 3 waiting, 2 running, GPU"]),
    st.booleans(),
)
def test_engine_statistics_are_read_as_the_general_way_reads_them(
    figures: list[Decimal], running: int, device: str, with_hits: bool
) -> None:
    prompt, generation, usage, hits = figures
    line = (
        f"{HEADER}Engine {running % 1000:03d}: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: "
        f"{generation} tokens/s, Running: {running} reqs, Waiting: 0 reqs, {device} KV cache usage: {usage}%"
        + (f", Prefix cache hit rate: {hits}%" if with_hits else "")
    ).encode()
    events, position = take(line)
    assert bool(events) == (device in ("GPU", "CPU"))
    if events:
        assert (events, position) == ([parse_line(line)], len(line))
    else:
        assert isinstance(parse_line(line), EngineStats)


@given(st.sampled_from([SPEC_LINE, STATS_LINE]), st.integers(0, 400), st.integers(0, 3), st.binary(max_size=3))
@example(SPEC_LINE, SPEC_LINE.index(b"0.800"), 5, b"0.801")  # the shares no longer add up to the length, but almost
@example(SPEC_LINE, SPEC_LINE.index(b"2.80"), 1, b"02")
@example(SPEC_LINE, SPEC_LINE.index(b"15 tokens, P"), 2, b"0")
@example(SPEC_LINE, SPEC_LINE.index(b"0.600,"), 5, b"0.900")
@example(SPEC_LINE, SPEC_LINE.index(b"9 tokens,"), 1, b"99")
@example(STATS_LINE, STATS_LINE.index(b"2.7"), 3, b"999999999999999.9")
def test_a_damaged_line_is_left_alone_or_read_as_the_general_way_reads_it(
    line: bytes, place: int, eaten: int, noise: bytes
) -> None:
    damaged = line[:place] + noise.replace(b"\n", b" ") + line[place + eaten :]
    events, position = take(damaged)
    if events:
        (event,) = events
        assert (event, position) == (parse_line(damaged), len(damaged))


def test_every_prefix_of_a_line_is_left_alone() -> None:
    for line in (SPEC_LINE, STATS_LINE):
        for length in range(len(line)):
            said = parse_line(line[:length])
            assert take(line[:length])[0] == ([said] if said and not isinstance(said, Malformed) else [])


def test_more_positions_than_any_line_has_are_left_alone() -> None:
    shares = ", ".join(["0.000"] * 570)
    line = (HEADER + SPEC).replace("0.800, 0.600, 0.400", shares).replace("length: 2.80", "length: 1.00").encode()
    assert take(line.replace(b"0.000, " * 100, b""))[0] == [parse_line(line.replace(b"0.000, " * 100, b""))]
    assert take(line) == ([], 0)


# --- runs of lines ---


def test_drafts_get_the_engine_that_their_writer_printed_last() -> None:
    other = STATS_LINE.replace(b"pid=7", b"pid=8").replace(b"Engine 000", b"Engine 001")
    engines: dict[Writer, str] = {("APIServer", 9): "002"}
    log = b"\n".join([STATS_LINE, other, SPEC_LINE, SPEC_LINE.replace(b"pid=7", b"pid=8"), SPEC_LINE, b""])
    events, position = take(log, engines, wants_stats=False)
    assert [event.engine for event in events] == ["000", "001", None]
    assert position == len(log)
    assert engines == {("APIServer", 9): "002"}


def test_what_is_not_usual_stops_it_at_the_lines_beginning() -> None:
    for strange in (b"x Decoding", b"Drafted: ", b"Running: x", SPEC_LINE[:-1], b"D Running: " + b"x" * 5000):
        log = STATS_LINE + b"\n\nDRAFT\n" + strange + b"\n" + SPEC_LINE + b"\n"
        engines: dict[Writer, str] = {}
        assert take(log, engines) == ([parse_line(STATS_LINE)], log.index(b"\n" + strange) + 1)
        assert engines == {APISERVER: "000"}


def test_what_is_announced_at_the_limit_is_left_for_later() -> None:
    log = STATS_LINE + b"\n" + SPEC_LINE + b"\n"
    events: list[Event] = []
    announced = log.index(b"Decoding")
    assert compiled.take_lines(log, 0, announced, len(log), {}, events, True) == len(STATS_LINE) + 1
    assert compiled.take_lines(log, len(STATS_LINE) + 1, announced + 1, len(log), {}, events, True) == len(log)
    assert [type(event) for event in events] == [EngineStats, SpecDecoding]


def test_nothing_is_read_beyond_the_end() -> None:
    log = SPEC_LINE + b"\n"
    for end in range(len(SPEC_LINE)):
        assert take(log[:end]) == ([], 0) or log[:end].endswith(b"%")
        events: list[Event] = []
        assert compiled.take_lines(log, 0, end, end, {}, events, True) == 0
        assert events == []


@pytest.mark.parametrize("name", ["0.10.2-driven", "0.20.2-driven-2engines", "0.25.1-ngram-k5", "0.32.0-ngram-k5"])
def test_lines_of_real_runs_are_taken(name: str) -> None:
    lines = (CAPTURES / name / "server.log").read_bytes().splitlines()
    said = [event for line in lines if isinstance(event := parse_line(line), SpecDecoding | EngineStats)]
    drafting = [event for event in said if isinstance(event, EngineStats) or event.draft_tokens]
    assert [event for line in lines for event in take(line)[0]] == drafting
    assert any(isinstance(event, SpecDecoding) for event in drafting)


# --- words and counts ---


@given(
    st.binary(max_size=60).map(lambda noise: noise + b"Running" + noise + b"Rain"),
    st.sampled_from([(b"R",), (b"nn",), (b"Running",), (b"Rain", b"Running"), (b"unn", b"ain")]),
)
def test_words_are_found_where_python_finds_them(uncompiled: ModuleType, data: bytes, words: tuple[bytes, ...]) -> None:
    for common in range(min(map(len, words))):
        if len({word[common] for word in words}) > 1:
            continue
        for start in range(0, len(data), 7):
            for end in range(start, len(data) + 1, 5):
                places = [data.find(word, start, end) for word in words]
                first = min((place for place in places if place >= 0), default=end)
                assert compiled.find_words(data, words, common, start, end) == first
                assert uncompiled.find_words(data, words, common, start, end) == first


@given(st.lists(st.sampled_from([b"\n", b"a", b"\xff"]), max_size=300).map(b"".join), st.integers(0, 300))
def test_newlines_are_counted(uncompiled: ModuleType, data: bytes, end: int) -> None:
    assert compiled.count_lines(data, end) == uncompiled.count_lines(data, end) == data[:end].count(b"\n")


def test_places_outside_the_buffer_are_refused() -> None:
    for position, limit, end in [(-1, 1, 1), (1, 0, 1), (0, 2, 1), (0, 1, 9)]:
        with pytest.raises(ValueError, match="position <= limit"):
            compiled.take_lines(b"12345678", position, limit, end, {}, [], True)
    for start, end in [(-1, 1), (2, 1), (0, 9)]:
        with pytest.raises(ValueError, match="start <= end"):
            compiled.find_words(b"12345678", (b"1",), 0, start, end)


def test_words_without_a_common_byte_are_refused() -> None:
    for words, common in [
        ((), 0),
        ((b"a",), 1),
        ((b"a",), -1),
        ((b"ab", b"cb"), 0),
        ((b"a",) * 5, 0),
        ((b"a", b""), 0),
    ]:
        with pytest.raises(ValueError, match="in common"):
            compiled.find_words(b"12345678", words, common, 0, 8)
