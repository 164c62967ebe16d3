"""One setting under several conditions: the table of workloads, and up to which rate or temperature it pays."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordings import CONTEXT, loaded
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.latency import Pair
from specdec_exporter.comparison.sweep import Limit, Overall, Row, limits_of, ordered, overall_of
from specdec_exporter.comparison.tuning import Tuning
from specdec_exporter.comparison.tuning import tune as tune_by_policy
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.tuning import as_markdown

CODE, CHAT = (0.7, 0.5, 0.4), (0.3, 0.1, 0.05)
STEP = 0.02


def recorded(
    name: str, requests: str, curve: Sequence[float] = (), *, load: float = 4.0, cost: float = 1.3
) -> Baseline:
    """A recording of one load; a step with drafts takes ``cost`` times as long."""
    context = msgspec.structs.replace(CONTEXT, request_parameters=requests)
    return loaded(name, {load: STEP * (cost if curve else 1.0)}, curve, intervals=60, context=context)


def tune(*found: Baseline) -> Tuning:
    return tune_by_policy(found, load_policy())


def test_workloads_are_paired_by_their_request_parameters_in_one_table() -> None:
    found = [
        recorded("base-chat", "chat, temperature 0, 16 at once"),
        recorded("spec-chat", "chat, temperature 0, 16 at once", CHAT, cost=1.6),
        recorded("base-code", "code, temperature 0, 16 at once"),
        recorded("spec-code", "code, temperature 0, 16 at once", CODE),
    ]
    tuning = tune(*found)
    assert [(row.baseline, row.candidate, row.pays) for row in tuning.rows] == [
        ("base-chat", "spec-chat", False),
        ("base-code", "spec-code", True),
    ]
    assert [row.workload for row in tuning.rows] == ["chat, 16 at once", "code, 16 at once"]
    (overall,) = tuning.overall
    assert overall.code in {"undecided", "mixed"}
    assert "orse: chat" in overall.headline
    assert tuning.limits == ()
    text = as_markdown(tuning)
    assert "| chat | " in text
    assert "| code | " in text
    assert overall.headline.split(".")[0] in text


def test_a_temperature_is_compared_with_the_recording_without_speculation_of_another() -> None:
    """Without speculation, the temperature changes little: one recording is enough."""
    curves = {"0": CODE, "0.4": (0.6, 0.4, 0.3), "0.8": (0.3, 0.1, 0.05), "1.0": (0.2, 0.05, 0.0)}
    found = [recorded(f"t{each}", f"chat, temperature {each}", curve, cost=1.5) for each, curve in curves.items()]
    tuning = tune(recorded("plain", "chat, temperature 0"), recorded("other", "code"), *found)
    assert [row.temperature for row in tuning.rows] == [0.0, 0.4, 0.8, 1.0]
    assert {row.baseline for row in tuning.rows} == {"plain"}
    (limit,) = tuning.limits
    assert (limit.along, limit.pays_up_to, limit.stops_at) == ("temperature", 0.4, 0.8)
    assert limit.headline == (
        "eagle3 with k = 3 stops paying between temperature 0.4, where it pays, and temperature 0.8, where it does not"
    )
    assert limit.headline in as_markdown(tuning)


def test_a_rate_at_which_it_stops_paying_lies_between_two_that_were_measured() -> None:
    found = [
        each
        for load, cost in ((2.0, 1.2), (8.0, 1.5), (32.0, 3.5))
        for each in (
            recorded(f"plain at {load:g}", "chat", load=load),
            recorded(f"k3 at {load:g}", "chat", CODE, load=load, cost=cost),
        )
    ]
    tuning = tune(*found)
    (limit,) = tuning.limits
    assert limit.along == "requests_per_second"
    rates = [row.requests_per_second for row in tuning.rows]
    assert rates == sorted(rate for rate in rates if rate)
    assert (limit.pays_up_to, limit.stops_at) == (rates[1], rates[2])


# --- Limits -----------------------------------------------------------------------------------------------------------

PAIR = Pair(None, None)


def row(temperature: float | None, pays: bool | None, *, rate: float = 1.0, code: str = "undecided") -> Row:
    return msgspec.convert(
        {
            **dict.fromkeys(Row.__struct_fields__),
            **dict.fromkeys([name for name in Row.__struct_fields__ if name.endswith("_second")], PAIR),
            **dict.fromkeys([name for name in Row.__struct_fields__ if name.endswith("token_seconds")], PAIR),
            "method": "eagle3",
            "num_speculative_tokens": 3,
            "baseline": "plain",
            "candidate": f"t{temperature}",
            "temperature": temperature,
            "requests_per_second": rate,
            "pays": pays,
            "code": code,
        },
        Row,
    )


def limit_of(*pays: bool | None) -> Limit:
    (found,) = limits_of([row(index / 10, each) for index, each in enumerate(pays)], load_policy())
    return found


@pytest.mark.parametrize(
    ("pays", "up_to", "stops", "words"),
    [
        ((True, True), 0.1, None, "pays up to temperature 0.1; nothing was measured above temperature 0.1"),
        ((False, False), None, 0.0, "is not shown to pay anywhere from temperature 0 to temperature 0.1"),
        ((True, None, False), 0.0, 0.2, "where it does not; not shown either way at temperature 0.1"),
        ((None, None), None, None, "is not shown to pay or not to pay from temperature 0 to temperature 0.1"),
        ((False, True), None, None, "no limit tells where it pays"),
        ((True, False, True), None, None, "no limit tells where it pays"),
    ],
)
def test_a_limit_says_what_was_measured(
    pays: tuple[bool | None, ...], up_to: float | None, stops: float | None, words: str
) -> None:
    found = limit_of(*pays)
    assert (found.pays_up_to, found.stops_at) == (up_to, stops)
    assert words in found.headline


@given(st.lists(st.sampled_from([True, False, None]), min_size=2, max_size=8))
def test_a_limit_never_contradicts_a_measurement(pays: list[bool | None]) -> None:
    found = limit_of(*pays)
    for index, each in enumerate(pays):
        if each is False and found.pays_up_to is not None:
            assert index / 10 > found.pays_up_to
        if each is True and found.stops_at is not None:
            assert index / 10 < found.stops_at


def test_a_temperature_that_pays_at_one_rate_only_is_not_decided() -> None:
    rows = [row(0.0, True), row(0.5, True, rate=1.0), row(0.5, False, rate=8.0)]
    temperature, rate = limits_of(rows, load_policy())
    assert (temperature.pays_up_to, temperature.stops_at) == (0.0, None)
    assert (rate.temperature, rate.pays_up_to, rate.stops_at) == (0.5, 1.0, 8.0)


def test_repeats_at_about_one_rate_have_no_limit() -> None:
    assert list(limits_of([row(0.0, True, rate=1.0), row(0.0, False, rate=1.1)], load_policy())) == []


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        (("keep", "keep"), "keep"),
        (("keep", "do_not_keep"), "mixed"),
        (("do_not_keep", "do_not_keep"), "do_not_keep"),
        (("keep", "undecided"), "undecided"),
        (("do_not_keep", "undecided"), "undecided"),
    ],
)
def test_a_setting_is_kept_only_where_it_is_for_all(codes: tuple[str, ...], code: str) -> None:
    rows = ordered(row(float(index), None, code=each) for index, each in enumerate(codes))
    (found,) = overall_of(rows)
    assert isinstance(found, Overall)
    assert found.code == code
    assert "temperature 0" in found.headline
