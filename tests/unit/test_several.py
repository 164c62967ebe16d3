"""Three or more recordings: the fastest by load, where speculation stops paying, and the configuration to run."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.cells import cell_len
from rich.console import Console

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.baseline.writing import to_yaml
from specdec_exporter.comparison.advice import Advice, AdviceCode, schedule
from specdec_exporter.comparison.byload import AtLoad, choose, crossover
from specdec_exporter.comparison.several import Several, compare_several
from specdec_exporter.errors import ComparisonError, ConfigError
from specdec_exporter.speculation.chance import Estimate, times
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal import plot
from specdec_exporter.terminal.sections import as_json, as_markdown, print_report
from specdec_exporter.terminal.several import report
from support.anyrecording import recordings
from support.builders import known, numbers
from support.promtool import REPOSITORY
from support.recordings import CONTEXT, Server, loaded, recording
from support.running import commanded

replace = msgspec.structs.replace
LOADS = (0.9, 3.0, 7.0, 15.0, 30.0, 60.0)
CURVE = (0.7, 0.5, 0.35, 0.25, 0.18, 0.12)
CONFIG = '{"method": "eagle3", "model": "/head", "num_speculative_tokens": 6}'


GROWTH = 1 / 20  # by so much what drafts add grows with each request in decode
USUAL = Server(0.1, 0.05, GROWTH, CURVE)
DEAR = Server(0.2, 0.12, 1 / 10, CURVE)  # it pays up to some 20 running


def side_by_side(*found: Baseline) -> Several:
    return compare_several(found, load_policy())


def by_load(several: Several) -> list[AtLoad]:
    """Its rows at the same load."""
    return [each for each in several.loads if each.compared == "like_load"]


def command(k: int) -> dict[str, Any]:
    config = CONFIG.replace("6", str(k))
    return {"context": replace(CONTEXT, command=f"vllm serve m --speculative-config '{config}'")}


# --- How fast each is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fixed", "marginal"), [(0.1, 0.05), (0.4, 0.02), (0.05, 0.2)])
def test_at_each_load_what_is_to_run_loses_at_most_5_percent_against_the_best(fixed: float, marginal: float) -> None:
    server = Server(fixed, marginal, GROWTH, CURVE)
    several = side_by_side(*(server.record(k, LOADS) for k in (0, 1, 3, 6)))
    assert [each.concurrency for each in by_load(several)] == pytest.approx([0.9, 3, 7, 15, 30, 60], rel=0.01)
    for each in by_load(several):
        k = int(each.recording.removeprefix("k")) if each.recording else 0
        best = max(server.speedup(other, each.concurrency) for other in (0, 1, 3, 6))
        assert server.speedup(k, each.concurrency) >= 0.95 * best
        assert each.unjudged == ()


def test_the_speedup_at_a_load_is_that_of_the_server_also_where_memory_gives_way_to_arithmetic() -> None:
    """Step times are flat up to a bend, which lies at smaller loads the more tokens a request verifies."""

    def step(k: int, load: float) -> float:
        return max(0.02, 0.0003 * load * (k + 1)) + 0.001 * k

    loads = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    plain, k3 = (loaded(f"k{k}", {load: step(k, load) for load in loads}, CURVE[:k]) for k in (0, 3))
    for at in by_load(side_by_side(plain, k3)):
        slowdown = step(3, at.concurrency) / step(0, at.concurrency)
        assert at.speedups["k3"].value == pytest.approx(2.55 / slowdown, rel=0.14)


def test_the_order_does_not_matter_and_the_plain_one_is_found_by_its_facts() -> None:
    found = [USUAL.record(k, LOADS) for k in (0, 1, 3)]
    assert side_by_side(*found).advice == side_by_side(*reversed(found)).advice
    assert {each.baseline.name for each in side_by_side(*reversed(found)).comparisons} == {"plain"}


# --- What to run ------------------------------------------------------------------------------------------------------


def test_one_k_that_is_fastest_everywhere_runs_with_its_own_configuration() -> None:
    recordings = (USUAL.record(k, LOADS[:4], **command(k)) for k in (1, 6))
    advice = side_by_side(USUAL.record(0, LOADS[:4]), *recordings).advice
    assert (advice.code, advice.recording, advice.num_speculative_tokens) == ("use", "k6", 6)
    assert advice.speculative_config == json.loads(CONFIG)
    assert re.match(
        r"Run k6 \(eagle3, k = 6\): 2\.1.x \(.* to .*\) at 0\.9, 1\.8.x \(.*\) at 15\.0 requests in decode\.",
        advice.headline,
    )


def test_of_recordings_as_fast_the_smallest_k_runs() -> None:
    """The last three positions of k = 6 cost what they give: within 2 %, k = 3 drafts half as much."""
    alike = {k: {8.0: 0.02 * length / 1.5} for k, length in ((0, 1.5), (1, 1.5), (3, 2.55), (6, 3.07))}
    found = [loaded(f"k{k}", steps, CURVE[:k], intervals=40, noise=0.005) for k, steps in alike.items()]
    advice = side_by_side(*found).advice
    assert (advice.code, advice.recording) == ("use", "k1")


def test_k_by_load_is_in_vllms_own_spelling() -> None:
    advice = side_by_side(
        DEAR.record(0, LOADS), DEAR.record(1, LOADS, **command(1)), DEAR.record(3, LOADS, **command(3))
    ).advice
    config = known(advice.speculative_config)
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 15, 3], [16, 60, 0]]
    assert {key: config[key] for key in ("method", "model", "num_speculative_tokens")} == {
        "method": "eagle3",
        "model": "/head",
        "num_speculative_tokens": 3,
    }
    assert advice.action == "Run it, record it, and compare again."


@pytest.mark.parametrize(
    ("version", "arguments", "by_load"),
    [
        ("0.32.0", "", True),
        ("0.23.0", "", False),
        ("0.32.0", "--data-parallel-size 2", False),
        (None, "", False),
    ],
)
def test_what_a_release_cannot_do_is_not_recommended(version: str | None, arguments: str, by_load: bool) -> None:
    facts = {"vllm_version": version, "context": replace(CONTEXT, command=f"vllm serve m {arguments}")}
    advice = side_by_side(*(DEAR.record(k, LOADS[:5], **facts) for k in (0, 1, 3))).advice
    assert ("num_speculative_tokens_per_batch_size" in (advice.speculative_config or ())) is by_load


def test_drafts_that_lose_at_the_load_are_off() -> None:
    advice = side_by_side(*(Server(0.9, 0.3, GROWTH, CURVE).record(k, (30.0,)) for k in (0, 1, 3))).advice
    assert (advice.code, advice.num_speculative_tokens, advice.speculative_config) == ("off", 0, None)
    assert advice.headline.startswith("Run no speculation: the best is k")


def test_a_gain_within_chance_is_undecided() -> None:
    server = Server(0.63, 0.05, curve=CURVE)  # 1.7 / 1.68
    advice = side_by_side(*(server.record(k, (7.0,), noise=0.3, name=name) for k, name in PAIRS)).advice
    assert (advice.code, advice.num_speculative_tokens, advice.speculative_config) == ("undecided", None, None)


PAIRS = ((0, "plain"), (1, "one"), (1, "other"))


# --- Nothing slower is advised ----------------------------------------------------------------------------------------


def test_at_one_request_rate_the_fastest_runs_although_each_server_has_its_own_load() -> None:
    """4 requests of 128 tokens a second: 22.6 ms per token without drafts, 14.7 with k = 1 and 9.4 with k = 3.

    Little's law gives 11.5, 7.5 and 4.8 requests in decode; bursts move that. No recording has the load of another.
    """

    def record(k: int, seconds_per_token: float) -> Baseline:
        load, tokens = 512 * seconds_per_token, 1.0 + sum(CURVE[:k])
        # The slope of a server that is bound by memory.
        steps = {load * f: seconds_per_token * tokens * (0.9 + 0.1 * f) for f in (0.8, 0.9, 1.0, 1.1, 1.2)}
        return loaded(f"k{k}", steps, CURVE[:k])

    several = side_by_side(record(0, 0.0226), record(1, 0.0147), record(3, 0.0094))
    assert (several.advice.code, several.advice.recording) == ("use", "k3")
    *_, at = several.loads
    assert at.compared == "same_arrivals"
    assert at.speedups.keys() == {"k1", "k3"}
    assert at.speedups["k3"].value == pytest.approx(0.0226 / 0.0094, rel=0.05)
    assert re.fullmatch(
        r"Run k3 \(eagle3, k = 3\): 2\..*x \(.*\) at the same requests per second\.", several.advice.headline
    )
    # Of two files and of three, the same.
    assert side_by_side(record(0, 0.0226), record(3, 0.0094)).comparisons[0].speedup == several.comparisons[1].speedup


def test_no_k_is_advised_while_an_unjudged_recording_may_be_faster() -> None:
    plain = USUAL.record(0, (14.0, 24.0))
    slow, fast = USUAL.record(1, (14.0,)), USUAL.record(6, (3.0,))
    several = side_by_side(plain, slow, fast)
    advice = several.advice
    assert (advice.code, advice.num_speculative_tokens, advice.speculative_config) == ("undecided", None, None)
    assert advice.headline == (
        "Record more: the fastest may be k6 (eagle3, k = 6): not known at 14.0 requests in decode."
    )
    assert "k6 ran at about 3.0 requests in decode" in advice.outlook
    assert advice.action.startswith("Record k6 at 14.0 requests in decode too")
    assert side_by_side(plain, slow, replace(fast, time_per_output_token_seconds=None)).advice.headline.startswith(
        "Record more"
    )
    slower = side_by_side(plain, slow, Server(3.0, 0.05, GROWTH, CURVE).record(6, (3.0,)))
    assert slower.advice.recording == "k1"


def test_a_recording_without_step_times_stays_unjudged() -> None:
    several = side_by_side(USUAL.record(0, LOADS), USUAL.record(1, LOADS), USUAL.record(3, LOADS))
    bare = replace(USUAL.record(3, LOADS), intervals=())
    assert several.advice.recording == "k3"
    without = side_by_side(USUAL.record(0, LOADS), USUAL.record(1, LOADS), bare)
    assert without.advice.headline.startswith("Record more")
    assert "k3 has no step times" in without.advice.outlook


def seconds_per_token(each: Baseline) -> float:
    return known(each.time_per_output_token_seconds).mean


ks = st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=2, max_size=3, unique=True)
some_loads = st.lists(st.sampled_from(LOADS), min_size=1, max_size=3, unique=True).map(sorted)


@given(st.floats(0.0, 0.6), st.floats(0.01, 0.25), ks, some_loads, st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_was_recorded_no_advised_k_is_beyond_doubt_slower_than_another_or_than_none(
    fixed: float, marginal: float, given_ks: list[int], plain_loads: list[float], data: st.DataObject
) -> None:
    """At the load of the advice, every other recording was judged and is not faster, or is slower per token."""
    server = Server(fixed, marginal, GROWTH, CURVE)
    found = [server.record(k, data.draw(some_loads), intervals=12, noise=0.005) for k in given_ks]
    several = side_by_side(server.record(0, plain_loads, intervals=12, noise=0.005), *found)
    advice = several.advice
    if advice.recording is None:
        return
    here = next(
        each for each in several.loads if (each.compared, each.concurrency) == (advice.compared, advice.concurrency)
    )
    mine, own = here.speedups[advice.recording].value, {each.name: seconds_per_token(each) for each in found}
    assert mine >= 1.0
    for each in found:
        if each.name in here.speedups:
            assert mine >= 0.95 * here.speedups[each.name].value
        else:
            assert own[each.name] >= own[advice.recording]


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([recording("a", curve=CURVE), recording("b", curve=CURVE)], "found none without speculation of 2"),
        ([recording("a")], "expected one recording without speculation and others with it"),
        ([recording("a"), recording("b", curve=CURVE), recording("b", curve=CURVE)], "found b twice"),
        ([recording("a"), recording("b", curve=CURVE, context=replace(CONTEXT, model="other"))], "of one model"),
    ],
)
def test_what_cannot_be_compared_is_refused(found: list[Baseline], words: str) -> None:
    with pytest.raises(ComparisonError, match=words):
        side_by_side(*found)


# --- Crossover and schedule -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speedups", "found"),
    [
        ([(1.0, 2.0), (4.0, 1.5), (16.0, 0.5)], 8.0),
        ([(1.0, 2.0), (4.0, 1.0), (16.0, 0.5)], 4.0),
        ([(1.0, 2.0), (4.0, 1.5)], None),
        ([(1.0, 0.9), (4.0, 0.8)], None),
        ([(1.0, 0.9), (4.0, 1.2), (8.0, 1.1), (16.0, 0.9)], 8.0 * math.sqrt(2.0)),
        ([], None),
    ],
)
def test_the_crossover_is_where_the_speedup_falls_below_1(
    speedups: list[tuple[float, float]], found: float | None
) -> None:
    assert crossover(speedups) == (None if found is None else pytest.approx(found))


speedups = st.lists(st.lists(st.floats(0.5, 3.0), min_size=3, max_size=3), min_size=1, max_size=6)
PLAIN, CANDIDATES = recording("plain"), [recording(f"k{k}", curve=CURVE[:k]) for k in (1, 2, 3)]


def at_load(load: float, values: Sequence[float], recorded_seconds: float = 1.0) -> AtLoad:
    """A load with the speed-ups of k = 1, 2 and 3."""
    found = {f"k{k}": Estimate(value, 0.95 * value, 1.05 * value) for k, value in enumerate(values, 1)}
    return AtLoad(concurrency=load, recorded_seconds=recorded_seconds, speedups=found)


@given(speedups, st.integers(-2, 6))
def test_vllm_accepts_a_schedule_and_reads_what_was_chosen(found: list[list[float]], first_power: int) -> None:
    """Its own checks (0.32.0): from 1, ascending, without overlap. Beyond the last range, the last k holds."""
    loads = [at_load(2.0 ** (first_power + i), row) for i, row in enumerate(found)]
    made = choose(loads, PLAIN, CANDIDATES, load_policy())
    ranges = schedule(made, {None: 0, "k1": 1, "k2": 2, "k3": 3})
    if loads[-1].concurrency < 1.0:
        assert ranges == ()
        return
    assert ranges[0].first == 1
    assert ranges[-1].last == loads[-1].concurrency
    assert all(each.first <= each.last for each in ranges)
    assert all(one.last + 1 == other.first for one, other in pairwise(ranges))
    for choice, row in zip(made, found, strict=True):
        for each in ranges:
            if each.first <= choice.concurrency <= each.last:
                assert (row[each.k - 1] if each.k else 1.0) >= 0.969 * max(1.0, *row)


def test_neighbouring_loads_keep_a_recording_that_loses_next_to_nothing() -> None:
    """Where most was recorded decides: from there, k changes only for more than 2 %."""
    rows = {1: (1.5, 1.52), 2: (1.5, 1.51), 4: (1.5, 1.49), 8: (1.2, 1.4)}
    most_at = {
        most: [
            each.recording
            for each in choose(
                [at_load(load, row, 9.0 if load == most else 1.0) for load, row in rows.items()],
                PLAIN,
                CANDIDATES[:2],
                load_policy(),
            )
        ]
        for most in (1, 8)
    }
    assert most_at == {1: ["k1", "k1", "k1", "k2"], 8: ["k2"] * 4}


# --- Outputs ----------------------------------------------------------------------------------------------------------


def printed(several: Several, *, verbose: bool = False) -> str:
    console = Console(file=io.StringIO(), width=80, markup=False, emoji=False, highlight=False, color_system=None)
    print_report(console, report(several), verbose=verbose)
    found: str = console.file.getvalue()  # type: ignore[attr-defined]
    return found


SEVERAL = side_by_side(
    DEAR.record(0, LOADS),
    DEAR.record(1, LOADS),
    DEAR.record(3, LOADS, name="what | others *call* `this`", **command(3)),
)


def test_the_text_begins_with_what_to_run_then_one_table_and_fits_80_columns_apart_from_the_flag_to_copy() -> None:
    lines = printed(SEVERAL).splitlines()
    (flag,) = (line for line in lines if line.startswith("--speculative-config"))
    assert json.loads(known(re.fullmatch(r"--speculative-config '(.*)'", flag))[1]) == SEVERAL.advice.speculative_config
    assert max(len(line) for line in lines if line is not flag) <= 80
    assert re.match(r"Run k by load \(3 up to 15, 0 up to 60 requests\): 1\.5.x \(.*\) at", lines[0])
    assert any(
        re.match(r"Above about 17\.\d \(15\.\d to \d\d\.\d\) requests in decode speculation stops paying\.", line)
        for line in lines
    )
    assert "\n".join(lines).count("short_recording") == 1  # once for all recordings
    (row,) = (line for line in lines if line.startswith("  0.9 "))
    first, fastest = SEVERAL.loads[0].speedups.values()
    assert row.rstrip() == f"  0.9   {times(first)}  {times(fastest)} *"
    for found, k in ((first, 1), (fastest, 3)):
        assert known(found.low) <= DEAR.speedup(k, SEVERAL.loads[0].concurrency) <= known(found.high)
    assert "Recordings" not in lines


def test_none_is_called_the_fastest_where_another_may_be_faster() -> None:
    unsure = [msgspec.structs.replace(each, unjudged=("k9",)) for each in SEVERAL.loads]
    for several, marked in ((SEVERAL, True), (msgspec.structs.replace(SEVERAL, loads=unsure), False)):
        assert bool(re.search(r"\) \*", printed(several))) == marked


def test_verbose_adds_recordings_and_a_note() -> None:
    text = printed(SEVERAL, verbose=True)
    assert "Recordings" in text.splitlines()
    assert known(SEVERAL.advice.note) in " ".join(text.split())


def test_the_markdown_has_rows_as_wide_as_its_heads_and_foreign_text_means_itself() -> None:
    text = as_markdown(report(SEVERAL))
    assert r"what \| others \*call\* \`this\`" in text
    for in_table, rows in groupby(text.splitlines(), lambda line: line.startswith("|")):
        assert not in_table or len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_the_json_is_the_result_and_each_key_is_documented() -> None:
    assert msgspec.json.decode(as_json(SEVERAL), type=Several) == SEVERAL
    page = (
        (REPOSITORY / "docs" / "compare-output.md").read_text("utf-8").partition("\n## More than two recordings\n")[2]
    )
    named = set(re.findall(r"`([a-z0-9_]+)`", page))
    keys = {name for shape in (Several, AtLoad, Advice) for name in shape.__struct_fields__}
    assert keys | set(get_args(AdviceCode)) <= named


@given(st.lists(recordings(), min_size=2, max_size=4))
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_recordings_are_compared_or_refused_in_words(found: list[Baseline]) -> None:
    plain = replace(recording("the plain one"), context=found[0].context, model_name=found[0].model_name)
    named = [replace(each, name=f"{index} {each.name}") for index, each in enumerate(found)]
    try:
        several = side_by_side(plain, *named)
    except ComparisonError:
        return
    assert all(map(math.isfinite, numbers((several.loads, several.advice))))
    text = printed(several, verbose=True).splitlines()
    assert max(cell_len(line) for line in text if not line.startswith("--speculative-config")) <= 80
    assert as_markdown(report(several)).startswith("# ")
    assert json.loads(as_json(several), parse_constant=pytest.fail)["advice"]["code"] == several.advice.code


def test_the_command_writes_each_output_and_fails_on_a_regression_where_asked_for(tmp_path: Path) -> None:
    files = []
    for each in (DEAR.record(0, LOADS), DEAR.record(1, LOADS), Server(0.9, 0.3, GROWTH, CURVE).record(3, LOADS)):
        (tmp_path / f"{each.name}.yaml").write_text(to_yaml(each))
        files.append(str(tmp_path / f"{each.name}.yaml"))

    def ran(*options: str) -> tuple[int, str]:
        return commanded("compare", *files, *options)

    assert ran()[0] == 2
    assert ran("--fail-on-regression")[1].startswith("Run k by load")
    assert "\nRecordings\n" in ran("--verbose")[1]
    assert ran("--fail-on-regression")[0] == 1  # k3 is slower
    assert ran("--output=markdown")[1].startswith("# Recordings side by side\n")
    assert msgspec.json.decode(ran("--output=json")[1], type=Several).advice.code == "use"
    picture = tmp_path / "speedup.svg"
    assert ran(f"--plot={picture}")[0] == 2
    assert picture.read_text().count("k1 (eagle3, k = 1)") == 1


# --- Picture ----------------------------------------------------------------------------------------------------------


def test_the_picture_is_the_same_each_time_and_has_a_line_of_its_own_for_each_recording(tmp_path: Path) -> None:
    for name in ("one.svg", "again.svg", "one.png"):
        plot.draw(str(tmp_path / name), SEVERAL)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
    with Image.open(tmp_path / "one.png") as picture:
        colours = {colour for count, colour in picture.convert("RGB").getcolors(1 << 20) if count > 100}  # type: ignore[union-attr]
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours


@pytest.mark.parametrize("name", ["nowhere/x.svg", "."])
def test_a_picture_that_cannot_be_written_is_refused_in_words(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="--plot"):
        plot.check_plot(str(tmp_path / name))


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"--plot needs matplotlib: pip install 'specdec-exporter\[plot\]'"):
        plot.check_plot(str(tmp_path / "x.svg"))


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(ComparisonError, match="nothing drawn"):
        plot.draw(str(tmp_path / "x.svg"), side_by_side(recording("plain"), recording("k3", curve=CURVE[:3])))
