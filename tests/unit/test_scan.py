"""Bytes of a log stream -> events: whatever the chunks, the container's framing, the faults and the writers."""

from __future__ import annotations

import dataclasses
import json
import time
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter.bounds import LINE_BYTES
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import (
    EngineConfig,
    EngineStats,
    Event,
    Malformed,
    PredictorWarning,
    RequestParams,
    SpecDecoding,
)
from specdec_exporter.predictor.log.scan import LogFormat, LogScanner, LogTrust
from support.builders import CAPTURES
from support.loglines import ARGUMENTS, ARGUMENTS_HEADER, HEADER, SPEC_V0, parse_line, without_place

ACCESS = b'INFO:     10.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK'
UNKNOWN_WARNING = b"WARNING 11-20 21:44:52 [vllm.py:5] Enforce eager set"


def stats(engine: int = 0, writer: str = "APIServer pid=7") -> bytes:
    return (
        f"({writer}) INFO 11-20 21:44:52 [loggers.py:335] Engine {engine:03d}: Avg prompt throughput: 2.7 tokens/s, "
        "Avg generation throughput: 4.7 tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 25.0%"
    ).encode()


def drafts(accepted: int = 9, writer: str = "APIServer pid=7") -> bytes:
    return (
        f"({writer}) INFO 11-20 21:44:52 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: "
        f"{1 + accepted / 10:.2f}, Accepted throughput: 0.90 tokens/s, Drafted throughput: 2.00 tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: 20 tokens, Per-position acceptance rate: {accepted / 10:.3f}, 0.000, "
        f"Avg Draft acceptance rate: {5 * accepted:.1f}%"
    ).encode()


# Cut within its list, this line is whole: its other positions are 0.
OLD_DRAFTS = (
    b"INFO 11-20 22:04:52 [metrics.py:87] SpecDecoding metrics: Draft acceptance rate: 25.0%, "
    b"Mean acceptance length: 1.50, Accepted: 3 tokens, Drafted: 12 tokens, "
    b"Per-position acceptance rate: 0.500, 0.000, 0.000"
)
V0_DRAFTS = (HEADER + SPEC_V0).encode()


@dataclasses.dataclass
class Read:
    events: list[Event]
    counters: ReaderCounters

    @property
    def accepted(self) -> list[int]:
        return [event.accepted_tokens for event in self.events if isinstance(event, SpecDecoding)]

    @property
    def engines(self) -> list[str | None]:
        return [event.engine for event in self.events if isinstance(event, SpecDecoding)]


def read(
    *chunks: bytes,
    tail: bytes = b"",
    log_format: LogFormat = "auto",
    trust: LogTrust = "server",
    kinds: frozenset[type] | None = None,
    joins: bool = False,
) -> Read:
    counters = ReaderCounters()
    scanner = LogScanner(counters, log_format=log_format, trust=trust, kinds=kinds, joins=joins)
    events: list[Event] = []
    for chunk in chunks:
        buffer = bytearray(chunk) + b"not yet read\n"
        events += scanner.scan(buffer, len(chunk))
        buffer.clear()  # the scanner must have let go of it
    return Read(events + scanner.finish(tail), counters)


def lines(*texts: bytes) -> bytes:
    return b"".join(text + b"\n" for text in texts)


# --- finding ---


def test_real_logs_give_what_reading_line_by_line_gives() -> None:
    for log in CAPTURES.glob("*/server.log"):
        data = log.read_bytes()
        data = data if data.endswith(b"\n") else data + b"\n"
        expected = [
            said for line in data.split(b"\n") if (said := parse_line(line)) and not isinstance(said, Malformed)
        ]
        found = read(data)
        assert [without_engine(event) for event in found.events] == [without_engine(event) for event in expected], log
        assert found.counters.parse_errors == 0
        assert found.counters.matched_lines == len(expected)
        assert found.counters.lines == data.count(b"\n")


def without_engine(event: Event) -> Event:
    alone = {"engine": None, "requests_running": None}  # these come from the line before
    return msgspec.structs.replace(event, **alone) if isinstance(event, SpecDecoding) else event


@pytest.mark.parametrize("name", ["0.25.1-draft_model-k3", "0.25.1-ngram-k5", "0.32.0-draft_model-jsonlog"])
def test_the_lines_of_a_real_run_sum_to_what_the_run_did(name: str) -> None:
    phases = json.loads((CAPTURES / name / "truth.json").read_text())["phases"]
    truths = [phase["observed"] if "observed" in phase else phase["expected"] for phase in phases]
    found = [e for e in read((CAPTURES / name / "server.log").read_bytes()).events if isinstance(e, SpecDecoding)]
    assert sum(event.accepted_tokens for event in found) == sum(truth["num_accepted"] for truth in truths)
    assert sum(event.draft_tokens for event in found) == sum(truth["num_draft_tokens"] for truth in truths)


