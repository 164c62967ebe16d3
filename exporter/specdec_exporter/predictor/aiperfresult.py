"""An export of ``aiperf profile``, ``profile_export_aiperf.json``, as a result of ``vllm bench serve``. Pure.

Keys as in ``aiperf/common/models/export_models.py`` of 0.13.0, schema 1.4. Its inter-token latency is the time per
output token of a request: (latency - time to first token) / (output tokens - 1). Drafts are in the file beside it,
where AIPerf could read ``/metrics``: by metric the increases of all engines over the run.
"""

from __future__ import annotations

import math
from typing import Any, Final

Object = dict[str, Any]

# Key of the benchmark: metric, and statistic of it. A total or a rate has its value as the average.
_FIGURES: Final = {
    "duration": ("benchmark_duration", "avg"),
    "completed": ("request_count", "avg"),
    "failed": ("error_request_count", "avg"),
    "total_input_tokens": ("total_isl", "avg"),
    "total_output_tokens": ("total_osl", "avg"),
    "output_throughput": ("output_token_throughput", "avg"),
    "mean_ttft_ms": ("time_to_first_token", "avg"),
    "mean_tpot_ms": ("inter_token_latency", "avg"),
    "std_tpot_ms": ("inter_token_latency", "std"),
    "p99_tpot_ms": ("inter_token_latency", "p99"),
}
_COUNTS: Final = {
    f"spec_decode_{name}": f"vllm:spec_decode_num_{name.removeprefix('num_')}"
    for name in ("num_drafts", "draft_tokens", "accepted_tokens")
}
EXPORT: Final = "profile_export_aiperf.json"
SERVER_METRICS: Final = "server_metrics_export.json"  # beside the export
_MARK: Final = "aiperf_version"


def is_aiperf(document: Object) -> bool:
    """Whether an object is an export of AIPerf."""
    return _MARK in document


def as_bench(document: Object, server_metrics: object) -> Object:
    """Return the export with the keys of ``vllm bench serve``; what the export lacks is missing here too.

    ``server_metrics``: the document beside it, if any. That of another run does not count.
    """
    config = _object(document.get("input_config"))
    models = _objects(_object(config.get("models")).get("items"))
    endpoint = _object(config.get("endpoint"))
    phases = [each for each in _objects(config.get("phases")) if each.get("kind") == "profiling"]
    (phase,) = phases if len(phases) == 1 else ({},)
    found: Object = {
        key: _whole(value)
        for key, (metric, part) in _FIGURES.items()
        if (value := _object(document.get(metric)).get(part)) is not None
    }
    if document.get("was_cancelled") or document.get("is_complete") is False:
        found["completed"] = 0
    if models:
        found["model_id"] = models[0].get("name")
    beside = _object(server_metrics)
    if beside.get("benchmark_id") == document.get("benchmark_id"):
        found |= _counts(_object(beside.get("metrics")))
    return found | {
        "num_prompts": phase.get("requests"),
        "max_concurrency": phase.get("concurrency"),
        "request_rate": phase.get("rate"),
        "backend": f"aiperf {document[_MARK]}, {endpoint.get('type')}",
        "request_parameters": ", ".join(
            f"{key} {value}"
            for key, value in _object(endpoint.get("extra")).items()
            if isinstance(value, str | int | float)
        ),
    }


def _counts(metrics: Object) -> Object:
    """Return the drafts of a run, with the keys of the benchmark; nothing unless all totals are numbers."""
    found: Object = {}
    for key, name in _COUNTS.items():
        series = _objects(_object(metrics.get(name)).get("series"))
        totals = [_object(each.get("stats")).get("total") for each in series]
        numbers = [each for each in totals if isinstance(each, float)]
        if not numbers or len(numbers) < len(totals):
            return {}
        found[key] = _whole(math.fsum(numbers))
    return found


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Object]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _whole(value: object) -> object:
    """Return a count as a whole number: the export has all numbers with a point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
