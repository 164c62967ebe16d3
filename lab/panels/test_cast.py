"""Each service of the cast plays its part, so that what the other tests look at is there."""

from __future__ import annotations

import pytest

from panels.cast import VIEWS
from panels.database import NOW, Database

pytestmark = pytest.mark.nightly

# By state: the verdicts of its tokens, the most first, and alerts that must fire; None: nothing may fire.
PARTS: dict[str, tuple[list[str], set[str] | None]] = {
    "healthy": (["healthy"], None),
    "single cluster": (["healthy"], None),
    "no baseline, one replica": (["watch"], None),
    "collapse": (["harmful"], {"SpecDecodeHarmful"}),
    "regression": (["not_measured"], {"SpecDecodeP99Regression"}),
    "canary": (["not_measured", "broken"], {"SpecDecodeReplicaOutlier"}),
    "idle": (["idle"], set()),
    "not drafting": (["watch"], {"SpecDecodeNotDrafting"}),
    "unreachable": ([], {"SpecDecodeTargetDown"}),
    "speculation off": (["off"], None),
}

# Nobody is told of it.
FLAG = '{alertname="SpecDecodeAcceptanceLow", severity="info"}'


@pytest.mark.parametrize("state", PARTS)
def test_the_verdict_and_the_alerts_are_what_happened(base: Database, state: str) -> None:
    verdicts, alerts = PARTS[state]
    service = f'{{inference_service="{VIEWS[state]}"}}'
    alerts_now = base.instant(f"ALERTS{service} unless ALERTS{FLAG}", NOW)
    firing = {series["metric"]["alertname"] for series in alerts_now}

    found = base.instant(f"sort_desc(inference_service:specdec_verdict:tokens{service})", NOW)
    assert [series["metric"]["verdict"] for series in found] == verdicts
    for series in found:
        assert ({"cluster", "namespace"} <= series["metric"].keys()) is (state != "single cluster")
    assert alerts <= firing if alerts is not None else not firing


def test_baselines_come_from_every_source_and_one_service_has_none(base: Database) -> None:
    baselines = base.instant('inference_service:specdec_latency:baseline{sli="tpot", stat="mean"}', NOW)
    sources = {series["metric"]["inference_service"]: series["metric"]["source"] for series in baselines}

    assert sources == {
        VIEWS["healthy"]: "control",
        VIEWS["collapse"]: "file",
        VIEWS["single cluster"]: "file",
        VIEWS["regression"]: "history",
    }


def test_a_loss_is_measured_where_drafts_stopped_to_fit_and_a_gain_where_they_fit(base: Database) -> None:
    found = base.instant("inference_service:specdec_speedup:ratio30m", NOW)
    speedups = {series["metric"]["inference_service"]: float(series["value"][1]) for series in found}

    assert speedups.keys() == {VIEWS["collapse"], VIEWS["single cluster"], VIEWS["healthy"]}
    assert speedups[VIEWS["collapse"]] < 0.9
    assert speedups[VIEWS["single cluster"]] > 1.5
