"""Each service of the cast plays its part, so that what the other tests look at is there."""

from __future__ import annotations

import pytest

from dashboards.cast import VIEWS
from dashboards.database import NOW, Database

pytestmark = pytest.mark.nightly

# By state: the verdict's number, and alerts that must fire; None: nothing may fire.
PARTS: dict[str, tuple[int | None, set[str] | None]] = {
    "healthy": (1, None),
    "single cluster": (1, None),
    "no baseline, one replica": (None, None),
    "collapse": (4, {"SpecDecodeHarmful"}),
    "regression": (6, {"SpecDecodeLatencyMeanRegression", "SpecDecodeP99Regression"}),
    "idle": (0, set()),
    "not drafting": (None, {"SpecDecodeNotDrafting"}),
    "unreachable": (None, {"SpecDecodeTargetDown"}),
}


@pytest.mark.parametrize("state", PARTS)
def test_the_verdict_and_the_alerts_are_what_happened(base: Database, state: str) -> None:
    verdict, alerts = PARTS[state]
    service = f'{{inference_service="{VIEWS[state]}"}}'
    firing = {series["metric"]["alertname"] for series in base.instant(f"ALERTS{service}", NOW)}

    if verdict is not None:
        (series,) = base.instant(f"inference_service:specdec_verdict:enum{service}", NOW)
        assert float(series["value"][1]) == verdict
        assert ({"cluster", "namespace"} <= series["metric"].keys()) is (state != "single cluster")
    assert alerts <= firing if alerts is not None else not firing


def test_baselines_come_from_every_source_and_one_service_has_none(base: Database) -> None:
    baselines = base.instant("inference_service:specdec_latency_seconds:mean_baseline", NOW)
    sources = {series["metric"]["inference_service"]: series["metric"]["baseline_source"] for series in baselines}

    assert sources == {
        VIEWS["healthy"]: "control",
        VIEWS["collapse"]: "pinned",
        VIEWS["single cluster"]: "pinned",
        VIEWS["regression"]: "history",
    }


@pytest.mark.parametrize("counter", ["drafts_total", "generation_tokens_total", "request_latency_seconds_bucket"])
def test_a_history_goes_on_without_a_restart(base: Database, counter: str) -> None:
    found = base.instant(f'resets(specdec_{counter}{{inference_service="{VIEWS["regression"]}"}}[30h])', NOW)

    assert {series["value"][1] for series in found} == {"0"}


def test_rules_of_one_group_read_each_other_at_once(base: Database) -> None:
    """No request was slower than the objective; a share other than 0 comes of rates of different moments."""
    found = base.instant("max_over_time(abs(inference_service:specdec_slo_slow_requests:rate5m)[3h:4m])", NOW)

    assert {series["value"][1] for series in found} == {"0"}


def test_a_loss_is_measured_where_drafts_stopped_to_fit_and_a_gain_where_they_fit(base: Database) -> None:
    found = base.instant('inference_service:specdec_speedup:ratio30m{speedup_source="like_load"}', NOW)
    speedups = {series["metric"]["inference_service"]: float(series["value"][1]) for series in found}

    assert speedups.keys() == {VIEWS["collapse"], VIEWS["single cluster"]}
    assert speedups[VIEWS["collapse"]] < 0.9
    assert speedups[VIEWS["single cluster"]] > 1.5


def test_the_gain_falls_with_the_load(base: Database) -> None:
    service = f'{{inference_service="{VIEWS["single cluster"]}"}}[3h]'
    seconds = [f"increase(specdec_load_{part}_seconds_total{service})" for part in ("plain", "compared")]
    found = base.instant(" / ".join(f"sum by (concurrency) ({each})" for each in seconds), NOW)
    speedups = {int(series["metric"]["concurrency"]): float(series["value"][1]) for series in found}

    falling = [speedups[load] for load in (4, 8, 16, 32)]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] > 1.5
    assert falling[-1] < 1
