"""The picture of ``tune``: what it shows, in which words, and that it is the same every time."""

from __future__ import annotations

import itertools
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promtool import REPOSITORY
from recordings import CONTEXT, CURVE, recording
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.tuning import Tuning, tune
from specdec_exporter.errors import ComparisonError, ConfigError
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.load import Load, LoadBin, bin_of
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.plot import Line, check_plot, draw_tuning, look, speedups_shown, spread

STEP_SECONDS = 0.02


def by_load(concurrencies: tuple[float, ...], slowdown: float = 1.0, length: float = 1.0) -> tuple[LoadBin, ...]:
    """One bin for each concurrency, of twelve blocks of a minute; every second block is two percent slower."""
    bins = []
    for concurrency in concurrencies:
        blocks = []
        for index in range(12):
            steps = 60.0 * concurrency / (STEP_SECONDS * slowdown * (1.02 if index % 2 else 1.0))
            drafted = steps * 3 if length > 1 else None
            counts = Counts(steps=steps, step_seconds=60.0 * concurrency, generation_tokens=steps * length,
                            first_tokens=0.0, prompt_tokens=0.0, drafts=drafted and steps, draft_tokens=drafted,
                            accepted_tokens=drafted and steps * (length - 1))  # fmt: skip
            blocks.append(Load(60.0, counts))
        bins.append(LoadBin(bin_of(concurrency), 12, tuple(blocks)))
    return tuple(bins)


def recorded(name: str, bins: tuple[LoadBin, ...], **facts: Any) -> Baseline:
    curve = () if name == "plain" else CURVE
    return msgspec.structs.replace(recording(name, tpot=[0.02] * 300, curve=curve), by_load=bins, **facts)


PLAIN = recorded("plain", by_load((0.9, 3.6, 15.0)))
EAGLE = recorded("eagle", by_load((0.95, 3.8, 15.5), slowdown=1.2, length=2.5))
NGRAM = recorded("ngram", by_load((0.95, 3.8), slowdown=1.2, length=1.1), method="ngram", num_speculative_tokens=5)


def tuned(*recordings: Baseline) -> Tuning:
    return tune(recordings, load_policy())


@pytest.fixture
def svg(tmp_path: Path) -> Path:
    return tmp_path / "plot.svg"


def words(path: Path) -> list[str]:
    """All text in the picture: matplotlib draws it as paths, and says it in a comment."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def test_there_is_one_named_line_for_each_method_and_k(svg: Path) -> None:
    draw_tuning(str(svg), tuned(PLAIN, EAGLE, NGRAM))
    said = words(svg)
    assert {"eagle3, k = 3", "ngram, k = 5", "no speculation"} <= set(said)
    assert "Speed-up of meta-llama/Llama-3.1-8B by load" in said
    assert "Requests in decode at a time, per engine (logarithmic)" in said
    assert "Speed-up over no speculation" in said
    assert "Bands: 95 % intervals." in said
    assert [tick for tick in said if tick.isdecimal()] == ["1", "2", "4", "8", "16", "32"]
    assert {"1x", "2x"} <= set(said)


def test_recordings_of_several_workloads_are_told_apart(svg: Path) -> None:
    rag = msgspec.structs.replace(CONTEXT, request_parameters="rag")
    pairs = (PLAIN, EAGLE, *(msgspec.structs.replace(each, context=rag) for each in (PLAIN, EAGLE)))
    draw_tuning(str(svg), tuned(*pairs))
    assert {"eagle3, k = 3, rag", "eagle3, k = 3, temperature", "0, 128 tokens"} <= set(words(svg))


def test_a_load_with_too_few_data_for_an_interval_is_hollow(svg: Path) -> None:
    short = by_load((0.95, 3.8), slowdown=1.2, length=2.5)
    few = LoadBin(short[1].bound, 3, short[1].blocks[:3])
    draw_tuning(str(svg), tuned(PLAIN, recorded("eagle", (short[0], few))))
    assert "Bands: 95 % intervals. Hollow: too few data." in words(svg)
    assert "fill: #ffffff; stroke: #0072b2" in svg.read_text()


@pytest.mark.parametrize("suffix", ["svg", "png", "PNG"])
def test_the_same_figures_give_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.{suffix}" for name in ("one", "other")]
    for path in paths:
        draw_tuning(str(path), tuned(PLAIN, EAGLE))
    one, other = (path.read_bytes() for path in paths)
    assert one == other
    assert one.startswith(b"<?xml" if suffix == "svg" else b"\x89PNG")
    assert b"dc:date" not in one


def test_lines_are_told_apart_without_colour() -> None:
    looks = [look(index) for index in range(14)]
    assert len({(str(each["linestyle"]), each["marker"]) for each in looks}) == len(looks)


@pytest.mark.parametrize(
    ("points", "low", "high"),
    [
        ([Estimate(1.5, 1.4, 1.6)], 0.97, 1.63),
        ([Estimate(0.5, 0.4, 0.6), Estimate(1.5, None, None)], 0.34, 1.56),
        ([Estimate(1.5, 0.001, 900.0)], 0.72, 1.78),  # an interval that says nothing goes beyond the picture
    ],
)
def test_the_axis_holds_the_speedups_and_1(points: list[Estimate], low: float, high: float) -> None:
    line = Line("x", tuple((float(load), each) for load, each in enumerate(points, start=1)))
    assert list(speedups_shown([line])) == pytest.approx([low, high])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(1, 3))
def test_names_do_not_overlap_and_stay_below_the_top(wanted: list[float], rows: int) -> None:
    size = 0.05 * rows
    found = spread(sorted(wanted), [size] * len(wanted))
    assert max(found) <= 1.0
    assert all(below + size <= above + 1e-9 for below, above in itertools.pairwise(found))


def test_names_that_do_not_overlap_stay_where_they_are() -> None:
    assert spread([0.1, 0.5, 0.9], [0.05, 0.1, 0.05]) == [0.1, 0.5, 0.9]


def test_without_a_speedup_there_is_nothing_to_draw(svg: Path) -> None:
    far = recorded("far", by_load((100.0,), slowdown=1.2, length=2.5))
    with pytest.raises(ComparisonError, match="no speed-up at a load that was recorded without speculation too"):
        draw_tuning(str(svg), tuned(PLAIN, far))
    assert not svg.exists()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("plot.pdf", "--plot: expected FILE.svg or FILE.png, found '.*plot.pdf'"),
        ("missing/plot.svg", "expected a file in a directory that exists"),
    ],
)
def test_a_file_that_cannot_be_drawn_is_refused(path: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        check_plot(str(tmp_path / path))


def test_without_matplotlib_the_error_says_how_to_install_it(svg: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"^--plot needs matplotlib: pip install 'specdec-exporter\[plot\]'$"):
        check_plot(str(svg))


def test_the_exporter_itself_does_not_need_matplotlib() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert not any("matplotlib" in each for each in project["dependencies"])
    (extra,) = project["optional-dependencies"]["plot"]
    assert extra.startswith("matplotlib")
    assert "matplotlib" not in (REPOSITORY / "requirements.lock").read_text()  # which the image is built from
