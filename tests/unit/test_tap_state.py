"""Every request is in one group of each grouping, however many kinds there are; temperatures join in either order."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import FIXTURES, Clock
from specdec_exporter import bounds
from specdec_exporter.config import PredictorSettings, Settings, TapSettings
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import RequestParams
from specdec_exporter.predictor.responses import Junk, ResponseSpeculation, SavedLine, WithoutRecord
from specdec_exporter.predictor.sources.responses import ResponseFollower
from specdec_exporter.serving.tap import TapRuntime
from specdec_exporter.serving.tapfamilies import RATIO_BOUNDS
from specdec_exporter.serving.tapstate import TapState
from specdec_exporter.speculation.requests import OTHER, RequestGroups, band_names


def record(name: str = "cmpl-1", accepted: int = 1, **known: object) -> ResponseSpeculation:
    """One draft of four tokens."""
    found = ResponseSpeculation(
        request_id=name,
        drafts=1,
        draft_tokens=4,
        accepted_tokens=accepted,
        num_speculative_tokens=4,
        steps_by_accepted=tuple(int(index == accepted) for index in range(5)),
    )
    return replace(found, **known)


def temperature(name: str, value: float) -> RequestParams:
    return RequestParams(request_id=name, temperature=value)


def requests(state: TapState, by: str) -> dict[str, int]:
    return {name: counter.requests for name, counter in state.groups.by[by].items() if counter.requests}


# --- groups ---

records = st.builds(
    record,
    accepted=st.integers(0, 4),
    model=st.none() | st.sampled_from(["llama", "sql", "a\nb"]),
    temperature=st.none() | st.floats(0, 3),
    structured=st.none() | st.booleans(),
    header=st.none() | st.text(max_size=3),
)


@settings(max_examples=30)
@given(st.lists(records, max_size=12))
def test_the_groups_of_each_grouping_sum_to_all_requests(found: list[ResponseSpeculation]) -> None:
    groups = RequestGroups(with_header=True)
    for each in found:
        groups.add(each)
    for by in ("adapter", "temperature", "structured", "header"):
        counters = list(groups.by[by].values())
        assert sum(counter.requests for counter in counters) == len(found)
        assert sum(counter.accepted_tokens for counter in counters) == sum(each.accepted_tokens for each in found)
        assert sum(sum(counter.accepted_per_position) for counter in counters) == sum(
            each.accepted_tokens for each in found
        )
        ratios = [counter.ratios(RATIO_BOUNDS) for counter in counters]
        within = Counter({bound: sum(each.counts[i] for each in ratios) for i, bound in enumerate(RATIO_BOUNDS)})
        for bound in RATIO_BOUNDS:
            assert within[bound] == sum(each.accepted_tokens / 4 <= bound for each in found)
        assert sum(each.counts[-1] for each in ratios) == len(found)
        assert math.isclose(sum(each.sum for each in ratios), sum(each.accepted_tokens / 4 for each in found))
        assert all(name.isprintable() for name in groups.by[by])


def test_bands_of_temperature() -> None:
    assert band_names((0.0, 0.5, 1.0)) == ["0", "(0,0.5]", "(0.5,1]", ">1"]
    groups = RequestGroups()
    for value in (0.0, 0.01, 0.5, 0.51, 0.8, 1.0, 1.01, 99.0):
        groups.add(record(temperature=value))
    assert {name: counter.requests for name, counter in groups.by["temperature"].items()} == {
        "0": 1,
        "(0,0.5]": 2,
        "(0.5,0.8]": 2,
        "(0.8,1]": 1,
        ">1": 2,
        "unknown": 0,
    }


def test_many_tenants_are_one_group_and_no_request_is_lost() -> None:
    state = TapState(with_header=True)
    for number in [*range(100), 3]:
        state.observe_response(record(header=f"tenant-{number}", model=f"lora-{number}"))
    for by in ("header", "adapter"):
        found = requests(state, by)
        assert len(found) == bounds.REQUEST_GROUPS + 1
        assert found[OTHER] == 100 - bounds.REQUEST_GROUPS
        assert sum(found.values()) == 101
    assert state.dropped["tap_groups"] == 2 * (100 - bounds.REQUEST_GROUPS)


def test_more_positions_than_are_kept_are_counted() -> None:
    state = TapState()
    wide = replace(record(), num_speculative_tokens=100, steps_by_accepted=(0,) * 100 + (1,), accepted_tokens=100)
    state.observe_response(replace(wide, draft_tokens=100))
    assert state.dropped["positions"] == 100 - bounds.POSITIONS
    assert len(state.all.accepted_per_position) == bounds.POSITIONS


# --- the temperature from the log ---


def joining(clock: Clock | None = None) -> TapState:
    return TapState(log_readable=lambda: True, clock=(clock or Clock()).monotonic)


def test_a_temperature_joins_before_and_after_the_response() -> None:
    state = joining()
    state.observe_event(temperature("chatcmpl-1", 0.0))
    state.observe_response(record("chatcmpl-1"))
    state.observe_response(record("cmpl-2"))
    assert requests(state, "temperature") == {"0": 1}
    state.observe_event(temperature("cmpl-2-0", 0.7))  # as the log names a completion's only prompt
    assert requests(state, "temperature") == {"0": 1, "(0.5,0.8]": 1}


def test_a_response_waits_only_so_long_for_its_temperature() -> None:
    clock = Clock()
    state = joining(clock)
    state.observe_response(record("a"))
    state.count_late()
    assert not requests(state, "temperature")
    clock.advance(bounds.WAITING_SECONDS)
    state.count_late()
    assert requests(state, "temperature") == {"unknown": 1}
    state.observe_response(record("b"))
    state.count_late(ended=True)
    assert requests(state, "temperature") == {"unknown": 2}


def test_without_a_log_nothing_waits_and_a_saved_temperature_needs_none() -> None:
    alone, state = TapState(), joining()
    alone.observe_response(record("a"))
    state.observe_response(record("a", temperature=0.9))
    assert requests(alone, "temperature") == {"unknown": 1}
    assert requests(state, "temperature") == {"(0.8,1]": 1}


def test_requests_that_share_an_id_get_no_temperature_from_each_other() -> None:
    state = joining()
    for value in (0.0, 0.9):
        state.observe_event(temperature("same", value))
    state.observe_response(record("same"))
    assert requests(state, "temperature") == {"unknown": 1}


def test_two_responses_of_one_id_both_count() -> None:
    state = joining()
    for _ in range(2):
        state.observe_response(record("same"))
    state.observe_event(temperature("same", 0.0))
    assert requests(state, "temperature") == {"0": 1, "unknown": 1}


def test_what_waits_is_bounded_on_both_sides() -> None:
    state = joining()
    for number in range(bounds.TAP_WAITING + 5):
        state.observe_response(record(f"r{number}"))
    assert (len(state._waiting), state.all.requests) == (bounds.TAP_WAITING, 5)
    temperatures = state._temperatures
    assert temperatures is not None
    for number in range(bounds.TAP_TEMPERATURES + 5):
        state.observe_event(temperature(f"q{number}", 0.0))
    assert len(temperatures._known) == bounds.TAP_TEMPERATURES


orders = st.permutations([(kind, name) for kind in ("log", "response") for name in ("a", "b", "c")])


@given(orders)
def test_in_every_order_each_request_counts_once_at_its_temperature(order: list[tuple[str, str]]) -> None:
    state = joining()
    values = {"a": 0.0, "b": 0.6, "c": 2.0}
    for kind, name in order:
        if kind == "log":
            state.observe_event(temperature(name, values[name]))
        else:
            state.observe_response(record(name))
    assert requests(state, "temperature") == {"0": 1, "(0.5,0.8]": 1, ">1": 1}


def test_lines_are_counted_by_what_they_hold() -> None:
    state = TapState()
    state.reader.oversized_lines = 4
    for line in (record(), WithoutRecord(), WithoutRecord(), Junk("not UTF-8")):
        state.observe_response(line)
    assert state.lines_by_result == {"record": 1, "without_record": 2, "unreadable": 1, "too_long": 4}
    assert state.junk_reason == "not UTF-8"


# --- where responses come from ---


async def read_to_the_end(path: Path, state_path: Path) -> int:
    """The records that a follower finds which starts and is stopped again."""
    stop, found = asyncio.Event(), list[SavedLine]()
    follower = ResponseFollower((str(path),), ReaderCounters(), state_path=str(state_path))
    await follower.begin()
    assert follower.problem is None
    stop.set()
    await follower.follow(found.append, stop)
    return sum(isinstance(each, ResponseSpeculation) for each in found)


async def test_after_a_restart_it_goes_on_where_it_was(tmp_path: Path) -> None:
    stored, state = tmp_path / "responses.jsonl", tmp_path / "state.json"
    real = (FIXTURES / "responses" / "0.32.0-gateway.jsonl").read_bytes()
    stored.write_bytes(real)
    assert await read_to_the_end(stored, state) == 0  # it begins at the end
    with stored.open("ab") as file:
        file.write(real)
    assert await read_to_the_end(stored, state) == 8
    assert await read_to_the_end(stored, state) == 0


def test_stdin_is_read_once() -> None:
    with pytest.raises(ConfigError, match="together with files"):
        ResponseFollower(("-", "a.jsonl"), ReaderCounters())
    both = Settings(predictors=(PredictorSettings(log_paths=("-",)),))
    with pytest.raises(ConfigError, match="cannot both be read from stdin"):
        TapRuntime(both, TapSettings(paths=("-",)))