WARNING = (
    b"(Worker pid=9) WARNING 11-20 21:44:52 [__init__.py:211] "
    b"min_p and logit_bias parameters won't work with speculative decoding."
)


def test_kinds_limit_what_is_given() -> None:
    log = lines(stats(), drafts(), V0_DRAFTS, WARNING)
    assert [type(event) for event in read(log).events] == [EngineStats, SpecDecoding, SpecDecoding, PredictorWarning]
    only = read(log, kinds=frozenset({SpecDecoding}))
    assert only.accepted == [9, 9]
    assert only.engines == ["000", None]
    assert read(log, kinds=frozenset({EngineConfig, RequestParams})).events == []
    assert only.counters.matched_lines == 2


def test_a_request_is_read_only_where_it_is_wanted() -> None:
    request = (
        b"INFO 11-20 22:49:07 [logger.py:43] Received request x: prompt: 'speculative', params: SamplingParams(n=1"
    )
    assert [type(event) for event in read(lines(request + b"), x")).events] == [RequestParams]
    unwanted = read(lines(request), kinds=frozenset({SpecDecoding, PredictorWarning}))
    assert (unwanted.events, unwanted.counters.parse_errors) == ([], 0)


# --- pairing ---


def test_drafts_belong_to_the_engine_whose_statistics_stand_before_them() -> None:
    log = lines(stats(0), drafts(1), stats(1), ACCESS, drafts(2), stats(0), stats(1), drafts(3), drafts(4))
    assert list(zip(read(log).accepted, read(log).engines, strict=True)) == [
        (1, "000"),
        (2, "001"),
        (3, "001"),
        (4, None),
    ]


def test_drafts_have_the_load_of_their_engine_but_not_that_of_a_sum_over_engines() -> None:
    summed = stats().replace(b"Engine 000", b"2 Engines Aggregated")
    busy, idle = stats(1).replace(b"Running: 2", b"Running: 17"), stats().replace(b"Running: 2", b"Running: 0")
    log = lines(stats(0), drafts(1), busy, drafts(2), idle, drafts(3), summed, drafts(4), drafts(5))
    loads = [event.requests_running for event in read(log).events if isinstance(event, SpecDecoding)]
    assert loads == [2, 17, 0, None, None]


def test_writers_of_one_file_do_not_mix_their_engines() -> None:
    one, two = "ApiServer_0 pid=1", "ApiServer_1 pid=2"
    log = lines(stats(0, one), stats(1, two), drafts(1, one), drafts(2, two), drafts(3, "ApiServer_0 pid=3"))
    assert read(log).engines == ["000", "001", None]


def test_an_unreadable_statistics_line_leaves_the_next_drafts_without_engine() -> None:
    broken = stats(1).replace(b"Running: 2", b"Running: two")
    assert read(lines(stats(0), broken, drafts())).engines == [None]


FETCHING = stats(1).replace(b", GPU", b", KV fetch: 3 waiting, 2 running, GPU")


# --- lines that break off ---


def places(line: bytes) -> range:
    """Columns behind the first words, which say whose line it is."""
    return range(line.index(b"] ") + len(b"] SpecDecoding metrics: "), len(line))


@pytest.mark.parametrize("line", [drafts(), stats(), V0_DRAFTS, (ARGUMENTS_HEADER + ARGUMENTS).encode()])
def test_a_line_wrapped_at_any_column_behind_its_first_words_counts_once_where_lines_are_joined(line: bytes) -> None:
    (whole,) = read(lines(line)).events
    words = b"] SpecDecoding metrics:" if line == drafts() else b"Running: " if line == stats() else b"args: {"
    for column in range(max(line.find(words) + len(words), 75), len(line)):
        for eaten in {b"", b" "} if line[column : column + 1] == b" " else {b""}:
            log = lines(ACCESS, line[:column], line[column + len(eaten) :], ACCESS)
            found = read(log, joins=True)
            if isinstance(whole, EngineStats) and line[:column].endswith(b"GPU KV cache usage: 25.0%"):
                continue  # complete without its last figure
            assert (found.events, found.counters.parse_errors) == ([whole], 0), line[:column]
            assert read(log).counters.parse_errors + len(read(log).events) == 1


