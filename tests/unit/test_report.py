"""What people see: on a terminal, in a pipe, without colour, without Unicode, in a narrow window."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from specdec_exporter.formatting import plain
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.terminal.console import bar, write
from specdec_exporter.terminal.log import print_analysis
from support.builders import config, window

ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def some_lines(model: str = "tiny", engines: int = 1) -> list[Event]:
    """Two windows an engine of 200 drafts each."""
    windows = [
        window(accepted, 200, timestamp, f"{engine:03}")
        for engine in range(engines)
        for timestamp, accepted in (("11-20 21:44:50", (190, 170, 150)), ("11-20 21:45:00", (150, 120, 80)))
    ]
    return [config(timestamp="11-20 21:44:40", served_model_name=model), *windows]


def analysis_on(stream: io.TextIOBase, events: list[Event]) -> None:
    story = LogStory()
    story.add(events)

    def draw(console: Console) -> None:
        print_analysis(console, story.analysis(), counters=ReaderCounters(bytes=98_200_000), paths=["server.log"])

    write(stream, draw)  # type: ignore[arg-type]


def printed(events: list[Event]) -> str:
    stream = io.StringIO()
    analysis_on(stream, events)
    return stream.getvalue()


REPORT = """\
server.log
98.2 MB, 11-20 21:44:40 to 11-20 21:45:00

Configuration
  1.   vLLM 0.32.0 (V1 engine), model tiny, method draft_model, draft model
       /models/draft, k = 3; since 11-20 21:44:40

Totals
  Draft tokens             1,200
  Accepted tokens            860
  Acceptance rate          71.7%   accepted / draft tokens
  Drafts (reconstructed)     400
  Mean acceptance length    3.15   1 + accepted / drafts (with the bonus token)
  Mean draft length         3.00   draft tokens / drafts

Windows: 2
  Best       85.0% at 11-20 21:44:50 (600 draft tokens)
  Worst      58.3% at 11-20 21:45:00 (600 draft tokens)
  Counted    2 windows with at least 50 drafts; percentiles need 5
  In order   |▇▅| 0 to 100%

Acceptance by position
  pos.  all drafts                   conditional
     0  █████████████████     85.0%  █████████████████     85.0%
     1  ██████████████▌       72.5%  █████████████████     85.3%
     2  ███████████▌          57.5%  ███████████████▉      79.3%
  conditional: share of the drafts accepted up to the position before
"""


def test_percentiles_are_shown_from_five_windows_on() -> None:
    windows = [window((190, 170, 150), 200, f"11-20 21:44:5{number}") for number in range(5)]
    assert "P50" not in printed([config(), *windows[:4]])
    assert "counted by     P10     P50     P90" in printed([config(), *windows])


def test_the_report_of_a_log_reads_like_this_in_a_pipe() -> None:
    text = printed(some_lines())
    assert text.startswith(REPORT)
    assert "─ Verdict: not measured ─" in text[len(REPORT) :]
    assert ESCAPE not in text
    assert not [line for line in text.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("columns", [40, 200])
def test_the_report_keeps_to_the_width_there_is(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = printed(some_lines(engines=2))
    assert max(map(len, text.splitlines())) <= columns
    flat = re.sub(r"[\s│]+", "", text)
    assert "71.7%" in flat
    assert "Probablypays:3.15tokensadraft;" in flat


def test_a_terminal_gets_colour_and_no_color_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for colour in (True, False):
        terminal = Terminal()
        analysis_on(terminal, some_lines())
        assert bool(COLOUR.search(terminal.getvalue())) == colour
        assert "not measured" in terminal.getvalue()
        monkeypatch.setenv("NO_COLOR", "1")


def test_a_stream_without_unicode_gets_ascii_bars() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    analysis_on(stream, some_lines())
    text = raw.getvalue().decode("ascii")
    assert "#################" in text
    assert "?" not in text


def test_what_a_log_calls_its_model_cannot_steer_the_terminal() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    analysis_on(stream, some_lines(model="[bold]x[/bold]\x1b[2J\r\n:smile:\u202eti\udc80ny"))
    stream.seek(0)
    text = stream.read()
    assert ESCAPE not in text
    assert "[bold]x[/bold]?[2J??:smile:?ti?ny" in text


@given(st.floats(0, 1), st.integers(1, 60), st.booleans())
def test_a_bar_is_as_long_as_its_ratio(ratio: float, cells: int, ascii_only: bool) -> None:
    drawn = bar(ratio, cells, ascii_only=ascii_only)
    assert len(drawn) <= cells
    assert abs(len(drawn) - ratio * cells) <= 1
    assert bool(drawn) == (ratio > 0)
    assert drawn.isascii() or not ascii_only


@given(st.text())
def test_plain_text_is_printable_and_keeps_its_length(text: str) -> None:
    assert plain(text).isprintable()
    assert len(plain(text)) == len(text)
