"""Each service of the cast plays its part, so that what the other tests look at is there."""

from __future__ import annotations

import pytest

from dashboards.cast import VIEWS
from dashboards.database import NOW, Database


def values(base: Database, expression: str) -> list[float]:
    return [float(series["value"][1]) for series in base.instant(expression, NOW)]


def firing(base: Database, state: str) -> set[str]:
    return {
        series["metric"]["alertname"] for series in base.instant(f'ALERTS{{inference_service="{VIEWS[state]}"}}', NOW)
    }


@pytest.mark.parametrize(
    ("state", "verdict"), [("healthy", 1), ("collapse", 4), ("regression", 1), ("single cluster", 1), ("idle", 0)]
)
def test_the_verdict_is_what_happened(base: Database, state: str, verdict: float) -> None:
    assert values(base, f'inference_service:specdec_verdict:enum{{inference_service="{VIEWS[state]}"}}') == [verdict]


def test_what_is_wrong_fires(base: Database) -> None:
    assert {"SpecDecodeAcceptanceLow", "SpecDecodeHarmful"} <= firing(base, "collapse")
    assert {"SpecDecodeLatencyMeanRegression", "SpecDecodeP99Regression"} <= firing(base, "regression")
    assert "SpecDecodeNotDrafting" in firing(base, "not drafting")
    assert "SpecDecodeTargetDown" in firing(base, "unreachable")


@pytest.mark.parametrize("state", ["healthy", "single cluster", "no baseline, one replica"])
def test_what_is_right_does_not_fire(base: Database, state: str) -> None:
    assert firing(base, state) == set()


def test_baselines_come_from_every_source_and_one_service_has_none(base: Database) -> None:
    baselines = base.instant("inference_service:specdec_latency_seconds:mean_baseline", NOW)
    sources = {series["metric"]["inference_service"]: series["metric"]["baseline_source"] for series in baselines}

    assert sources == {
        VIEWS["healthy"]: "control",
        VIEWS["collapse"]: "pinned",
        VIEWS["single cluster"]: "pinned",
        VIEWS["regression"]: "history",
    }


def test_one_service_has_neither_cluster_nor_namespace(base: Database) -> None:
    (series,) = base.instant(
        f'inference_service:specdec_verdict:enum{{inference_service="{VIEWS["single cluster"]}"}}', NOW
    )

    assert not {"cluster", "namespace"} & series["metric"].keys()


@pytest.mark.parametrize("counter", ["drafts_total", "generation_tokens_total", "request_latency_seconds_bucket"])
def test_a_history_goes_on_without_a_restart(base: Database, counter: str) -> None:
    found = values(base, f'resets(specdec_{counter}{{inference_service="{VIEWS["regression"]}"}}[30h])')

    assert set(found) == {0.0}


def test_rules_of_one_group_read_each_other_at_once(base: Database) -> None:
    """No request was slower than the objective; a share other than 0 comes of rates of different moments."""
    found = values(base, "max_over_time(abs(inference_service:specdec_slo_slow_requests:rate5m)[3h:4m])")

    assert set(found) == {0.0}