@given(st.lists(st.integers(80, 300), min_size=1, max_size=3, unique=True))
def test_a_line_is_joined_with_at_most_three_lines_after_it(columns: list[int]) -> None:
    line = drafts()
    cuts = [0, *sorted(min(column, len(line)) for column in columns), len(line)]
    found = read(lines(*[line[start:stop] for start, stop in pairwise(cuts)], ACCESS), joins=True)
    assert [without_place(event) for event in found.events] == [without_place(parse_line(line))]
    long = [line[:100], line[100:120], line[120:140], line[140:160], line[160:], drafts(3)]
    found = read(lines(*long), joins=True)
    assert (found.accepted, found.counters.parse_errors) == ([3], 1)


def test_a_broken_line_before_long_lines_costs_no_more_than_a_few_readings_of_each() -> None:
    """Joined in all ways, six lines of 240 KiB took 25 s."""
    log = lines((ARGUMENTS_HEADER + ARGUMENTS[:-60]).encode(), *[b"a," * 20_000] * 6)
    started = time.process_time()
    assert read(log, joins=True).counters.parse_errors == 1
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("line", [drafts(), V0_DRAFTS, stats()])
def test_a_line_whose_end_is_lost_is_one_error_and_costs_no_other_line(line: bytes) -> None:
    # What breaks off before the words that lines are found by is not known to be ours.
    first = line.index(b"Running: ") + len(b"Running: ") if line == stats() else places(line).start
    for column in range(first, len(line) - len(b", GPU KV cache usage: 25.0%")):
        found = read(lines(line[:column], drafts(3), ACCESS, drafts(4)))
        assert found.accepted == [3, 4], line[:column]
        assert found.counters.parse_errors == 1, line[:column]


def test_a_line_that_another_writer_cuts_is_an_error() -> None:
    line = drafts()
    for column in places(line):
        torn = lines(
            line[:column] + b"(EngineCore pid=2) INFO 11-20 21:37:16 [core.py:1] ready", line[column:], drafts(3)
        )
        found = read(torn)
        assert found.accepted == [3], line[:column]
        assert found.counters.parse_errors == 1, line[:column]


def test_an_unterminated_last_line_counts_if_it_is_whole() -> None:
    assert read(lines(stats(5)), tail=drafts()).engines == ["005"]
    cut = read(lines(ACCESS), tail=drafts()[:-3])
    assert (cut.accepted, cut.counters.parse_errors, cut.counters.lines) == ([], 1, 2)
    assert read(lines(drafts()[:200]), tail=drafts()[200:], joins=True).accepted == [9]


def test_a_scanner_is_fresh_after_the_end_and_after_a_reset() -> None:
    counters = ReaderCounters()
    scanner = LogScanner(counters, joins=True)
    rest = lines(drafts()[200:], drafts(3))
    for forget in (scanner.finish, scanner.reset):
        scanner.scan(bytearray(lines(stats(), drafts()[:200])), len(lines(stats(), drafts()[:200])))
        forget()
        (event,) = scanner.scan(bytearray(rest), len(rest))
        assert isinstance(event, SpecDecoding)
        assert (event.accepted_tokens, event.engine) == (3, None)
    assert counters.parse_errors == 1  # a reset is no error


# --- containers ---


def cri(*pieces: tuple[str, str, bytes]) -> bytes:
    return b"".join(f"2026-11-20T21:44:52.1Z {stream} {tag} ".encode() + text + b"\n" for stream, tag, text in pieces)


def docker(*pieces: tuple[str, str]) -> bytes:
    return b"".join(
        json.dumps({"log": text, "stream": stream, "time": "2026-11-20T21:44:52.1Z"}, separators=(",", ":")).encode()
        + b"\n"
        for stream, text in pieces
    )


@pytest.mark.parametrize("log_format", ["auto", "cri"])
def test_pieces_of_a_cri_line_are_joined_by_stream(log_format: LogFormat) -> None:
    line = drafts()
    found = read(
        cri(
            ("stdout", "F", stats(2)),
            ("stdout", "P", line[:100]),
            ("stderr", "P", drafts(3)[:50]),
            ("stdout", "P:x", line[100:200]),
            ("stderr", "F", drafts(3)[50:]),
            ("stdout", "F", line[200:]),
            ("stderr", "F", ACCESS),
            ("stdout", "F", drafts(4)),
        ),
        log_format=log_format,
    )
    assert found.accepted == [3, 9, 4]
    assert found.counters.parse_errors == 0


