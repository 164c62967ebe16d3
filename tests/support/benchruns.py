"""Results of ``vllm bench serve`` and exports of AIPerf for tests, and what ``compare`` makes of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click import UsageError

from specdec_exporter.comparison.bench import BenchComparison, compare_bench
from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.benchresult import BenchResult, parse_results
from specdec_exporter.speculation.policy import load_policy
from support.builders import FIXTURES
from support.running import commanded

BENCH = FIXTURES / "bench"
runs = itertools.count()


def result(tpot: float = 20.0, *, clients: int | None = 8, drafts: bool = False, **changes: Any) -> dict[str, Any]:
    """A result of 0.33.0 without details: 400 requests of 128 tokens, TPOT in ms; ``drafts``: k = 3, length 2.5.

    Each has a date of its own.
    """
    seconds = 400 / (clients or 400) * (0.06 + 127 * tpot / 1000)
    made: dict[str, Any] = {
        "date": f"20261129-{next(runs):06}",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "Qwen/Qwen3-8B",
        "tokenizer_id": "Qwen/Qwen3-8B",
        "num_prompts": 400,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": clients,
        "duration": seconds,
        "completed": 400,
        "failed": 0,
        "total_input_tokens": 40_000,
        "total_output_tokens": 51_200,
        "request_throughput": 400 / seconds,
        "request_goodput": None,
        "output_throughput": 51_200 / seconds,
        "total_token_throughput": 91_200 / seconds,
        "latencies": [1.0],
        "max_output_tokens_per_s": 900.0,
        "max_concurrent_requests": 9,
        "rtfx": 0.0,
        "mean_ttft_ms": 60.0,
        "median_ttft_ms": 58.0,
        "std_ttft_ms": 9.0,
        "p99_ttft_ms": 90.0,
        "mean_tpot_ms": tpot,
        "median_tpot_ms": tpot,
        "std_tpot_ms": tpot * (0.2 if drafts else 0.04),
        "p99_tpot_ms": tpot * 1.4,
    }
    if drafts:
        made |= {
            "spec_decode_acceptance_rate": 50.0,
            "spec_decode_acceptance_length": 2.5,
            "spec_decode_num_drafts": 20_000,
            "spec_decode_draft_tokens": 60_000,
            "spec_decode_accepted_tokens": 30_000,
            "spec_decode_per_position_acceptance_rates": [0.7, 0.5, 0.3],
        }
    return made | changes


def detailed(tpots: Sequence[float], **changes: Any) -> dict[str, Any]:
    """A result with these seconds per output token of its requests, in the order of their start."""
    number = len(tpots)
    details = {
        "completed": number,
        "num_prompts": number,
        "input_lens": [100] * number,
        "output_lens": [128] * number,
        "ttfts": [0.06] * number,
        "itls": [[each] * 127 for each in tpots],
        "start_times": [float(i) for i in range(number)],
        "latencies": [0.06 + 127 * each for each in tpots],
        "errors": [""] * number,
        "generated_texts": ["text"] * number,
        "total_input_tokens": 100 * number,
        "total_output_tokens": 128 * number,
    }
    return result(1000 * sum(tpots) / number) | details | changes


def parsed(*documents: Mapping[str, Any], name: str = "a.json") -> list[BenchResult]:
    return [each for i, one in enumerate(documents) for each in parse_results(json.dumps(one).encode(), f"{i}{name}")]


def compared(baseline: Sequence[Mapping[str, Any]], candidate: Sequence[Mapping[str, Any]]) -> BenchComparison:
    return compare_bench(parsed(*baseline), parsed(*candidate), load_policy())


def codes(found: BenchComparison) -> list[str]:
    return [flag.code for flag in found.flags]


def ran(*arguments: str | Path) -> tuple[int, str]:
    return commanded("compare", *arguments)


def refused(*arguments: str | Path) -> str:
    """The one line that the command ends with."""
    with pytest.raises((SpecdecError, UsageError)) as error:
        ran(*arguments)
    (line,) = str(error.value).splitlines()
    assert line.isprintable()
    return line


# The keys of an export -> those of a result that have the same figure.
AIPERF = {
    "request_count": "completed",
    "benchmark_duration": "duration",
    "total_isl": "total_input_tokens",
    "total_osl": "total_output_tokens",
    "output_token_throughput": "output_throughput",
}


def aiperf(tpot: float = 20.0, **changes: Any) -> dict[str, Any]:
    """An export of AIPerf 0.13.0: the same run as :func:`result` has, with fixed clients."""
    run = result(tpot)
    scalar = {name: {"unit": "", "avg": float(run[key])} for name, key in AIPERF.items()}
    phases = [{"name": kind, "kind": kind, "type": "concurrency", "concurrency": 8} for kind in ("warmup", "profiling")]
    made: dict[str, Any] = {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "time_to_first_token": {"unit": "ms", "avg": 60.0, "p99": 90.0, "std": 9.0, "count": 400},
        "inter_token_latency": {"unit": "ms", "avg": tpot, "p99": tpot * 1.4, "std": tpot / 5, "count": 400},
        "input_config": {
            "models": {"items": [{"name": "Qwen/Qwen3-8B"}]},
            "endpoint": {"type": "completions", "extra": {"max_tokens": 128, "temperature": 0}},
            "phases": phases,
        },
        "was_cancelled": False,
        "is_complete": True,
    }
    return made | scalar | changes
