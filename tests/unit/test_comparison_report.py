"""``compare`` as people and programs meet it: a terminal of 80 columns, a Markdown report, JSON, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from click import UsageError
from hypothesis import HealthCheck, given, settings
from rich.cells import cell_len
from rich.console import Console

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.baseline.writing import write_baseline
from specdec_exporter.comparison.compare import Comparison, Side, Speedup
from specdec_exporter.comparison.decision import Decision
from specdec_exporter.comparison.latency import (
    LatencyComparison,
    Outcome,
    Pair,
    Quantile,
    QuantileComparison,
)
from specdec_exporter.comparison.likeness import Flag, FlagCode
from specdec_exporter.comparison.traffic import Sli
from specdec_exporter.errors import BaselineError, ComparisonError, ConfigError
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.tailshift import Shift
from specdec_exporter.terminal.comparison import report
from specdec_exporter.terminal.sections import as_json, as_markdown, print_report
from support.anyrecording import recordings
from support.processes import exporter_ran
from support.promtool import REPOSITORY
from support.recordings import CONTEXT, CURVE, compared, loaded, recording
from support.running import commanded

replace = msgspec.structs.replace
PLAIN = recording("plain", tpot=[0.0209] * 1000, blocks=12)
FASTER = recording("eagle3", tpot=[0.0113] * 1000, curve=CURVE, blocks=12)
UNLIKE = replace(
    recording("what | others *call* `this`", tpot=[0.003] * 300, curve=CURVE[:2], ttft=[0.2] * 90 + [3000.0] * 210),
    context=replace(CONTEXT, hardware="8 x H100", runtime=None),
    interrupted=True,
)


def printed(comparison: Comparison, width: int = 80, *, verbose: bool = False) -> str:
    console = Console(width=width, markup=False, emoji=False, highlight=False, color_system=None)
    with console.capture() as captured:
        print_report(console, report(comparison), verbose=verbose)
    return captured.get()


# --- Terminal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("candidate", [FASTER, UNLIKE], ids=["like", "unlike"])
def test_it_fits_80_columns(candidate: Baseline) -> None:
    comparison = compared(PLAIN, candidate)
    for verbose in (False, True):
        lines = printed(comparison, verbose=verbose).splitlines()
        assert max(map(len, lines)) <= 80
        assert sum(line.lstrip().startswith("P99 ") for line in lines) == 3 * verbose
        assert any("Llama-3.1-8B" in line for line in lines) is verbose


def test_three_lines_come_first_what_was_found_what_to_do_and_the_flags() -> None:
    plain, drafting = (
        loaded(name, {8.0: step}, curve, intervals=60, blocks=12)
        for name, step, curve in (("plain", 0.02, ()), ("drafting", 0.025, CURVE))
    )
    found, action, flags, empty, *rest = printed(compared(plain, drafting), 200).splitlines()
    assert re.fullmatch(
        r"Faster: decoding is 2\.0\dx \(.*\) as fast with the same number of clients, 8\.0 requests in decode\.",
        found.rstrip(),
    )
    assert action.startswith("Keep speculation on.")
    assert flags.rstrip() == "Flags: none."
    assert not empty
    table = " ".join(" ".join(rest).split())
    assert "decoding, with the same number of clients 2.0" in table
    unlike = printed(compared(PLAIN, UNLIKE), 200).splitlines()[2]
    assert unlike.startswith("Flags: settings_differ, load_differs, short_recording, interrupted, context_missing (see")


def test_flags_say_what_to_do() -> None:
    text = " ".join(printed(compared(PLAIN, UNLIKE), 200).split())
    assert "settings_differ: hardware: 1 x L4 24 GB in the baseline, 8 x H100 in the candidate -> Record both" in text
    assert "context_missing: the candidate does not say: runtime" in text
    assert "interrupted: the candidate's recording was interrupted after 600 s" in text


# --- Markdown and JSON -----------------------------------------------------------------------------------------------


def test_the_markdown_has_all_facts_of_both_and_their_commands() -> None:
    text = as_markdown(report(compared(PLAIN, FASTER)))
    for fact in (CONTEXT.hardware, CONTEXT.model, CONTEXT.runtime, CONTEXT.request_parameters):
        assert f"| {fact} | {fact} |" in text
    assert text.count(f"```\n{CONTEXT.command}\n```") == 2
    assert "| time per output token | 20.9 ms | 11.3 ms | 0.54x (" in text
    assert "| P99 |" in text


def test_foreign_text_means_itself_in_markdown() -> None:
    hostile = replace(UNLIKE, context=replace(CONTEXT, command="run ``` <b>"))
    text = as_markdown(report(compared(PLAIN, hostile)))
    assert text.startswith(r"# what \| others \*call\* \`this\` against plain")
    assert "\n````\nrun ``` <b>\n````\n" in text


# --- Whatever was recorded -------------------------------------------------------------------------------------------


@given(recordings(), recordings())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_two_recordings_are_compared_or_refused_in_words(baseline: Baseline, candidate: Baseline) -> None:
    try:
        comparison = compared(baseline, candidate)
    except ComparisonError:
        return
    assert max(map(cell_len, printed(comparison).splitlines())) <= 80
    assert as_markdown(report(comparison)).startswith("# ")
    assert json.loads(as_json(comparison), parse_constant=pytest.fail)["decision"]["code"] == comparison.decision.code


# --- docs/compare-output.md ------------------------------------------------------------------------------------------

PAGE = (REPOSITORY / "docs" / "compare-output.md").read_text(encoding="utf-8")


def names_in(section: str) -> set[str]:
    """What stands in backticks under a heading."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([a-z0-9_]+)`", text))


