"""What a log says as a whole, from events alone."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter.inspection.account import HISTORY_PARTS, SERIES_CAPACITY, Account, Tokens, WindowSeries
from specdec_exporter.inspection.logstory import (
    MAX_CONFIGURATIONS,
    Analysis,
    LogStory,
)
from specdec_exporter.predictor.log.events import (
    EngineStats,
    Event,
    SpecDecoding,
)
from support.builders import arguments, config, known, window

K = 3


def lifetime(accepted: int, drafted: int, timestamp: str | None = None) -> Event:
    """The event of a V0 line."""
    return SpecDecoding(
        timestamp=timestamp,
        accepted_tokens=accepted,
        draft_tokens=drafted,
        acceptance_ratio=accepted / drafted,
        cumulative=True,
        num_speculative_tokens=5,
    )


def told(*events: Event) -> Analysis:
    story = LogStory()
    story.add(events)
    return story.analysis()


def judged(*events: Event) -> Account:
    return known(told(*events).judged)


counts = st.integers(60, 900).flatmap(
    lambda drafts: st.tuples(
        st.lists(st.integers(0, drafts), min_size=K, max_size=K).map(lambda some: sorted(some, reverse=True)),
        st.just(drafts),
    )
)


@settings(max_examples=40)
@given(st.lists(counts, min_size=1, max_size=30))
def test_totals_are_the_sums_of_the_lines_whatever_their_sizes(lines: list[tuple[list[int], int]]) -> None:
    account = judged(*(window(accepted, drafts) for accepted, drafts in lines))
    accepted_tokens = sum(sum(accepted) for accepted, _ in lines)
    drafts = sum(drafts for _, drafts in lines)
    figures = known(account.figures)
    assert figures.accepted_tokens == accepted_tokens
    assert figures.draft_tokens == K * drafts
    assert figures.acceptance_ratio == accepted_tokens / (K * drafts)
    assert figures.drafts == drafts
    assert figures.mean_acceptance_length == 1 + accepted_tokens / drafts
    assert figures.per_position == pytest.approx(
        [sum(accepted[i] for accepted, _ in lines) / drafts for i in range(K)], abs=1e-9
    )


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(10, 20)), max_size=200),
    st.integers(1, 12).map(lambda doublings: 37 * doublings),
)
def test_a_series_keeps_every_token_however_long_it_gets(some: list[tuple[int, int]], copies: int) -> None:
    series = WindowSeries(SERIES_CAPACITY)
    for accepted, drafted in some * copies:
        series.add(Tokens(accepted, drafted))
    accepted, drafted = (copies * sum(column) for column in zip(*some, strict=True)) if some else (0, 0)
    assert series.ratios(1) == ((accepted / drafted,) if some else ())
    assert len(series.ratios(10**9)) <= SERIES_CAPACITY


def test_a_fall_shows_in_thirds_and_history() -> None:
    good = [window([190, 180, 170], 200)] * 300
    bad = [window([40, 4, 0], 200)] * 300
    account = judged(*good, *good, *bad)
    assert account.thirds is not None
    assert account.thirds[0] == pytest.approx(0.9)
    assert account.thirds[1] == pytest.approx(44 / 600)
    assert len(account.history) == HISTORY_PARTS
    assert account.history[0] == pytest.approx(0.9)
    assert account.history[-1] == pytest.approx(44 / 600)


def test_engines_are_told_apart_and_summed() -> None:
    account = judged(
        window([90, 80, 70], 100, engine="000"),
        window([10, 0, 0], 100, engine="001"),
        window([90, 80, 70], 100, engine="000"),
    )
    by_engine = {label: figures.accepted_tokens for label, figures in account.engines}
    assert by_engine == {"0": 480, "1": 10}
    assert known(account.figures).accepted_tokens == 490


def test_a_restart_with_another_k_is_another_account() -> None:
    analysis = told(
        config(timestamp="1"),
        window([9, 8, 7], 100),
        config(timestamp="2", num_speculative_tokens=2),
        window([9, 8], 50),
    )
    first, second = analysis.accounts
    assert (first.speculator.num_speculative_tokens, second.speculator.num_speculative_tokens) == (3, 2)
    assert (first.since, second.since) == ("1", "2")
    assert analysis.judged == second
    assert analysis.total is not None
    assert (analysis.total.drafts, analysis.total.draft_tokens) == (150, 400)
    assert analysis.total.per_position == ()


def test_a_restart_with_the_same_configuration_goes_on_with_its_account() -> None:
    analysis = told(config(), window([9, 8, 7], 100), config(timestamp="later"), window([9, 8, 7], 100))
    (account,) = analysis.accounts
    assert account.starts == 2
    assert account.windows == 2
    assert analysis.total is None


def test_the_number_of_accounts_is_bounded() -> None:
    analysis = told(*(config(num_speculative_tokens=k) for k in range(1, 200)), window([9, 8, 7], 100))
    assert len(analysis.accounts) < MAX_CONFIGURATIONS
    assert analysis.windows == 1


def test_a_single_lifetime_line_is_told_as_it_is() -> None:
    account = judged(lifetime(972, 1380))
    assert known(account.figures).acceptance_ratio == 972 / 1380


BUSY = EngineStats(generation_throughput=100.0)
IDLE = EngineStats(generation_throughput=0.0)


@pytest.mark.parametrize(
    ("events", "code", "words"),
    [
        pytest.param([config(), BUSY], "watch", "nothing is drafted", id="on, but not drafting"),
        pytest.param([config(), IDLE], "idle", "no tokens", id="on, idle"),
        pytest.param([config()], "unknown", "no stats line", id="on, no stats lines"),
        pytest.param([BUSY], "unknown", "no spec-decode line", id="init line missing"),
    ],
)
def test_a_log_without_windows_says_why_that_can_be(events: Iterable[Event], code: str, words: str) -> None:
    verdict = told(*events).verdict
    assert verdict.code == code
    assert words in verdict.headline
    assert verdict.action


@pytest.mark.parametrize(("running", "word", "load"), [(3, "Probably pays", "3"), (200, "May lose", "200")])
def test_a_log_is_judged_at_the_load_of_its_lines(running: int, word: str, load: str) -> None:
    line = msgspec.structs.replace(window([176, 110, 70, 42, 22], 200), requests_running=running)  # 0.42
    verdict = told(config(method="eagle3", num_speculative_tokens=5), line).verdict
    needed = "1.45" if running == 3 else "3.50"
    assert (
        verdict.headline == f"{word}: 3.10 tokens a draft; at {load} requests in decode about {needed} pay off, assumed"
    )


# --- what the line of arguments says ---


def test_arguments_choose_the_policy_and_what_the_engine_says_later_replaces_it() -> None:
    line = window([110, 40, 18], 200)  # 0.28: below what n-gram look-up is assumed to cost, not below a draft model
    lookup = arguments(method="ngram", num_speculative_tokens=3)
    assert told(lookup, line).verdict.headline.startswith("May lose")
    assert told(lookup, config(method="draft_model"), line).verdict.headline.startswith("May pay: 1.84 tokens a draft")


def test_arguments_tell_whether_a_busy_server_should_draft() -> None:
    assert told(arguments(method="mtp", num_speculative_tokens=1), BUSY).verdict.code == "watch"
    assert told(arguments(method="extract_hidden_states", num_speculative_tokens=1), BUSY).verdict.code == "off"
    assert told(arguments(), BUSY).verdict.code == "unknown"  # a checkpoint may bring its own draft


def test_synthetic_acceptance_is_named_and_not_judged_until_another_start() -> None:
    synthetic = arguments(method="draft_model", rejection_sample_method="synthetic")
    analysis = told(synthetic, config(), window([190, 180, 170], 200))
    assert analysis.verdict.code == "unknown"
    assert "synthetic" in analysis.verdict.headline
    assert known(analysis.judged).deployment.rejection_sampling == "synthetic"
    again = told(synthetic, config(), window([190, 180, 170], 200), arguments(), config(), window([190, 180, 170], 200))
    assert again.verdict.code == "not_measured"
    assert [account.deployment.rejection_sampling for account in again.accounts] == ["synthetic", None]


def test_windows_of_a_server_that_extracts_hidden_states_are_not_judged() -> None:
    extracting = config(speculative=False, method="extract_hidden_states", num_speculative_tokens=1)
    assert told(extracting, window([0], 200)).verdict.code == "off"
    assert told(extracting, window([200], 200)).verdict.code == "off"
    both = told(config(), window([190, 180, 170], 200), extracting, window([0], 200))
    assert known(both.judged).config == config()
