"""How the engines differ, as data: what the tests expect of each, and the table of docs/scale.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from fleet.story import PROBE_STEP

HEADER = ("Difference", "Prometheus 2.42", "Prometheus 3.16", "VictoriaMetrics", "Thanos", "Mimir", "Test")
COLUMNS = ("prometheus-2.42", "prometheus-3", "victoria-metrics", "thanos", "mimir")


@dataclasses.dataclass(frozen=True, slots=True)
class Traits:
    """One engine. ``increase``: over five minutes, of a counter that grew by 60 once, two minutes before their end."""

    increase: float = 100.0
    records_at_once: bool = True  # a rule reads what the one above it has just recorded
    aligned: bool = False  # records are stamped at whole multiples of their interval
    behind: tuple[float, float] = (0.0, 0.0)  # seconds between an evaluation and its record, least and most
    takes_late: bool = False  # samples that are older than the newest of their series
    many_labels: str = ""  # part of the complaint about 50 labels
    many_labels_kept: bool = True
    otlp: str = ""  # part of the complaint about OTLP


TRAITS: Mapping[str, Traits] = {
    "prometheus-2.42": Traits(increase=75.0, otlp="404"),
    "prometheus-3": Traits(),
    "prometheus-pair": Traits(),
    "prometheus-agent": Traits(),
    "victoria-metrics": Traits(
        increase=PROBE_STEP,
        records_at_once=False,
        aligned=True,
        behind=(30.0, 90.0),
        takes_late=True,
        many_labels_kept=False,
    ),
    "thanos": Traits(records_at_once=False),
    "mimir": Traits(behind=(60.0, 60.0), many_labels="err-mimir-max-label-names-per-series", many_labels_kept=False),
}


def _behind(traits: Traits) -> str:
    least, most = traits.behind
    return f"{most:g} s" if least == most else f"{least:g} to {most:g} s"


def _labels(traits: Traits) -> str:
    return "taken" if traits.many_labels_kept else "refused" if traits.many_labels else "dropped, no error"


_ROWS: Mapping[str, tuple[Callable[[Traits], str], str]] = {
    "Staleness: a series that leaves the page": (lambda _: "gone at once", "what_leaves_a_page_is_gone_at_once"),
    "Staleness: a writer that stops": (lambda _: "stays 5 min", "what_ends_without_a_mark_stays_for_five_minutes"),
    "Extrapolation: `increase[5m]` of one step of 60": (
        lambda traits: f"{traits.increase:g}",
        "how_much_a_counter_grew_at_the_edge_of_a_window",
    ),
    "`keep_firing_for`": (lambda _: "yes", "an_alert_outlasts_its_cause"),
    "A rule reads what the rule above recorded": (
        lambda traits: "at once" if traits.records_at_once else "one evaluation later",
        "when_a_rule_reads_what_was_just_recorded",
    ),
    "Records are stamped": (
        lambda traits: "on the whole interval" if traits.aligned else "when evaluated",
        "how_a_slow_record_is_stamped",
    ),
    "A record lies before its evaluation by": (_behind, "how_far_back_it_evaluates"),
    "Samples out of order": (
        lambda traits: "taken" if traits.takes_late else "refused",
        "whether_it_takes_late_samples",
    ),
    "A series of 50 labels (ours: at most 19)": (_labels, "a_series_with_too_many_labels"),
    "vLLM's metrics by OTLP": (
        lambda traits: "404" if traits.otlp == "404" else "refused" if traits.otlp else "read",
        "vllms_metrics_by_otlp_are_read_or_refused",
    ),
}


def rows() -> Iterator[tuple[str, ...]]:
    """The table's rows, each with the test that shows it."""
    for what, (cell, test) in _ROWS.items():
        yield (what, *(cell(TRAITS[name]) for name in COLUMNS), f"`{test}`")
