"""What clients of real servers measure by their own clocks lies in the interval that is told, and no word is wrong.

A gain above 2 at one client, a loss at four clients, and a gain at a fixed rate of arrivals. The truth is of the very
seconds of the recordings, so a machine with neighbours slows it and them alike.
"""

from __future__ import annotations

import pytest

from specdec_exporter.comparison import decision
from specdec_exporter.speculation.chance import Estimate
from vllm import measured_truth
from vllm.measured_truth import CASES, Outcome
from vllm.server import Installation

pytestmark = pytest.mark.nightly

TOLERANCE = 0.05  # clients see a step a little later than the server, and a span does not end with a request
NEAR = 0.25  # the machine wanders by as much in a minute, and an interval may be wide
GAINS = ("gain-one-client", "gain-fixed-rate")


@pytest.fixture(scope="module")
def outcomes(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    directory = tmp_path_factory.mktemp("truth")
    measured_truth.play([*CASES], installation, directory)
    found = {name: measured_truth.outcome(name, directory) for name in CASES}
    print("\n".join(measured_truth.table(found)))
    return found


@pytest.fixture(params=CASES)
def outcome(outcomes: dict[str, Outcome], request: pytest.FixtureRequest) -> Outcome:
    return outcomes[request.param]


@pytest.fixture(params=GAINS)
def gain(outcomes: dict[str, Outcome], request: pytest.FixtureRequest) -> Outcome:
    return outcomes[request.param]


@pytest.fixture
def loss(outcomes: dict[str, Outcome]) -> Outcome:
    return outcomes["loss-four-clients"]


def covered(told: Estimate | None, truths: tuple[float, ...]) -> bool:
    """Whether one of the truths lies in the interval."""
    if told is None or told.low is None or told.high is None:
        return False
    return any(told.low / (1.0 + TOLERANCE) <= truth <= told.high * (1.0 + TOLERANCE) for truth in truths)


def test_the_cases_are_a_gain_and_a_loss(gain: Outcome, loss: Outcome) -> None:
    assert min(gain.truths) > 1.5
    assert max(loss.truths) < 1.0


def test_one_client_decodes_more_than_twice_as_fast(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["gain-one-client"].speedup > 2.0


def test_the_truth_lies_in_the_interval_of_compare(outcome: Outcome) -> None:
    told = measured_truth.told(outcome.comparison)
    assert covered(told, outcome.truths), (told, outcome.truths, outcome.comparison.speedup)


def test_the_truth_lies_in_the_interval_of_serve(outcome: Outcome) -> None:
    told = measured_truth.told_live(outcome.status)
    assert covered(told, outcome.truths), (told, outcome.truths, outcome.status["verdict"])


def test_the_figure_is_near_the_truth(outcome: Outcome) -> None:
    told = measured_truth.told(outcome.comparison)
    assert told is not None
    assert min(abs(told.value / truth - 1.0) for truth in outcome.truths) < NEAR, (told, outcome.truths)


def test_compare_never_advises_the_contrary(gain: Outcome, loss: Outcome) -> None:
    assert not gain.comparison.decision.action.startswith(decision._OFF), gain.comparison.decision
    assert not loss.comparison.decision.action.startswith(decision._ON), loss.comparison.decision
    assert loss.comparison.decision.code != "faster", loss.comparison.decision


def test_the_verdict_is_no_wrong_word(gain: Outcome, loss: Outcome) -> None:
    assert gain.status["verdict"]["code"] not in {"harmful", "not_paying", "broken", "slower"}, gain.status["verdict"]
    assert loss.status["verdict"]["code"] != "healthy", loss.status["verdict"]
