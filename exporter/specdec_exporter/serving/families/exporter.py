"""The exporter itself: its fetches, its configuration, its process."""

from __future__ import annotations

import functools
import platform
from importlib.resources import files

from specdec_exporter import __version__
from specdec_exporter.errors import FetchReason
from specdec_exporter.serving.families.family import SERVICE, Group, counter, gauge
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.state.problems import PROBLEMS, problems_of

# What builds a package writes the commit into it. A checkout has none.
_REVISION = files("specdec_exporter") / "REVISION"

REASONS: dict[FetchReason, str] = {
    "connect": "no connection: nobody listens, the name has no address",
    "tls": "the certificate is not trusted, or what answers speaks no TLS",
    "timeout": "no complete answer within the scraper's timeout or `--predictor.timeout`",
    "http_status": "another status than 200",
    "redirect": "to another host or port, or too often",
    "credentials": "a file of the token or the certificates cannot be used; nothing was asked",
    "too_large": "more than any predictor answers",
    "truncated": "the answer breaks off",
    "encoding": "compressed, though nobody asked for that; no UTF-8",
    "not_metrics": "something else than metrics, such as HTML",
}


@functools.cache
def revision() -> str:
    """The commit that this was built from, or nothing."""
    return _REVISION.read_text(encoding="ascii").strip() if _REVISION.is_file() else ""


SCRAPE: Group[PredictorRuntime] = Group(
    SERVICE,
    (
        gauge(
            "specdec_up",
            "1 if this scrape's fetch of the predictor's metrics succeeded, else 0. Never remembered.",
            lambda p: p.state.up,
        ),
        counter(
            "specdec_fetch_failures_total",
            "Requests for the predictor's metrics that gave none, by reason. Log, page and check say it in words.",
            lambda p: {reason: p.fetcher.failures[reason] for reason in REASONS},
            labels=("reason",),
        ),
        gauge(
            "specdec_predictor_processes",
            "How many processes answer in turn at the predictor's URL. From 2 on, counters add up what each of them "
            "counts, and gauges show one at a time. A restart or a rollout ends with 1.",
            lambda p: p.state.process_count or None,
        ),
        gauge(
            "specdec_data_problem",
            f"1 for each problem that this exporter sees itself: {', '.join(PROBLEMS)}.",
            lambda p: dict.fromkeys(problems_of(p.state), 1.0),
            labels=("reason",),
        ),
        gauge(
            "specdec_scrape_collector_duration_seconds",
            "Duration of the last fetch (`metrics`) and of the last round of reading (`log`).",
            lambda p: {name: health.duration_seconds for name, health in p.health.items()},
            labels=("collector",),
        ),
        gauge(
            "specdec_scrape_collector_success",
            "1 if the last fetch (`metrics`) or round of reading (`log`) succeeded, else 0. `log` is 0 while there is "
            "no file or one cannot be read. Log, page and check say why.",
            lambda p: {name: health.success for name, health in p.health.items()},
            labels=("collector",),
        ),
    ),
)


EXPORTER: Group[ExporterRuntime] = Group(
    (),
    (
        gauge(
            "specdec_exporter_build_info",
            "1, with the releases of exporter and Python as labels, and the commit, if a build has noted it.",
            lambda _: {(__version__, revision(), platform.python_version()): 1},
            labels=("version", "revision", "pythonversion"),
        ),
        gauge(
            "specdec_exporter_config_last_reload_successful",
            "1 if the last load of the configuration succeeded, else 0. A bad file leaves the one before in force.",
            lambda r: r.last_reload_successful,
        ),
        gauge(
            "specdec_exporter_config_last_reload_success_timestamp_seconds",
            "When the configuration was last loaded successfully, Unix time.",
            lambda r: r.last_reload_success_timestamp,
        ),
        counter(
            "specdec_exporter_dropped_total",
            "What predictors and logs said beyond a bound, and was left out or summed. "
            "The bounds are in docs/limits.md.",
            lambda r: r.dropped,
            labels=("what",),
        ),
    ),
)
