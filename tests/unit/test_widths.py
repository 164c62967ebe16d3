"""Reports on terminals of any width: nothing sticks out, and no figure or word is cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from specdec_exporter.inspection.livecheck import examined
from specdec_exporter.terminal.check import print_examination
from specdec_exporter.terminal.sheet import table
from support import running
from support.builders import CAPTURES, FIXTURES
from support.running import commanded

WIDE = 300
LOGS = [
    CAPTURES / name / "server.log" for name in ("0.32.0-draft_model-k3", "0.20.2-driven-2engines", "0.9.2-v0-ngram-k5")
]
GAIN = FIXTURES / "recordings" / "gain"
REAL = FIXTURES / "recordings" / "real-vllm"
BENCH = FIXTURES / "bench" / "0.32.0"
COMMANDS = [
    *(("analyze", log) for log in LOGS),
    ("analyze", "--responses", FIXTURES / "responses" / "0.32.0-ngram-k5.jsonl"),
    ("compare", GAIN / "plain.yaml", GAIN / "k3.yaml", "--verbose"),
    ("compare", GAIN / "plain.yaml", GAIN / "k3.yaml", GAIN / "fast.yaml", "--verbose"),
    ("compare", REAL / "plain4.yaml", REAL / "good4.yaml", "--verbose"),
    ("compare", BENCH / "plain-c1.json", BENCH / "spec-k3-c1.json", "--verbose"),
    ("baseline", "show", GAIN / "plain.yaml"),
    ("doctor", "--args=vllm serve m --num-speculative-tokens 3", "--release=0.32.0"),
]
# Longer words are folded. Bars, frames and sparklines are drawn anew.
LONGEST_WORD = 16
WORD = re.compile(rf"[\w.,:%/()*<>=-]{{1,{LONGEST_WORD}}}")


def words(text: str) -> set[str]:
    """The words and figures of a report."""
    return {word for word in text.replace("\u2502", " ").split() if WORD.fullmatch(word)}


def lost(wide: str, narrow: str) -> set[str]:
    """What is whole in one report and cut in the other."""
    return words(wide) - words(narrow)


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(Path(part).name for part in command))
def test_no_figure_and_no_word_is_cut(command: tuple[str | Path, ...], width: int) -> None:
    wide, narrow = (commanded(*command, COLUMNS=str(columns))[1] for columns in (WIDE, width))
    assert max(map(cell_len, narrow.splitlines())) <= width
    assert "\u2026" not in narrow
    assert lost(wide, narrow) == set()


async def test_check_cuts_nothing_either() -> None:
    captured = CAPTURES / "0.32.0-draft_model-dp2-api1"
    async with running.predictor(max(captured.glob("metrics-*.txt")).read_bytes()) as predictor:
        log = str(captured / "server.log")
        ((examination, status),) = await examined(predictor.url, log_paths=[log], window_seconds=0.05)

    def printed(width: int) -> str:
        console = Console(width=width, markup=False, emoji=False, highlight=False, color_system=None)
        with console.capture() as captured:
            print_examination(console, examination, status)
        return captured.get()

    for width in (40, 60, 100):
        assert max(map(cell_len, printed(width).splitlines())) <= width
        assert lost(printed(WIDE), printed(width)) == set()


@pytest.mark.parametrize(("width", "parts"), [(40, 12), (60, 24), (80, 48)])
def test_a_history_stays_on_one_line(width: int, parts: int, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(LOGS[0].read_bytes() * 40)
    (line,) = re.findall(
        r"In order +\|(.*)\| 0 to 100%$", commanded("analyze", log, COLUMNS=str(width))[1], re.MULTILINE
    )
    assert len(line) == parts


FIGURES = st.sampled_from(["1.76x (1.36 to 2.27)", "104 ms", "8,025", "-", "12.5%", "< 1 ms", "inconclusive"])


@given(
    st.lists(st.tuples(st.sampled_from(["k3", "time per output token"]), FIGURES, FIGURES, FIGURES), min_size=1),
    st.integers(20, 120),
)
def test_any_table_of_figures_fits_any_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(table("load", "baseline", "candidate", "ratio", rows=rows, gap=2))
    lines = captured.get().splitlines()
    assert max(map(cell_len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert not words(" ".join(" ".join(row) for row in rows)) - words(text)