def test_every_key_of_the_json_is_documented() -> None:
    shapes = (Comparison, Side, Context, Speedup, LatencyComparison, QuantileComparison, Quantile, Shift, Pair)
    keys = {name for shape in (*shapes, Flag, Decision, Estimate) for name in shape.__struct_fields__}
    values = {*get_args(Sli), "null"}
    assert names_in("JSON") == keys | values


def test_every_flag_outcome_and_decision_is_documented() -> None:
    assert {*get_args(FlagCode)} <= names_in("Like for like")
    assert {*get_args(Outcome), "acceptance_change"} == names_in("Decision")


def test_the_thresholds_on_the_page_are_those_of_the_policy() -> None:
    policy = load_policy().latency
    page = " ".join(PAGE.split())
    assert f"fewer than {policy.min_requests} requests" in page
    assert f"held at least {policy.tail_limit_share:.0%}".replace("%", " %") in page
    assert f"minus {policy.tail_growth:g} times the share" in page
    assert f"with z = {policy.z_score:g}, g = {policy.tail_growth:g}" in page
    assert f"beyond chance and {policy.tail_shift_min:.0%},".replace("%", " %") in page
    assert f"the ratio is beyond {policy.slowdown_min:g} " in page
    assert policy.slowdown_min == policy.speedup_min
    assert f"by more than {policy.traffic_tolerance:.0%}".replace("%", " %") in page
    assert f"fell by more than {100 * load_policy().acceptance_drop_min:g} percentage points" in page


# --- Command ---------------------------------------------------------------------------------------------------------


def ran(*arguments: str) -> tuple[int, str]:
    return commanded("compare", *arguments, COLUMNS="80")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Paths of recordings by name."""
    slower = recording("slower", tpot=[0.03] * 1000, curve=CURVE, blocks=12)
    recordings: dict[str, Baseline] = {
        "plain": PLAIN,
        "faster": replace(FASTER, name="schnell, größer"),
        "again": replace(PLAIN, name="again"),
        "slower": slower,
        "later": replace(FASTER, recorded_at="2026-11-21T03:00:00Z"),
        "few": recording("few", tpot=[0.01] * 20),
        "other": replace(FASTER, context=replace(CONTEXT, model="qwen")),
    }
    for name, each in recordings.items():
        write_baseline(str(tmp_path / f"{name}.yaml"), each)
    return {name: str(tmp_path / f"{name}.yaml") for name in recordings}


@pytest.mark.parametrize(
    ("candidate", "codes", "failing"),
    [
        ("faster", (0, 0), "faster"),
        ("again", (2, 2), "no_difference"),  # flagged: nothing was drafted
        ("slower", (1, 0), "slower"),
        ("few", (1, 2), "undecided"),  # flagged: a short recording
    ],
)
def test_a_regression_fails_only_where_that_is_asked_for(
    files: dict[str, str], candidate: str, codes: tuple[int, int], failing: str
) -> None:
    pair = (files["plain"], files[candidate], "--output=json")
    asked, unasked = ran(*pair, "--fail-on-regression"), ran(*pair)
    assert (asked[0], unasked[0]) == codes
    assert asked[1] == unasked[1]
    assert json.loads(asked[1])["decision"]["code"] == failing


def test_a_pair_of_the_same_minutes_says_so(files: dict[str, str]) -> None:
    comparison = json.loads(ran(files["plain"], files["faster"], "--paired", "--output=json")[1])
    assert (comparison["paired"], comparison["decision"]["code"]) == (True, "faster")


@pytest.mark.parametrize(
    ("names", "options", "code", "words"),
    [
        ("plain faster", "--output=text", 0, "schnell, gr??er"),
        ("plain faster", "--output=markdown", 0, "# schnell, größer against plain\n"),
        ("plain faster slower", "--fail-on-regression", 1, "schnell, gr??er"),
    ],
)
def test_each_output_can_be_had_where_only_ascii_can_be_printed(
    files: dict[str, str], names: str, options: str, code: int, words: str
) -> None:
    compared = (*(files[name] for name in names.split()), options)
    done = exporter_ran("compare", *compared, COLUMNS="80", PYTHONIOENCODING="ascii:strict")
    assert (done.returncode, done.stderr) == (code, "")
    assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ("plain other", ComparisonError, "expected recordings of one model"),
        ("plain nowhere", BaselineError, "nowhere: cannot be read: No such file or directory"),
        ("plain faster --output=xml", UsageError, "'xml' is not one of"),
        ("plain faster later --paired", UsageError, "--paired compares two recordings, without --plot"),
        ("plain later --paired", ComparisonError, "start `baseline record` for both replicas at once"),
        ("plain faster --plot=x.gif", ConfigError, "--plot: expected FILE.svg or FILE.png, found 'x.gif'"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    files: dict[str, str], arguments: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        ran(*(files.get(argument, argument) for argument in arguments.split()))