@pytest.mark.parametrize("log_format", ["auto", "docker"])
def test_pieces_of_a_docker_line_are_joined_by_stream(log_format: LogFormat) -> None:
    line = drafts().decode()
    found = read(
        docker(("stdout", "\x1b[36m" + stats(2).decode() + "\r\n"), ("stdout", line[:100]), ("stderr", "x\n")),
        docker(("stdout", line[100:] + "\n"), ("stdout", drafts(4).decode() + "\n")),
        log_format=log_format,
    )
    assert list(zip(found.accepted, found.engines, strict=True)) == [(9, "002"), (4, None)]
    assert found.counters.parse_errors == 0


def test_a_bare_message_takes_the_containers_time() -> None:
    bare = drafts().partition(b"] ")[2]
    for log in (cri(("stdout", "F", bare)), docker(("stdout", bare.decode() + "\n"))):
        assert [event.timestamp for event in read(log, trust="any").events] == ["2026-11-20T21:44:52.1Z"]
    assert [event.timestamp for event in read(cri(("stdout", "F", drafts()))).events] == ["11-20 21:44:52"]


def test_a_partial_line_at_the_end_counts_only_if_it_is_whole() -> None:
    assert read(cri(("stdout", "P", drafts()))).accepted == [9]
    cut = read(cri(("stdout", "P", drafts()[:150])))
    assert (cut.accepted, cut.counters.parse_errors) == ([], 1)


def test_a_line_of_too_many_pieces_is_dropped_and_counted() -> None:
    piece = drafts() + b"x" * 16000
    pieces = [("stdout", "P", piece)] * (LINE_BYTES // len(piece) + 3)
    found = read(cri(*pieces, ("stdout", "F", b"end"), ("stdout", "F", drafts(3))))
    assert (found.accepted, found.counters.oversized_lines, found.counters.parse_errors) == ([3], 1, 0)


# --- properties ---

CONFIG = next(
    line
    for line in (CAPTURES / "0.32.0-ngram-k5" / "server.log").read_bytes().split(b"\n")
    if b"Initializing a V1 LLM engine" in line
)
FRAGMENTS = [
    ACCESS,
    UNKNOWN_WARNING,
    CONFIG,
    stats(0),
    stats(1, "ApiServer_1 pid=2"),
    drafts(1),
    drafts(2, "ApiServer_1 pid=2"),
    drafts(3)[:150],
    drafts(3)[150:],
    drafts(4)[:40],
    drafts(4)[40:],
    b"[2026-11-20 21:44:52,123] [INFO] [vllm.v1.metrics.loggers] " + stats(2).partition(b"] ")[2],
    b"\0\0" + drafts(6),
    OLD_DRAFTS,
    V0_DRAFTS,
    FETCHING,
    V0_DRAFTS[:90],
    b"",
    b"\xff\xfe",
    b"Decoding",
    b"speculative",
]


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """A log in any format, and line ends at which it is handed over in chunks."""
    texts = draw(st.lists(st.sampled_from(FRAGMENTS), max_size=25))
    kind = draw(st.sampled_from(["plain", "cri", "docker"]))
    if kind == "plain":
        data = lines(*texts)
    elif kind == "cri":
        data = cri(
            *[(draw(st.sampled_from(["stdout", "stderr"])), draw(st.sampled_from("FFFP")), text) for text in texts]
        )
    else:
        data = docker(*[("stdout", text.decode("latin-1") + draw(st.sampled_from(["\n", ""]))) for text in texts])
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    return data, draw(st.lists(st.sampled_from(ends), max_size=6)) if ends else []


@given(logs())
@settings(max_examples=80)
def test_the_chunks_do_not_matter(log: tuple[bytes, list[int]]) -> None:
    data, cuts = log
    whole = read(data)
    bounds = sorted({0, *cuts, len(data)})
    parts = read(*[data[start:stop] for start, stop in pairwise(bounds)])
    assert parts.events == whole.events
    for name in ("lines", "matched_lines", "parse_errors", "oversized_lines"):
        assert getattr(parts.counters, name) == getattr(whole.counters, name)


@given(logs())
@settings(max_examples=80)
def test_drafts_find_their_engine_whether_statistics_are_wanted_or_not(log: tuple[bytes, list[int]]) -> None:
    data, cuts = log
    bounds = sorted({0, *cuts, len(data)})
    chunks = [data[start:stop] for start, stop in pairwise(bounds)]
    with_statistics = [event for event in read(*chunks).events if isinstance(event, SpecDecoding)]
    assert read(*chunks, kinds=frozenset({SpecDecoding})).events == with_statistics
