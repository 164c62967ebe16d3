"""At constant truth the verdict hardly ever changes, and a true change is told, though requests are few and alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.benefit import Basis
from specdec_exporter.speculation.evidence import DecodingBaseline, Evidence
from specdec_exporter.speculation.figures import figures
from specdec_exporter.speculation.judging import tell
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.sentences import SUSPECTED
from specdec_exporter.speculation.verdict import VerdictCode
from specdec_exporter.speculation.weighing import Weighed, weigh
from specdec_exporter.state.lastword import Remembered, Said, remembered
from specdec_exporter.state.observing import observe_baseline, observe_event, observe_failure, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from support.builders import Clock, arguments, engine, snapshot

POLICY = load_policy()
HOLD = POLICY.verdict_hold_seconds
WINDOW = 300.0  # as by default; one look per window, so that looks are independent
WINDOWS = 2000


def judged(rate: float, requests: float | None, drafts_each: int = 60) -> Weighed:
    drafts = (requests or 1) * drafts_each
    counts = Counts(drafts=drafts, draft_tokens=3 * drafts, accepted_tokens=3 * drafts * rate, first_tokens=requests)
    return weigh(Evidence(state="drafting", figures=figures(counts, 3, "metrics", WINDOW)), POLICY)


def drawn(truth: float, requests: int, source: random.Random) -> float:
    """Acceptance of a window: requests differ with a correlation of 0.1 within each."""
    alpha, beta = truth * 9, (1 - truth) * 9
    return sum(source.betavariate(alpha, beta) for _ in range(requests)) / requests


def shown(verdicts: Sequence[Weighed]) -> list[str]:
    """What the exporter says at each look."""
    memory: Remembered | None = None
    said: list[str] = []
    for number, verdict in enumerate(verdicts):
        memory = remembered(memory, verdict, WINDOW * number, POLICY)
        said.append(memory.shown.code)
    return said


def changes(said: Sequence[str]) -> int:
    return sum(one != other for one, other in pairwise(said))


# --- effective drafts ---


@given(st.floats(1, 1e9), st.floats(1, 1e6), st.floats(0, 1))
def test_drafts_are_worth_at_most_their_number_and_at_least_their_requests(
    drafts: float, requests: float, correlation: float
) -> None:
    alike, unlike = replace(POLICY, draft_correlation=correlation), replace(POLICY, draft_correlation=0.0)
    effective = alike.effective_drafts(drafts, requests)
    assert min(drafts, requests) * (1 - 1e-9) <= effective <= drafts
    assert effective <= alike.effective_drafts(drafts, 2 * requests)
    assert alike.effective_drafts(drafts, drafts) == unlike.effective_drafts(drafts, requests) == drafts


# --- one judgement ---


def test_one_request_is_preliminary_whatever_it_says() -> None:
    for drafts, worth in ((60, 6), (60_000, 7)):
        verdict = judged(0.9, 1, drafts)
        assert (verdict.code, verdict.preliminary) == (
            "not_measured",
            f"the drafts of 1 request resemble each other and count like {worth}: too few to be sure",
        )
    assert judged(0.9, 3).preliminary is None


# --- what the exporter remembers ---


@pytest.mark.parametrize(
    ("truth", "requests", "changes_before", "changes_now"),
    [
        (0.57, 1, 0.4, 0.0),  # never enough drafts for a word
        (0.65, 20, 0.4, 0.02),
        (0.11, 20, 0.3, 0.02),
    ],
)
def test_at_constant_truth_the_verdict_hardly_ever_changes(
    truth: float, requests: int, changes_before: float, changes_now: float
) -> None:
    """6,000 windows in all."""
    source = random.Random(7)
    verdicts = [judged(drawn(truth, requests, source), requests) for _ in range(WINDOWS)]
    # Before, the word of each window was shown as it came.
    assert changes([verdict.code for verdict in verdicts]) / WINDOWS > changes_before
    assert changes(shown(verdicts)) / WINDOWS <= changes_now


def looked(*words: tuple[VerdictCode, Basis], every: float = WINDOW) -> list[str]:
    """What the exporter says at each of these looks."""
    memory: Remembered | None = None
    said: list[str] = []
    for number, (code, basis) in enumerate(words):
        # Whatever chance leaves possible.
        others = tuple(other for other in get_args(VerdictCode) if other != code)
        weighed = Weighed(code=code, basis=basis, evidence=Evidence(state="drafting"), within_chance=others)
        memory = remembered(memory, weighed, every * number, POLICY)
        said.append(SUSPECTED[0] if memory.shown.suspected else f"{memory.shown.code}, {memory.shown.basis}")
    return [words.removesuffix(", measured") for words in said]


GAIN: tuple[VerdictCode, Basis] = ("healthy", "measured")
UNSURE: tuple[VerdictCode, Basis] = ("watch", "measured")
NO_GAIN: tuple[VerdictCode, Basis] = ("not_paying", "measured")
HARM: tuple[VerdictCode, Basis] = ("harmful", "measured")
FAIR: tuple[VerdictCode, Basis] = ("watch", "assumed")
GOOD: tuple[VerdictCode, Basis] = ("not_measured", "assumed")


def test_a_refuted_word_goes_though_the_looks_since_do_not_agree() -> None:
    said = looked(GAIN, *(UNSURE, NO_GAIN) * 4)
    assert said == ["healthy"] * 6 + ["not_paying"] + ["not_paying"] * 2


def test_a_word_stays_while_some_look_says_it() -> None:
    assert set(looked(*((FAIR, GOOD, FAIR) * 20))) == {"watch, assumed"}
    assert set(looked(*((NO_GAIN, GAIN, GAIN) * 20))) == {"not_paying"}


def test_harm_is_told_when_two_looks_in_a_row_find_it_and_left_when_the_measurement_no_longer_tells_it() -> None:
    assert looked(GAIN, HARM, GAIN, HARM, GAIN) == ["healthy"] * 5
    assert looked(GAIN, HARM, HARM, HARM, UNSURE) == ["healthy", "healthy", "harmful", "harmful", "watch"]
    assert looked(HARM, HARM, GAIN) == [SUSPICION, "harmful", "healthy"]
    assert looked(HARM, HARM, UNSURE, HARM, UNSURE) == [SUSPICION, "harmful", "watch", SUSPICION, "watch"]


def test_what_does_not_pay_is_not_said_to_be_less_certain_when_a_first_look_finds_harm() -> None:
    no_gain, harm = (
        Weighed(code=code, basis="measured", evidence=Evidence(state="drafting")) for code in ("not_paying", "harmful")
    )
    assert shown([no_gain, harm, harm]) == ["not_paying", "not_paying", "harmful"]


def test_two_looks_at_the_same_figures_are_one() -> None:
    """A page that is opened just after a scrape judges the same window again."""
    assert looked(GAIN, HARM, HARM, HARM, every=1.0) == ["healthy"] * 4
    assert looked(GAIN, *[HARM] * 12, every=1.0)[-1] == "harmful"


SUSPICION = "Decoding may be slower with speculation than without it"


def test_gain_that_may_be_none_is_not_kept_by_a_look_now_and_then() -> None:
    said = looked(*[GAIN] * 6, *(UNSURE, UNSURE, GAIN) * 4)
    assert said == ["healthy"] * 6 + ["watch"] * 12
    assert looked(*[GAIN] * 5, UNSURE, GAIN) == ["healthy"] * 7


def test_a_measurement_goes_before_a_guess() -> None:
    assert looked(GOOD, NO_GAIN, GOOD, GOOD) == ["not_measured, assumed", "not_paying", "not_paying", "not_paying"]
    # What it does not tell yet is no word to keep.
    assert looked(GOOD, UNSURE, UNSURE, GAIN) == ["not_measured, assumed", "watch", "watch", "healthy"]
    assert looked(FAIR, UNSURE, NO_GAIN) == ["watch, assumed", "watch", "not_paying"]
    assert looked(UNSURE, HARM, HARM) == ["watch", SUSPICION, "harmful"]
    assert looked(HARM, HARM, *[GOOD] * 7) == [SUSPICION] + ["harmful"] * 6 + ["not_measured, assumed"] * 2


def test_what_chance_cannot_explain_is_told_at_once() -> None:
    assert shown([judged(0.9, 200), judged(0.02, 200), judged(0.9, 200)]) == ["not_measured", "broken", "not_measured"]


def test_a_service_that_is_no_longer_slower_is_not_called_so() -> None:
    slower = Weighed(code="slower", basis="measured", evidence=Evidence(state="drafting"))
    assert shown([slower, judged(0.9, 200)]) == ["slower", "not_measured"]


def test_a_kept_word_has_the_figures_of_now_and_says_how_it_ends() -> None:
    before, after = judged(0.67, 20), judged(0.63, 20)
    memory = remembered(None, before, 0.0, POLICY)
    kept = remembered(memory, after, HOLD - 1, POLICY).shown
    told, (earlier, _) = kept.verdict(POLICY), tell(before, POLICY)
    assert (told.code, told.headline, told.acceptance_ratio) == (
        "not_measured",
        earlier.headline,
        after.acceptance_ratio,
    )
    assert told.reasons[-1] == "the last verdict stands: it ends after 30 minutes in which no reading says not measured"
    assert told.within_chance == ("watch",)
    assert remembered(memory, after, HOLD, POLICY).shown == Said.of(after)


def test_too_few_drafts_keep_the_word_for_a_time() -> None:
    memory = remembered(None, judged(0.8, 100), 0.0, POLICY)
    few, none_yet = judged(0.3, 1), judged(0.3, 1, drafts_each=10)
    for verdict in (few, none_yet):
        assert remembered(memory, verdict, HOLD - 1, POLICY).shown.code == "not_measured"
        gone = remembered(memory, verdict, HOLD, POLICY)
        assert (gone.shown.code, gone.shown.verdict(POLICY).headline) == ("unknown", "Too few drafts for a verdict")
        assert gone.word is None


def test_a_word_survives_an_idle_time_and_an_old_one_does_not() -> None:
    idle = weigh(Evidence(state="idle"), POLICY)
    memory = remembered(remembered(None, judged(0.67, 20), 0.0, POLICY), idle, 60.0, POLICY)
    assert memory.shown == Said.of(idle)
    assert remembered(memory, judged(0.63, 20), 120.0, POLICY).shown.code == "not_measured"
    assert remembered(memory, judged(0.63, 20), HOLD, POLICY).shown.code == "watch"


# --- in the exporter ---


def watched(state: PredictorState, clock: Clock, *rates: float) -> list[str]:
    """Show the state a window of 20 requests by each rate; what it says after each."""
    said: list[str] = []
    drafts = accepted = requests = 0.0
    observe_failure(state, "nothing answers", lost=True)
    observe_snapshot(state, snapshot(engine()))
    for rate in rates:
        clock.advance(WINDOW)
        drafts, accepted, requests = drafts + 1200, accepted + 1200 * rate, requests + 20
        observe_snapshot(state, snapshot(engine(drafts, (accepted,) * 3, requests=requests, running=1)))
        said.append(status_of(state).verdict.code)
    return said


def test_the_exporter_keeps_a_word_for_a_time_and_asking_for_it_changes_nothing(
    state: PredictorState, clock: Clock
) -> None:
    assert watched(state, clock, 0.67, *[0.63] * 6) == ["not_measured"] * 6 + ["watch"]
    assert status_of(state) == status_of(state)


def test_the_status_says_since_when_its_verdict_holds(state: PredictorState, clock: Clock) -> None:
    since = []
    watched(state, clock, 0.67, 0.67)
    for _ in range(2):
        since.append(status_of(state).verdict_since)
        clock.advance(WINDOW)
        observe_failure(state, "nothing answers")
    now = clock.wall()
    assert not status_of(state).verdict_may_be_older
    assert since == [now - 3 * WINDOW, now - WINDOW]
    assert (status_of(state).verdict.code, status_of(state).verdict_since) == ("no_metrics", now - WINDOW)


def test_what_was_so_at_the_first_look_may_be_older(state: PredictorState, clock: Clock) -> None:
    observe_failure(state, "nothing answers")
    watched(state, clock, 0.1, 0.1)
    assert (status_of(state).verdict.code, status_of(state).verdict_may_be_older) == ("watch", True)
    watched(state, clock, 0.9, *[0.1] * 6)
    assert (status_of(state).verdict.code, status_of(state).verdict_may_be_older) == ("watch", False)


def test_a_restart_of_the_predictor_and_other_settings_forget(state: PredictorState, clock: Clock) -> None:
    assert watched(state, clock, 0.67, 0.63) == ["not_measured", "not_measured"]
    observe_event(state, arguments(method="draft_model"))
    assert status_of(state).verdict.code == "watch"
    assert watched(state, clock, 0.67, 0.63) == ["not_measured", "not_measured"]
    assert watched(state, clock, 0.63) == ["watch"]  # its counters began again
    observe_baseline(state, DecodingBaseline(None, 0.0, speculative=False))
    assert status_of(state).verdict.code == "watch"
