"""Beside a real server, one recording without drafts tells the speed-up with short and with long prompts.

The recording has both kinds of prompts at three loads, in turn. The truth comes from the servers' own counters: with as
many clients and the same prompts, the one without drafts took so many seconds an output token while it was recorded,
and the other one takes so many. Later the first may take others: a machine with neighbours wanders by a fifth.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from specdec_exporter.speculation.policy import load_policy
from vllm import closed_loop
from vllm.checkpoints import write_checkpoints
from vllm.exporter import Exporter, Exposition, serving
from vllm.language import CYCLE_LENGTH, Language, excerpt
from vllm.server import Installation, Server

pytestmark = pytest.mark.nightly

K: Final = 3
CLIENTS: Final = 4
SHARE: Final = 0.9  # of the successors that the draft model knows
PHASE_SECONDS: Final = 25.0  # of the recording: each kind of prompts at each load, for more than one of its intervals
LOADS: Final = (2, CLIENTS, 8)  # clients
SETTLED_SECONDS: Final = 150.0  # a window of the same prompts, and the slow first minute of a process
PROMPTS: Final = {
    "short": closed_loop.prompts(SHARE),
    "long": tuple(excerpt(SHARE, start=7 * index % CYCLE_LENGTH, length=600) for index in range(CYCLE_LENGTH)),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Decoding:
    """Totals of a server's own metrics."""

    tokens: float  # without the first of each request
    steps: float
    step_seconds: float

    @classmethod
    def of(cls, server: Server) -> Decoding:
        exposition = Exposition(server.metrics())
        generated, first, steps, seconds = (
            exposition.value(f"vllm:{name}") or 0.0
            for name in (
                "generation_tokens_total",
                "time_to_first_token_seconds_count",
                "inter_token_latency_seconds_count",
                "inter_token_latency_seconds_sum",
            )
        )
        return cls(generated - first, steps, seconds)

    def __add__(self, other: Decoding) -> Decoding:
        return Decoding(self.tokens + other.tokens, self.steps + other.steps, self.step_seconds + other.step_seconds)

    def __sub__(self, other: Decoding) -> Decoding:
        return Decoding(self.tokens - other.tokens, self.steps - other.steps, self.step_seconds - other.step_seconds)

    @property
    def seconds_per_token(self) -> float:
        return self.step_seconds / self.tokens


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What the exporter said with one kind of prompts, and what both servers' own counters say."""

    exposition: Exposition
    status: dict[str, Any]
    plain: Decoding
    drafting: Decoding

    @property
    def measured(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status["measured"]
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Outcomes:
    by_prompts: dict[str, Outcome]
    without_drafts: dict[str, Any]  # the status beside the server that does not speculate


@pytest.fixture(scope="module")
def outcomes(installation: Installation, language: Language, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    directory = tmp_path_factory.mktemp("live")
    models = directory / "models"
    models.mkdir()
    write_checkpoints(models, language, target_layers=closed_loop.TARGET_LAYERS)
    plain, drafting = (closed_loop.server(k, installation, models=models, directory=directory) for k in (0, K))
    baseline = directory / "plain.yaml"
    with closed_loop.running([plain, drafting]):
        truth = _recorded(plain, baseline)
        with serving(plain.url, plain.log_path, own_log=directory / "plain.log", baseline=baseline) as exporter:
            without_drafts = exporter.status()
        own_log = directory / "exporter.log"
        found = {}
        for kind, prompts in PROMPTS.items():
            with (
                serving(drafting.url, drafting.log_path, own_log=own_log, baseline=baseline) as exporter,
                closed_loop.clients(drafting, CLIENTS, prompts),
            ):
                before = Decoding.of(drafting)
                exposition = _settled(exporter)
                status, with_drafts = exporter.status(), Decoding.of(drafting) - before
            found[kind] = Outcome(exposition, status, truth[kind], with_drafts)
    return Outcomes(found, without_drafts)


def _recorded(plain: Server, baseline: Path) -> dict[str, Decoding]:
    """Record the server; return what it did meanwhile for :data:`CLIENTS` clients, by kind of prompts."""
    told = dict.fromkeys(PROMPTS, Decoding(0.0, 0.0, 0.0))

    def send() -> None:
        for number, kind in itertools.product(LOADS, PROMPTS):
            with closed_loop.clients(plain, number, PROMPTS[kind]):
                before = Decoding.of(plain)
                time.sleep(PHASE_SECONDS)
                if number == CLIENTS:
                    told[kind] += Decoding.of(plain) - before

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        closed_loop.record(plain, baseline, seconds=PHASE_SECONDS * len(LOADS) * len(PROMPTS))
        sending.result()
    return told


def _settled(exporter: Exporter) -> Exposition:
    time.sleep(SETTLED_SECONDS)
    return exporter.scrape_until(lambda found: bool(found.select("specdec_speedup_bound_ratio")), seconds=60.0)


@pytest.fixture(params=PROMPTS)
def outcome(outcomes: Outcomes, request: pytest.FixtureRequest) -> Outcome:
    return outcomes.by_prompts[request.param]


def test_a_fixed_number_of_clients_gets_what_is_said(outcome: Outcome) -> None:
    truth = outcome.plain.seconds_per_token / outcome.drafting.seconds_per_token
    said = outcome.measured["closed_loop"]
    assert said, outcome.measured
    assert said["value"] == pytest.approx(truth, rel=0.1), (said, truth)
    assert said["low"] <= truth <= said["high"], (said, truth)


def test_the_family_and_the_api_say_the_same(outcome: Outcome) -> None:
    value = outcome.exposition.value("specdec_speedup_ratio", basis="measured", compared=outcome.measured["compared"])
    assert value == pytest.approx(outcome.measured["speedup"]["value"], rel=0.05)


def test_break_even_and_cost_are_measured(outcome: Outcome) -> None:
    cost = outcome.exposition.value("specdec_draft_cost_ratio", basis="measured")
    assert cost is not None
    assert 0.0 < cost < 1.0
    assert outcome.exposition.value("specdec_break_even_acceptance_ratio", basis="measured") == cost
    assumed = load_policy().assumed.levels("draft_model", K, CLIENTS).min
    assert outcome.exposition.value("specdec_draft_cost_ratio", basis="assumed") == assumed


def test_the_verdict_rests_on_it(outcome: Outcome) -> None:
    assert outcome.status["verdict"]["basis"] == "measured", outcome.status["verdict"]
    assert outcome.status["verdict"]["code"] == "healthy", outcome.status["verdict"]


def test_the_load_is_that_of_the_clients(outcome: Outcome) -> None:
    assert CLIENTS / 2 < outcome.measured["concurrency"] <= CLIENTS


def test_beside_the_server_without_drafts_nothing_is_measured(outcomes: Outcomes) -> None:
    assert outcomes.without_drafts["state"] == "speculation_off"
    assert outcomes.without_drafts["measured"] is None
