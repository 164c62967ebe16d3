"""The families about discovery: ``/metrics`` and the table of ``docs/metrics.md`` come from here."""

from __future__ import annotations

from collections.abc import Callable

from specdec_exporter.serving.discovery.discovery import Discovery
from specdec_exporter.serving.discovery.target import ProviderHealth
from specdec_exporter.serving.families import Group, Value, counter, gauge


def _by_provider(read: Callable[[ProviderHealth], float | None]) -> Callable[[Discovery], Value]:
    def of(discovery: Discovery) -> Value:
        found = {provider.name: read(provider.health) for provider in discovery.providers}
        return {name: value for name, value in found.items() if value is not None}

    return of


DISCOVERY: Group[Discovery] = Group(
    (),
    (
        gauge(
            "specdec_discovery_targets",
            "Predictors that this provider found.",
            _by_provider(lambda health: health.targets),
            labels=("provider",),
        ),
        gauge(
            "specdec_discovery_success",
            "1 if the provider's last attempt to look succeeded, else 0. After a failure, what it found before stays.",
            _by_provider(lambda health: health.problem is None),
            labels=("provider",),
        ),
        counter(
            "specdec_discovery_failures_total",
            "Attempts that failed: of asking the Kubernetes API, or of reading a file.",
            _by_provider(lambda health: health.failures),
            labels=("provider",),
        ),
        gauge(
            "specdec_discovery_last_success_timestamp_seconds",
            "When the provider last succeeded, Unix time.",
            _by_provider(lambda health: health.last_success),
            absent="it has not succeeded yet",
            labels=("provider",),
        ),
    ),
    absent="without discovery",
)
