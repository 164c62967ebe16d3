"""Engines as a predictor's ``/metrics`` would show them, in every style that releases have."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot

COUNTERS = {
    "drafts": "spec_decode_num_drafts",
    "draft_tokens": "spec_decode_num_draft_tokens",
    "accepted_tokens": "spec_decode_num_accepted_tokens",
    "generation_tokens": "generation_tokens",
    "prompt_tokens": "prompt_tokens",
    "cached_prompt_tokens": "prompt_tokens_cached",
    "preemptions": "num_preemptions",
}
GAUGES = {
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "kv_cache_usage_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
}
HISTOGRAMS = {
    "time_to_first_token": ("time_to_first_token_seconds",),
    "time_per_output_token": ("request_time_per_output_token_seconds",),
    "step_latency": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "request_latency": ("e2e_request_latency_seconds",),
    "request_decode": ("request_decode_time_seconds",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """How a server writes what it has to say."""

    prefix: str = "vllm:"
    total_in_type: bool = False
    total_in_sample: bool = True
    old_names: bool = False
    engine_label: bool = True
    integers: bool = False
    created: bool = False
    types: bool = True
    repeated: bool = False
    blank_lines: bool = False
    timestamps: bool = False
    eof: bool = False
    seed: int = 0


PLAIN = Style()


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def rotated(items: list[str], by: int) -> list[str]:
    return items[by % len(items) :] + items[: by % len(items)]


def lines(family: str, kind: str, samples: list[tuple[str, dict[str, str], float]], style: Style) -> Iterator[str]:
    """One family's group."""
    if style.types:
        yield f"# HELP {family} What it is; no {{braces}} meant."
        yield f"# TYPE {family} {kind}"
    for name, labels, value in samples:
        pairs = rotated([f'{key}="{escape(text)}"' for key, text in labels.items()], style.seed)
        number = repr(int(value)) if style.integers and value.is_integer() else repr(value)
        stamp = " 1700000000000" if style.timestamps else ""
        line = f"{name}{{{','.join(pairs)}}} {number}{stamp}"
        yield line
        if style.repeated:
            yield line
        if style.blank_lines:
            yield ""
    if style.created and kind != "gauge" and style.types:
        yield f"# TYPE {family.removesuffix('_total')}_created gauge"
        yield f'{family.removesuffix("_total")}_created{{model_name="tiny"}} 1.79e+09'


def render(truth: Sequence[EngineSnapshot], style: Style = PLAIN) -> bytes:
    """``truth`` as a server of ``style`` would write it."""
    groups: list[tuple[str, str, list[tuple[str, dict[str, str], float]]]] = []
    own = [
        (one, {"model_name": one.model_name} | ({"engine": one.engine} if style.engine_label else {})) for one in truth
    ]
    total = "_total" if style.total_in_sample else ""
    for field, name in COUNTERS.items():
        samples = [(f"{style.prefix}{name}{total}", labels, getattr(one, field)) for one, labels in own]
        groups.append((name, "counter", [sample for sample in samples if sample[2] is not None]))
    for field, names in GAUGES.items():
        name = names[-1] if style.old_names else names[0]
        samples = [(style.prefix + name, labels, getattr(one, field)) for one, labels in own]
        groups.append((name, "gauge", [sample for sample in samples if sample[2] is not None]))
    name = "spec_decode_num_accepted_tokens_per_pos"
    samples = [
        (f"{style.prefix}{name}{total}", {**labels, "position": str(position)}, value)
        for one, labels in own
        for position, value in reversed((one.accepted_tokens_per_position or {}).items())
    ]
    groups.append((name, "counter", samples))
    samples = [
        (f"{style.prefix}request_success{total}", {**labels, "finished_reason": reason}, value)
        for one, labels in own
        for reason, value in (one.requests_finished or {}).items()
    ]
    groups.append(("request_success", "counter", samples))
    for field, names in HISTOGRAMS.items():
        name = names[-1] if style.old_names else names[0]
        samples = []
        for one, labels in own:
            histogram: Histogram | None = getattr(one, field)
            if histogram is None:
                continue
            for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
                le = "+Inf" if math.isinf(bound) else repr(bound)
                samples.append((f"{style.prefix}{name}_bucket", {**labels, "le": le}, count))
            samples.append((f"{style.prefix}{name}_count", labels, histogram.count))
            samples.append((f"{style.prefix}{name}_sum", labels, histogram.sum))
        groups.append((name, "histogram", samples))

    text = ["# HELP python_info Python", "# TYPE python_info gauge", 'python_info{version="3.12"} 1.0']
    for name, kind, samples in groups[style.seed :] + groups[: style.seed]:
        suffix = "_total" if kind == "counter" and style.total_in_type else ""
        text += lines(f"{style.prefix}{name}{suffix}", kind, samples, style)
    text += ['http_requests_total{handler="/v1/completions"} 3', *(["# EOF"] if style.eof else [])]
    return "\n".join([*text, ""]).encode()
