"""The last part of a log: the same as what a person cuts by hand, in every shape of time that logs have."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loglines import ARGUMENTS, CONFIG, SPEC, SPEC_V0, STATS
from specdec_exporter.commands.analyze import analyze
from specdec_exporter.commands.cli import cli
from specdec_exporter.errors import SpecdecError
from specdec_exporter.inspection.logstory import Analysis, LogStory
from specdec_exporter.predictor.log.clock import LineClock
from specdec_exporter.predictor.log.events import EngineConfig, SpecDecoding
from specdec_exporter.predictor.log.recent import RecentEvents
from specdec_exporter.predictor.sources.inputs import REPORT_KINDS, LogInputs

SHAPES = {
    "vLLM's own": "%m-%d %H:%M:%S",
    "Python's": "%Y-%m-%d %H:%M:%S,%f",
    "RFC 3339": "%Y-%m-%dT%H:%M:%S.%f123Z",
    "with an offset": "%Y-%m-%d %H:%M:%S+00:00",
    "seconds": "%s",
    "milliseconds": "%s%f",
}
USUAL = ARGUMENTS.replace("'synthetic'", "'strict'")
# Fewer tokens of SPEC are accepted: a collapse.
BAD = SPEC.replace("length: 2.80", "length: 1.20").replace("Accepted: 9", "Accepted: 1").replace("60.0%", "6.7%")
BAD = BAD.replace("0.800, 0.600, 0.400", "0.200, 0.000, 0.000")
OTHER = CONFIG.replace("num_spec_tokens=3", "num_spec_tokens=5")
MESSAGES = {
    "good": (STATS, SPEC),
    "bad": (STATS, BAD),
    "no drafts": (STATS,),
    "start": (USUAL, CONFIG),
    "another start": (USUAL, OTHER),
}
NOISE = 'INFO:     10.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK'


def line(message: str, at: datetime) -> str:
    file = {"n": "api_utils.py:286", "I": "core.py:114"}.get(message[0], "metrics.py:120")
    return f"(APIServer pid=7) INFO {at:%m-%d %H:%M:%S} [{file}] {message}\n"


def logged(*kinds: str, begin: datetime = datetime(2026, 11, 20, 12, tzinfo=UTC), every: float = 10.0) -> str:
    """The lines of these kinds, one after the other."""
    times = (begin + timedelta(seconds=every * number) for number in range(len(kinds)))
    return "".join(line(text, at) for kind, at in zip(kinds, times, strict=True) for text in MESSAGES[kind])


class Run:
    """What ``analyze`` says about a log on stdin."""

    def __init__(self, log: str, last: float | None = None, output: Any = "text") -> None:
        raw, stderr = io.BytesIO(), io.StringIO()
        stdout = io.TextIOWrapper(raw, encoding="utf-8")
        stdin = io.BytesIO(log.encode())
        self.code = analyze(("-",), output=output, last_seconds=last, stdin=stdin, stdout=stdout, stderr=stderr)
        self.text, self.stderr = raw.getvalue().decode(), stderr.getvalue()
        self.flat = " ".join(self.text.split())


# --- times ---


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=30)
@given(
    begin=st.integers(1_546_300_800, 2_000_000_000).map(lambda second: datetime.fromtimestamp(second, UTC)),
    steps=st.lists(st.timedeltas(timedelta(0), timedelta(hours=12)), max_size=100),
)
def test_differences_of_times_are_right_over_new_year_and_leap_days(
    shape: str, begin: datetime, steps: list[timedelta]
) -> None:
    clock = LineClock()
    moment = begin
    first = clock.seconds(_printed(moment, shape))
    assert first is not None
    for step in steps:
        moment += timedelta(seconds=step.days * 86400 + step.seconds)
        now = clock.seconds(_printed(moment, shape))
        assert now is not None
        assert now - first == pytest.approx((moment - begin).total_seconds(), abs=1e-3)


def _printed(moment: datetime, shape: str) -> str:
    if SHAPES[shape].startswith("%s"):
        return f"{moment.timestamp():.0f}{'000' if shape == 'milliseconds' else ''}"
    return moment.strftime(SHAPES[shape])


def test_a_late_line_of_the_old_year_is_a_little_old() -> None:
    clock = LineClock()
    times = [clock.seconds(text) for text in ("01-01 00:00:01", "12-31 23:59:59", "01-01 00:00:02")]
    assert all(time is not None for time in times)
    assert [time - times[0] for time in times if time is not None and times[0] is not None] == [0.0, -2.0, 1.0]


@pytest.mark.parametrize("printed", [None, "", "yesterday", "13-01 00:00:00", "11/20/2026 21:44:52 PM", "12"])
def test_a_time_that_cannot_be_read_is_none(printed: str | None) -> None:
    assert LineClock().seconds(printed) is None


# --- the last part ---


@settings(max_examples=40)
@given(
    parts=st.lists(
        st.tuples(st.integers(0, 900), st.sampled_from(sorted(MESSAGES)), st.booleans()), min_size=1, max_size=30
    ),
    last=st.integers(1, 7200),
)
def test_the_last_part_is_what_a_person_cuts(parts: list[tuple[int, str, bool]], last: int) -> None:
    at = datetime(2026, 12, 31, 20, tzinfo=UTC)
    rows: list[tuple[datetime, str, str]] = []
    for seconds, kind, noise in parts:
        at += timedelta(seconds=seconds)
        rows += [(at, kind, line(text, at)) for text in MESSAGES[kind]]
        rows += [(at, "noise", f"{NOISE}\n")] if noise else []
    begin = at - timedelta(seconds=last)
    starts = [text for when, kind, text in rows if when < begin and "start" in kind]
    by_hand = "".join([*starts[-2:], *(text for when, _, text in rows if when >= begin)])
    log = "".join(text for *_, text in rows)

    assert Run(log, last, "jsonl").text == Run(by_hand, None, "jsonl").text
    assert _judged(_analysis(log, last)) == _judged(_analysis(by_hand, None))


def _analysis(log: str, last: float | None) -> Analysis:
    story = LogStory()
    events = LogInputs(("-",), stdin=io.BytesIO(log.encode())).events(REPORT_KINDS)
    if last is None:
        story.add(events)
    else:
        recent = RecentEvents(last)
        recent.add(events)
        part = recent.last_part()
        assert part.complete
        story.add_start(part.start)
        story.add(part.events)
    return story.analysis()


def _judged(analysis: Analysis) -> Analysis:
    """Without what only a start in the log shows: when the log begins, and the number of starts."""
    bare = [msgspec.structs.replace(account, starts=0) for account in analysis.accounts]
    judged = msgspec.structs.replace(analysis.judged, starts=0) if analysis.judged else None
    return msgspec.structs.replace(analysis, first_timestamp=None, accounts=tuple(bare), judged=judged)


def test_a_collapse_is_seen_after_hours_of_health_and_the_start_is_known() -> None:
    log = logged("start", *["good"] * 3240, *["bad"] * 180)

    whole, last = Run(log), Run(log, 1800)

    assert "Verdict: broken" not in whole.text
    assert "Verdict: broken" in last.text
    assert "the last 1,800 s of" in last.flat
    assert "11-20 21:00:00 to 11-20 21:30:00" in last.flat
    assert "method draft_model, draft model /models/draft, k = 3" in last.flat


def test_totals_since_the_start_of_an_old_engine_are_counted_from_the_last_part_on() -> None:
    lines = [CONFIG.replace("a V1", "an")]
    for number in range(1, 101):
        counts = f"accepted tokens: {9 * number}, Number of draft tokens: {15 * number}"
        lines.append(SPEC_V0.replace("accepted tokens: 9, Number of draft tokens: 15", counts))
    at = datetime(2026, 11, 20, 12, tzinfo=UTC)
    log = "".join(line(text, at + timedelta(seconds=10 * number)) for number, text in enumerate(lines))

    judged = _analysis(log, 100).judged

    assert judged is not None
    assert judged.figures is not None
    assert judged.figures.draft_tokens == 150


@pytest.mark.parametrize("back", [timedelta(hours=1), timedelta(minutes=2), timedelta(days=17_000)])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_last_part_is_right_when_the_clock_was_set_back(shape: str, back: timedelta) -> None:
    """Such as the end of summer time, just after New Year, or a machine that begins in 1980."""
    if shape == "vLLM's own" and back.days:
        back = timedelta(days=100)  # without a year, more than half a year back is forward
    recent = RecentEvents(600)
    moment = datetime(2027, 1, 1, 0, 30, tzinfo=UTC)
    for number in range(120):
        moment += timedelta(seconds=10) - (back if number == 90 else timedelta(0))
        recent.add([SpecDecoding(accepted_tokens=number, draft_tokens=200, timestamp=_printed(moment, shape))])

    found = [event.accepted_tokens for event in recent.last_part().events if isinstance(event, SpecDecoding)]

    assert found in ([*range(59, 120)], [*range(58, 120)])  # of the step itself nothing is known


def test_a_log_without_times_is_refused() -> None:
    recent = RecentEvents(60)
    recent.add([SpecDecoding(accepted_tokens=1, draft_tokens=2)])

    with pytest.raises(SpecdecError, match="no time that can be read"):
        recent.last_part()


@pytest.mark.parametrize(("minutes", "complete"), [(1, True), (30, False)])
def test_more_events_than_are_kept_are_told(minutes: int, complete: bool) -> None:
    start = EngineConfig(timestamp="11-20 12:00:00", method="eagle3")
    recent = RecentEvents(60 * minutes, most_events=50)
    times = (f"11-20 12:{second // 60:02}:{second % 60:02}" for second in range(0, 1200, 2))
    recent.add([start, *(SpecDecoding(accepted_tokens=1, draft_tokens=2, timestamp=time) for time in times)])
    part = recent.last_part()

    assert part.complete is complete
    assert part.start == [start]
    assert len(part.events) == (31 if complete else 50)


def test_responses_have_no_last_part() -> None:
    with pytest.raises(click.UsageError, match="exclude each other"):
        cli.main(["analyze", "--last", "30m", "--responses", "answers.jsonl"], standalone_mode=False)
