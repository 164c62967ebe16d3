"""The assumed break-even against services that are published with and without speculation."""

from __future__ import annotations

import pytest

import breakeventables
from breakeventables import Service
from specdec_exporter.speculation.policy import load_policy

ASSUMED = load_policy().assumed
CASES = [
    pytest.param(service, load, speedup, id=f"{service.service}, k={service.k}, {load} requests")
    for service in breakeventables.services()
    for load, speedup in service.speedups().items()
]


@pytest.mark.parametrize(("service", "load", "speedup"), CASES)
def test_no_service_that_gains_is_called_low_and_none_that_loses_is_called_good(
    service: Service, load: int, speedup: float
) -> None:
    verdict = service.verdict(load)
    assert verdict.basis == "assumed"
    if speedup > 1.0:
        assert verdict.headline.startswith(("May pay: ", "Probably pays: "))
    else:
        assert verdict.code != "healthy"


@pytest.mark.parametrize(("service", "load", "speedup"), CASES)
def test_the_watch_level_is_the_dearest_published_cost_at_light_and_at_heavy_load(
    service: Service, load: int, speedup: float
) -> None:
    if service.of is not None or ASSUMED.light_requests < load < ASSUMED.heavy_requests:
        return  # the length is another server's, or the level lies between two that are checked
    levels = ASSUMED.levels(service.method, service.k, load or None)
    assert service.cost(speedup) <= levels.watch


def test_the_load_of_a_log_or_of_metrics_makes_the_difference() -> None:
    light, heavy = (ASSUMED.levels("eagle3", 5, load) for load in (3.0, 200.0))
    assert (light.min, heavy.min) == (0.09, 0.5)
    assert ASSUMED.levels("eagle3", 5, 16.0).min == pytest.approx((0.09 + 0.5) / 2)
    # A load that is not known is no reason to call a service low, and none to call it good.
    unknown = ASSUMED.levels("eagle3", 5, None)
    assert (unknown.min, unknown.watch) == (light.min, heavy.watch)
    assert ASSUMED.levels("eagle3", None, None) == ASSUMED.levels("eagle3", 1, None)
