"""Counters that no release has yet: read where a build has them, used where they make a figure exact."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specdec_exporter.config import PredictorSettings
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, without_drafts
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.speculation.evidence import Evidence
from specdec_exporter.speculation.figures import Figures, counts_of, figures
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.state.observing import observe_event, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from support.builders import CAPTURES, Clock, arguments, known, started
from support.proposedmetrics import Server

FULL = [(3, 3, 3), (3, 3, 2), (3, 3, 3), (3, 3, 1), (3, 3, 0)]
# As at the end of answers: half of the drafts have one token. Where a token was drafted, 4 of 5 are accepted.
SHORT = [*[(3, 3, 3)] * 4, (3, 3, 0), *[(1, 1, 1)] * 4, (1, 1, 0)] * 100
# One token of each draft is verified: 72 % of those are accepted.
TRIMMED = [*[(3, 1, 1)] * 72, *[(3, 1, 0)] * 28] * 10


def read(server: Server) -> EngineSnapshot:
    (engine,) = parse_exposition(server.body).engines
    return engine


def seen(server: Server, *, adaptive: bool = False) -> Figures:
    return figures(counts_of(read(server)), 3, "metrics", 300.0, adaptive_verification=adaptive)


def families(body: str) -> list[tuple[str, str, str, list[tuple[str, tuple[tuple[str, str], ...], float]]]]:
    return [
        (
            family.name,
            family.type,
            family.documentation,
            [(sample.name, tuple(sorted(sample.labels.items())), sample.value) for sample in family.samples],
        )
        for family in text_string_to_metric_families(body)
        if "spec_decode" in family.name and not family.name.endswith("_created")
    ]


def test_the_server_of_these_tests_writes_what_a_release_writes() -> None:
    captured = (CAPTURES / "0.33.0-driven" / "metrics-1-after.txt").read_text()
    accepted = [(3, 3, 3), (3, 3, 3), (3, 3, 2), (3, 3, 1), (3, 3, 0)]
    assert families(Server(3, proposed=False).serve(accepted).body.decode()) == families(captured)


def test_the_counters_are_read_where_they_are_and_absent_elsewhere() -> None:
    engine = read(Server(3).serve(SHORT).finish(0.2, 0.8, 1.0))
    assert (engine.draft_tokens, engine.verified_tokens) == (2000, 2000)
    assert engine.draft_tokens_per_position == {0: 1000, 1: 500, 2: 500}
    assert known(engine.request_acceptance).counts == (1, 1, 1, 3, 3)
    bare = read(Server(3, proposed=False).serve(SHORT))
    for each in (bare, without_drafts(parse_exposition(Server(3).serve(SHORT).body)).engines[0]):
        assert (each.verified_tokens, each.draft_tokens_per_position, each.request_acceptance) == (None, None, None)


def test_the_curve_has_its_true_denominators() -> None:
    exact, low = seen(Server(3).serve(SHORT)), seen(Server(3, proposed=False).serve(SHORT))
    assert exact.per_position == pytest.approx((0.8, 0.8, 0.8))
    assert low.per_position == pytest.approx((0.8, 0.4, 0.4))
    assert (exact.short_drafts, low.short_drafts) == (False, True)
    assert exact.acceptance_ratio == low.acceptance_ratio == pytest.approx(0.8)
    assert seen(Server(3).serve([(1, 1, 1)])).per_position == (1.0,)
    full, plain = seen(Server(3).serve(FULL)), seen(Server(3, proposed=False).serve(FULL))
    assert (full.per_position, full.conditional) == (plain.per_position, plain.conditional)


def test_acceptance_is_of_the_verified_tokens() -> None:
    told, silent = (seen(Server(3, proposed=proposed).serve(TRIMMED), adaptive=True) for proposed in (True, False))
    assert told.acceptance_ratio == pytest.approx(0.72)
    assert silent.acceptance_ratio is None
    assert (told.verified_tokens, silent.verified_tokens) == (1000, None)
    assert told.per_position == silent.per_position == (0.72,)
    assert told.mean_draft_length is None
    evidence = Evidence(
        state="drafting",
        figures=told,
        method="eagle3",
        num_speculative_tokens=3,
        deployment=Deployment(adaptive_verification=True),
    )
    verdict = judge(evidence, load_policy()).verdict
    accepted = known(verdict.acceptance_ratio)
    assert (accepted.value, accepted.low, accepted.high) == pytest.approx((0.72, 0.6, 0.82), abs=0.01)


@pytest.mark.parametrize(("adaptive", "proposed"), [(True, True), (False, True), (True, False), (False, False)])
async def test_what_is_served_and_shown(adaptive: bool, proposed: bool) -> None:
    clock, server = Clock(), Server(3, proposed=proposed)
    async with started(PredictorSettings(name="svc")) as runtime:
        state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
        runtime.predictors[0].state = state
        observe_event(
            state, arguments(method="eagle3", num_speculative_tokens=3, enable_adaptive_verification=adaptive)
        )
        for _ in range(30):
            observe_snapshot(state, parse_exposition(server.serve(TRIMMED).body))
            if proposed:
                server.finish(0.7)
            clock.advance(15)
        served = {family.name: list(family.samples) for family in SpecdecCollector(runtime).collect()}
    expected = 0.72 if proposed else None if adaptive else 0.24
    assert known(status_of(state).window).acceptance_ratio == (expected and pytest.approx(expected))
    assert status_of(state).history[-1].acceptance_ratio == (expected and pytest.approx(expected))
    assert bool(served.get("specdec_acceptance_ratio")) is bool(expected)
    assert bool(served.get("specdec_window_acceptance_ratio")) is bool(expected)
    requests = {sample.name: sample.value for sample in served.get("specdec_request_acceptance_ratio", [])}
    assert requests.get("specdec_request_acceptance_ratio_count") == (29 if proposed else None)
