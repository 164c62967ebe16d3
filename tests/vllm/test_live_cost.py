"""The exporter beside a real server measures the speed-up that the server's own counters show."""

from __future__ import annotations

import dataclasses
import time
from typing import Final

import pytest

from vllm import closed_loop
from vllm.checkpoints import write_checkpoints
from vllm.exporter import Exporter, Exposition, serving
from vllm.language import Language
from vllm.server import Installation, Server

pytestmark = pytest.mark.nightly

K: Final = 3
CLIENTS: Final = 3
SHARE: Final = 0.9  # of the successors that the draft model knows
BASELINE_SECONDS: Final = 12.0
SCRAPE_SECONDS: Final = 5.0
SCRAPES: Final = 8
SECONDS: Final = 180.0  # the first minute after a start is left out


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

    def __sub__(self, other: Decoding) -> Decoding:
        return Decoding(self.tokens - other.tokens, self.steps - other.steps, self.step_seconds - other.step_seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What the exporter said of the server with drafts, and what both servers' own counters say."""

    exposition: Exposition
    status: dict[str, object]
    plain: Decoding
    drafting: Decoding


@pytest.fixture(scope="module")
def measured(installation: Installation, language: Language, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    directory = tmp_path_factory.mktemp("live")
    models = directory / "models"
    models.mkdir()
    write_checkpoints(models, language, target_layers=closed_loop.TARGET_LAYERS)
    plain, drafting = (closed_loop.server(k, installation, models=models, directory=directory) for k in (0, K))
    baseline, prompts = directory / "plain.yaml", closed_loop.prompts(SHARE)
    with closed_loop.running([plain, drafting]):
        with closed_loop.clients(plain, CLIENTS, prompts):
            before = Decoding.of(plain)
            closed_loop.record(plain, baseline, seconds=BASELINE_SECONDS)
            without = Decoding.of(plain) - before
        with (
            closed_loop.clients(drafting, CLIENTS, prompts),
            serving(drafting.url, drafting.log_path, own_log=directory / "exporter.log", baseline=baseline) as exporter,
        ):
            deadline = time.monotonic() + SECONDS
            while not exporter.scrape().select("specdec_speedup_ratio") and time.monotonic() < deadline:
                time.sleep(SCRAPE_SECONDS)
            before = Decoding.of(drafting)
            exposition = scrapes(exporter)
            status = exporter.status()
            return Measured(exposition, status, without, Decoding.of(drafting) - before)


def scrapes(exporter: Exporter) -> Exposition:
    """Scrape at an even pace, as Prometheus does; return the last exposition."""
    for _ in range(SCRAPES):
        time.sleep(SCRAPE_SECONDS)
        exposition = exporter.scrape()
    return exposition


def test_the_speedup_is_that_of_the_servers_own_counters(measured: Measured) -> None:
    plain, drafting = measured.plain, measured.drafting
    truth = drafting.tokens * plain.step_seconds / plain.steps / drafting.step_seconds
    value = measured.exposition.value("specdec_speedup_ratio", basis="measured")
    bounds = measured.exposition.by("bound", "specdec_speedup_bound_ratio", basis="measured")
    assert value == pytest.approx(truth, rel=0.1)
    assert bounds["low"] <= truth <= bounds["high"], (bounds, truth)


def test_break_even_and_cost_are_measured(measured: Measured) -> None:
    plain, drafting = measured.plain, measured.drafting
    slowdown = drafting.step_seconds / drafting.steps / (plain.step_seconds / plain.steps)
    cost = measured.exposition.value("specdec_draft_cost_ratio", basis="measured")
    assert cost == pytest.approx((slowdown - 1.0) / K, rel=0.2)
    assert measured.exposition.value("specdec_break_even_acceptance_ratio", basis="measured") == cost
    assert measured.exposition.value("specdec_draft_cost_ratio", basis="assumed") == 0.5


def test_the_verdict_rests_on_it(measured: Measured) -> None:
    verdict = measured.status["verdict"]
    assert isinstance(verdict, dict)
    assert verdict["basis"] == "measured", verdict
    assert verdict["code"] == "healthy", verdict


def test_the_load_is_that_of_the_clients(measured: Measured) -> None:
    steps = measured.exposition.by("concurrency", "specdec_load_steps_total")
    assert max(steps, key=steps.__getitem__) == "4"
