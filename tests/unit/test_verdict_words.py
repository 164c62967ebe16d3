"""One word, one colour and one exit code for a verdict, wherever it is shown."""

from __future__ import annotations

import io
import json
import re
from itertools import chain
from typing import get_args

import pytest
from rich.console import Console

from specdec_exporter.commands import EXIT_CODES
from specdec_exporter.speculation.evidence import Evidence, StateName
from specdec_exporter.speculation.judging import judge, told
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.verdict import LEVELS, WORDS, Verdict, VerdictCode, worst
from specdec_exporter.terminal.figures import print_verdict
from specdec_exporter.web.page import PAGE
from support.fieldtools import ROOT
from unit.test_docs import tables
from unit.test_verdict import drafted

CODES = get_args(VerdictCode)
TONES = {"good": "green", "warn": "amber", "bad": "red", "idle": "grey"}
HUES = {"red": "red", "yellow": "amber", "green": "green", "#": "grey"}
SGR = {"red": "31", "amber": "33", "green": "32", "grey": "90"}


def words_on_the_page() -> dict[str, tuple[str, str]]:
    rows = re.findall(r'^  (\w+): \{word: "(.*?)", glyph: ".", tone: "(\w+)"\}', PAGE.decode(), re.MULTILINE)
    return {code: (word, TONES[tone]) for code, word, tone in rows}


def words_of_grafana() -> dict[str, tuple[str, str]]:
    """The titles and hues of the dashboards' value mappings."""
    dashboard = json.loads((ROOT / "dashboards/rendered/specdec-fleet.json").read_text(encoding="utf-8"))
    overrides = chain.from_iterable(
        panel["fieldConfig"]["overrides"] for panel in dashboard["panels"] if "fieldConfig" in panel
    )
    (properties,) = [override["properties"] for override in overrides if override["matcher"]["options"] == "Verdict"]
    ((mapping,),) = [shown["value"] for shown in properties if shown["id"] == "mappings"]
    options = mapping["options"]
    hues = {code: next(hue for end, hue in HUES.items() if end in shown["color"]) for code, shown in options.items()}
    return {code: (shown["text"], hues[code]) for code, shown in options.items()}


def words_in_a_terminal() -> dict[str, tuple[str, str]]:
    shown = {}
    for code in CODES:
        written = io.StringIO()
        console = Console(file=written, force_terminal=True, color_system="standard", width=60, legacy_windows=False)
        print_verdict(console, Verdict(code=code, headline="", action=""))
        ((sgr, word),) = re.findall(r"\x1b\[(\d+)m╭.*?Verdict: ([\w ]+\w)", written.getvalue())
        shown[code] = (word, next(colour for colour, number in SGR.items() if number == sgr))
    return shown


def test_page_grafana_and_terminal_show_the_same_word_in_the_same_colour() -> None:
    expected = {code: (word.title, word.colour) for code, word in WORDS.items()}
    assert list(expected) == list(CODES)
    assert words_on_the_page() == expected
    assert words_of_grafana() == expected
    assert words_in_a_terminal() == {code: (title.lower(), colour) for code, (title, colour) in expected.items()}


def test_the_page_about_verdicts_has_one_table_of_word_colour_and_exit_code() -> None:
    rows = [row for row in tables((ROOT / "docs/verdict.md").read_text(encoding="utf-8")) if "Exit code" in row]
    assert {row["Verdict"].strip("`"): (row["Shown as"], int(row["Exit code"])) for row in rows} == {
        code: (f"{word.title}, {word.colour}", EXIT_CODES[word.level]) for code, word in WORDS.items()
    }


def test_a_guess_is_never_green_and_green_needs_nobody() -> None:
    assert [code for code, word in WORDS.items() if word.colour == "green"] == ["healthy"]
    assert {word.level for word in WORDS.values() if word.colour in ("red", "amber")} == {"WARN", "FAIL"}
    guess = judge(Evidence(state="drafting", figures=drafted(0.9), method="eagle3"), load_policy()).verdict
    assert (guess.code, guess.basis) == ("not_measured", "assumed")


@pytest.mark.parametrize("rate", [0.01, 0.11, 0.5, 0.9])
@pytest.mark.parametrize("state", get_args(StateName))
def test_the_findings_are_as_bad_as_the_verdict_here_and_in_an_exporter(state: StateName, rate: float) -> None:
    """So ``check`` of a predictor and of its exporter end with the exit code of the colour on the page."""
    evidence = Evidence(state=state, figures=drafted(rate), method="eagle3", num_speculative_tokens=3)
    judgement = judge(evidence, load_policy())
    level = WORDS[judgement.verdict.code].level
    assert LEVELS.index(worst(finding.level for finding in judgement.findings)) >= LEVELS.index(level)
    assert [finding.level for finding in told(judgement.verdict, state, ()).findings] == [level]
