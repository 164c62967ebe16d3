"""Reading /metrics: every spelling vLLM ever had, and what is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specdec_exporter.errors import ExpositionError
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from support.builders import CAPTURES

DUMPS = sorted(
    path for path in CAPTURES.glob("*/metrics*.txt") if not path.read_bytes().startswith(b"# error")
)  # one capture holds the capturing tool's note instead
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
REAL_DUMP = (CAPTURES / "0.32.0-draft_model-k3" / "metrics-9-temp1.txt").read_bytes()

HEAD = "# HELP vllm:num_requests_running Running.\n# TYPE vllm:num_requests_running gauge\n"


def only_engine(body: str | bytes, content_type: str | None = None) -> EngineSnapshot:
    (engine,) = parse_exposition(body.encode() if isinstance(body, str) else body, content_type).engines
    return engine


def reason(body: bytes, content_type: str | None = None) -> str:
    with pytest.raises(ExpositionError) as caught:
        parse_exposition(body, content_type)
    return caught.value.reason


def truth(capture: str) -> Any:
    return json.loads((CAPTURES / capture / "truth.json").read_text())


# -- what real servers said ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.8.5", "0.9.2", "0.10.2", "0.11.0", "0.14.1", "0.20.2", "0.33.0"])
def test_the_counters_are_what_the_engine_was_fed(version: str) -> None:
    expected = truth(f"{version}-driven")["cases"][0]["expect"]
    engine = only_engine((CAPTURES / f"{version}-driven" / "metrics-1-after.txt").read_bytes())
    assert engine.drafts == expected["num_drafts"]
    assert engine.draft_tokens == expected["drafted"]
    assert engine.accepted_tokens == expected["accepted"]
    assert engine.accepted_tokens_per_position == dict(enumerate(expected["accepted_per_pos"]))
    assert engine.engine == "0"


def renamed(body: bytes, prefix: bytes = b"kserve_") -> bytes:
    """The body as a scrape job of KServe renames it."""
    return body.replace(b"vllm:", prefix + b"vllm:")


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_real_dump_reads_the_same_under_kserves_prefix_and_counts_once_under_both(path: Path) -> None:
    body = path.read_bytes()
    expected = parse_exposition(body)
    doubled = b"".join(part + renamed(part) for part in body.removesuffix(b"# EOF\n").splitlines(keepends=True))

    assert parse_exposition(renamed(body)) == expected
    assert parse_exposition(doubled) == expected


def test_twins_of_another_moment_do_not_take_a_figure_away() -> None:
    now = REAL_DUMP
    later = re.sub(rb"(?m)^(vllm:\S+ )([1-9]\S*)$", lambda line: line[1] + b"%r" % (float(line[2]) + 1), now)

    assert parse_exposition(renamed(later) + now) == parse_exposition(now) != parse_exposition(later)


@pytest.mark.parametrize("path", DUMPS)
def test_a_v0_engine_is_told_from_its_families_even_before_they_have_samples(path: Path) -> None:
    snapshot = parse_exposition(path.read_bytes())
    if "v0" not in f"{path.parent.name}{path.name}":
        assert snapshot.engine_generation in ("v1", None)
        return
    assert (snapshot.engine_generation, snapshot.stats_present) == ("v0", True)
    assert [engine.engine for engine in snapshot.engines] in ([], ["0"])


@pytest.mark.parametrize("path", DUMPS)
def test_lengths_are_read_when_asked_for_and_change_nothing_else(path: Path) -> None:
    plain = parse_exposition(path.read_bytes())
    asked = parse_exposition(path.read_bytes(), lengths=True)
    for one, other in zip(plain.engines, asked.engines, strict=True):
        assert (one.prompt_length, one.generation_length) == (None, None)
        assert msgspec.structs.replace(other, prompt_length=None, generation_length=None) == one
        if other.request_latency is not None:
            assert other.prompt_length is not None
            assert other.generation_length is not None
            assert other.prompt_length.count == other.generation_length.count == other.request_latency.count


@pytest.mark.parametrize(
    ("body", "generation"),
    [
        ("# HELP vllm:spec_decode_draft_acceptance_rate Rate.\n", "v0"),
        ('vllm:spec_decode_num_emitted_tokens_total{model_name="m"} 5\n', "v0"),
        ("# TYPE vllm:time_in_queue_requests histogram\nvllm:prefix_cache_queries_total 1\n", "v0"),
        ('vllm:cache_config_info{block_size="16"} 1\n', "v0"),  # 0.9.2, multiprocess, before any request
        ('vllm:cache_config_info{block_size="16"} 1\nvllm:gpu_prefix_cache_queries_total 1\n', "v1"),  # 0.8.2
        ('vllm:cache_config_info{engine="0"} 1\nvllm:num_requests_running{engine="0"} 1\n', "v1"),
        ('vllm:num_requests_running{model_name="m"} 1\n', "v1"),
    ],
)
def test_the_engine_is_told_from_what_only_it_declares(body: str, generation: str) -> None:
    assert parse_exposition(body.encode()).engine_generation == generation


def test_v0_gauges_are_lifetime_figures_and_nan_is_none() -> None:
    engine = only_engine((CAPTURES / "0.9.2-driven" / "metrics-v0-1.txt").read_bytes())
    assert engine.lifetime_acceptance_ratio == 0.6
    engine = only_engine((CAPTURES / "0.9.2-driven" / "metrics-v0-nan.txt").read_bytes())
    assert engine.lifetime_acceptance_ratio is None
    assert engine.accepted_tokens == 45.0


def test_multiprocess_gauges_may_be_missing() -> None:
    engine = only_engine((CAPTURES / "0.32.0-draft_model-apiservers2" / "metrics-0-before.txt").read_bytes())
    assert (engine.requests_running, engine.kv_cache_usage_ratio, engine.drafts) == (None, None, 0.0)


# -- spellings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        'vllm:spec_decode_num_drafts_created{model_name="m"} 1.79e+09',
        'vllm:diffusion_num_committed_tokens_total{model_name="m"} 5',
        'vllm:iteration_tokens_total_count{model_name="m"} 5',
        'vllm:prompt_tokens_cached_by_source_total{model_name="m",source="device"} 5',
        'xvllm:spec_decode_num_drafts_total{model_name="m"} 5',
    ],
)
def test_a_name_that_only_begins_or_ends_like_ours_is_another(line: str) -> None:
    assert only_engine(f'vllm:num_requests_running{{model_name="m"}} 1\n{line}\n') == EngineSnapshot(
        model_name="m", engine="0", requests_running=1.0
    )


@pytest.mark.parametrize(
    ("lines", "cached"),
    [
        (["prompt_tokens_cached_total 5", "prefix_cache_hits_total 4"], 5.0),
        (["prefix_cache_hits_total 4", "gpu_prefix_cache_hits_total 4"], 4.0),
        (["gpu_prefix_cache_hits_total 4"], None),  # before 0.9.2 these are blocks
        (["prompt_tokens_total 9"], None),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_cached_prompt_tokens_are_tokens_in_every_release(lines: list[str], cached: float | None, order: int) -> None:
    engine = only_engine("".join(f"vllm:{line}\n" for line in lines[::order]))
    assert engine.cached_prompt_tokens == cached


def test_hits_of_the_prefix_cache_are_the_cached_prompt_tokens_of_a_real_server() -> None:
    engine = only_engine((CAPTURES / "0.32.0-ngram-k5" / "metrics-2-bad-copy.txt").read_bytes())
    assert engine.cached_prompt_tokens == engine.prefix_cache_hits == 384.0


def histogram(name: str, counts: tuple[float, float, float], *, total: str = "1.5", count: str | None = None) -> str:
    lines = [
        f'{name}_bucket{{le="{le}",model_name="m"}} {value}'
        for le, value in zip(("0.1", "1.0", "+Inf"), counts, strict=True)
    ]
    return "\n".join(
        [*lines, f'{name}_sum{{model_name="m"}} {total}', f'{name}_count{{model_name="m"}} {count or counts[2]}', ""]
    )


NEW, OLD = "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"


@pytest.mark.parametrize("order", [1, -1])
def test_where_two_names_of_a_figure_stand_the_newer_wins(order: int) -> None:
    kv = ['vllm:kv_cache_usage_perc{model_name="m"} 0.5\n', 'vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n']
    latency = [histogram(NEW, (1, 2, 3)), histogram(OLD, (4, 5, 6))]
    engine = only_engine("".join([*kv[::order], *latency[::order]]))
    assert engine.kv_cache_usage_ratio == 0.5
    assert engine.step_latency is not None
    assert engine.step_latency.counts == (1.0, 2.0, 3.0)


def test_labels_are_unescaped_and_may_hold_anything() -> None:
    body = r'vllm:num_requests_running{ engine = "0" , model_name="a\\b\"c\nd},{e=\"f\" é", } 3 1700000000000' + "\n"
    assert only_engine(body) == EngineSnapshot(model_name='a\\b"c?d},{e="f" é', engine="0", requests_running=3.0)


# -- values that are none --------------------------------------------------------------------------------------------


def test_no_counter_of_a_real_server_is_called_unusable() -> None:
    bodies = [path.read_bytes() for path in sorted(CAPTURES.rglob("metrics*.txt"))]
    answers = [body for body in bodies if not body.startswith(b"# error")]
    assert len(answers) > 50
    assert [told for body in answers if (told := parse_exposition(body).unusable)] == []


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "inf", "nan"])
def test_a_value_that_can_be_no_count_is_dropped_alone(value: str) -> None:
    body = f'vllm:generation_tokens_total{{model_name="m"}} {value}\nvllm:prompt_tokens_total{{model_name="m"}} 4\n'
    engine = only_engine(body)
    assert (engine.generation_tokens, engine.prompt_tokens) == (None, 4.0)


def test_a_repeated_series_counts_once_and_a_contradicted_one_not_at_all() -> None:
    engine = only_engine(
        'vllm:generation_tokens_total{model_name="m"} 4\nvllm:prompt_tokens_total{model_name="m",engine="0"} 5\n'
        'vllm:generation_tokens_total{model_name="m"} 4\nvllm:prompt_tokens_total{engine="0",model_name="m"} 6\n'
    )
    assert (engine.generation_tokens, engine.prompt_tokens) == (4.0, None)


def test_half_a_curve_is_no_curve() -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    sound = f'{name}{{model_name="m",position="0"}} 4\n{name}{{model_name="m",position="1"}} 2\n'
    assert only_engine(sound).accepted_tokens_per_position == {0: 4.0, 1: 2.0}
    for line in (
        f'{name}{{model_name="m",position="1"}} 3',
        f'{name}{{model_name="m",position="2"}} NaN',
        f'{name}{{model_name="m",position="two"}} 1',
        f'{name}{{model_name="m"}} 1',
    ):
        assert only_engine(f"{sound}{line}\n").accepted_tokens_per_position is None


@pytest.mark.parametrize(
    "body",
    [
        histogram(NEW, (1, 2, 3), count="4"),
        histogram(NEW, (2, 1, 3)),
        histogram(NEW, (1, 2, 3), total="NaN"),
        histogram(NEW, (1, math.nan, 3)),
        histogram(NEW, (1, 2, 3)).replace('le="+Inf"', 'le="5"'),
        histogram(NEW, (1, 2, 3)).replace('le="1.0"', 'le="x"'),
        histogram(NEW, (1, 2, 3)).replace('le="1.0",', ""),
        re.sub(".*_sum.*\n", "", histogram(NEW, (1, 2, 3))),
        re.sub(".*_count.*\n", "", histogram(NEW, (1, 2, 3))),
        histogram(NEW, (1, 2, 3)) + f'{NEW}_sum{{model_name="m"}} 2\n',
    ],
)
def test_a_histogram_is_kept_whole_or_not_at_all(body: str) -> None:
    assert only_engine(body).step_latency is None


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!DOCTYPE html>\n<html><body>404</body></html>\n",
        b'{"detail":"Not Found"}',
        b'{"detail":"Not Found"}\n',
        b"Internal Server Error",
        b"# error URLError(ConnectionRefusedError(111, 'Connection refused'))\n",
        b"process_start_time_seconds \n",
        b'vllm:num_requests_running{ ="m"} 1\n',  # prometheus_client raises an IndexError
        b"vllm:num_requests_running 1 1" + 400 * b"0" + b"\n",  # and an OverflowError
        b'vllm:num_requests_running{model_name="m"} one\n',
        b'vllm:num_requests_running{model_name="m" 1\n',
        b'vllm:num_requests_running{engine="0",engine="1"} 1\n',
        b"\x00\x01\x02garbage\n",
    ],
)
def test_what_is_no_exposition_is_refused(body: bytes) -> None:
    assert reason(body) == "not_metrics"


def test_a_sample_of_ours_behind_a_carriage_return_is_not_skipped() -> None:
    for series in (b"vllm:spec_decode_num_drafts_total{", b"vllm:num_requests_running{"):
        assert parse_exposition(REAL_DUMP.replace(b"\n" + series, b"\n\r" + series)) == parse_exposition(REAL_DUMP)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.79e+09", 1.79e9),
        ("1790000000.5 1790000001000", 1790000000.5),
        ("NaN", None),
        ("-1", None),
        ("1e400", None),
    ],
)
def test_the_start_time_is_that_of_the_process(text: str, seconds: float | None) -> None:
    found = parse_exposition(f"{HEAD}# HELP x y\nprocess_start_time_seconds {text}\n".encode())
    assert found.process_start_time_seconds == seconds
    of_another = f'{HEAD}# HELP process_start_time_seconds 3\nprocess_start_time_seconds{{pid="1"}} 3\n'
    assert parse_exposition(of_another.encode()).process_start_time_seconds is None


def test_openmetrics_without_its_end_is_truncated() -> None:
    body = f"{HEAD}vllm:num_requests_running 1\n"
    assert reason(body.encode(), OPENMETRICS) == "truncated"
    assert parse_exposition(f"{body}# EOF".encode(), OPENMETRICS).stats_present


def test_text_needs_no_end_whatever_version_its_content_type_claims() -> None:
    assert parse_exposition(REAL_DUMP, "text/plain; version=1.0.0; charset=utf-8").stats_present


@pytest.mark.parametrize(
    "body",
    [
        b"\x1f\x8b\x08\x00rest\n",
        b"\x28\xb5\x2f\xfdrest\n",
        HEAD.encode("utf-16"),
        HEAD.encode() + b'vllm:num_requests_running{model_name="\xff"} 1\n',
    ],
)
def test_what_is_not_utf_8_is_refused_where_it_is_read(body: bytes) -> None:
    assert reason(body) == "encoding"


def test_what_is_not_read_may_be_anything() -> None:
    body = HEAD.encode() + b'http_requests_total{handler="\xff\xfe"} 1\n# HELP x \xff\nvllm:num_requests_running 1\n'
    assert only_engine(body).requests_running == 1.0
