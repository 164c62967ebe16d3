"""The simulated ``/metrics`` has the shape of the captured ones: families, types, labels and bounds, by release."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.metrics.families import LENGTH_MEANINGS, MEANINGS
from specdec_exporter.simulator.engine import Engine
from specdec_exporter.simulator.exposition import render_metrics
from specdec_exporter.simulator.settings import SimulatorSettings

CAPTURES = pathlib.Path(__file__).parent.parent / "fixtures" / "captures"
VLLM_RULES = pathlib.Path(__file__).parents[2] / "rules" / "rendered" / "specdec-vllm.rules.yaml"


class Shape(NamedTuple):
    """One family as a scraper sees it."""

    type: str
    labels: frozenset[frozenset[str]]  # label names of its samples, without le
    bounds: frozenset[str]


def shapes_of(body: str) -> dict[str, Shape]:
    """The families of an exposition; of families without samples only the type is known."""
    shapes: dict[str, Shape] = {}
    for family in parse_text(body):
        labels = frozenset(frozenset(sample.labels) - {"le"} for sample in family.samples)
        bounds = frozenset(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        shapes[name] = Shape(family.type, labels, bounds)
    return shapes


def simulated(seconds: float = 60, **settings: Any) -> str:
    engine = Engine(SimulatorSettings(**{"max_model_len": 1024, "served_model_name": "tiny", **settings}))
    engine.advance(seconds)
    return render_metrics(engine).decode()


REAL = (
    ("0.6.6.post1-driven/metrics-v0-1.txt", {"vllm_version": "0.6.6.post1"}),
    ("0.8.3-driven/metrics-1-after.txt", {"vllm_version": "0.8.3"}),
    ("0.8.3-driven/metrics-v0-1.txt", {"vllm_version": "0.8.3", "engine_generation": "v0"}),
    ("0.8.5-driven/metrics-1-after.txt", {"vllm_version": "0.8.5"}),
    ("0.8.5-driven/metrics-v0-1.txt", {"vllm_version": "0.8.5", "engine_generation": "v0"}),
    ("0.9.2-driven/metrics-1-after.txt", {"vllm_version": "0.9.2"}),
    ("0.9.2-driven/metrics-v0-1.txt", {"vllm_version": "0.9.2", "engine_generation": "v0"}),
    ("0.9.2-v0-ngram-k5/metrics-2-mid.txt", {"vllm_version": "0.9.2", "engine_generation": "v0"}),
    ("0.10.2-driven/metrics-1-after.txt", {"vllm_version": "0.10.2"}),
    ("0.11.0-driven/metrics-1-after.txt", {"vllm_version": "0.11.0"}),
    ("0.14.1-driven/metrics-1-after.txt", {"vllm_version": "0.14.1"}),
    ("0.20.2-driven/metrics-1-after.txt", {"vllm_version": "0.20.2"}),
    ("0.20.2-driven-2engines/metrics-1-after.txt", {"vllm_version": "0.20.2", "engines": 2}),
    ("0.25.1-draft_model-k3/metrics-1-p90.txt", {"vllm_version": "0.25.1"}),
    ("0.25.1-ngram-k5/metrics-1-high.txt", {"vllm_version": "0.25.1", "k": 5, "method": "ngram"}),
    ("0.32.0-draft_model-k3/metrics-8-p90.txt", {"vllm_version": "0.32.0"}),
    ("0.32.0-draft_model-dp2-api1/metrics-2-after.txt", {"vllm_version": "0.32.0", "engines": 2}),
    ("0.32.0-draft_model-apiservers2/metrics-1-after.txt", {"vllm_version": "0.32.0", "api_servers": 2}),
    ("0.32.0-baseline-nospec/metrics-1-after.txt", {"vllm_version": "0.32.0", "method": None}),
    ("0.33.0-driven/metrics-1-after.txt", {"vllm_version": "0.33.0"}),
)


@pytest.mark.parametrize(("capture", "settings"), REAL, ids=[capture for capture, _ in REAL])
def test_every_simulated_family_has_the_captured_shape(capture: str, settings: dict[str, Any]) -> None:
    real = shapes_of((CAPTURES / capture).read_text())
    ours = shapes_of(simulated(**settings))
    for name, shape in ours.items():
        if not name.startswith("vllm:") and "driven" in capture:
            continue  # the driven captures are of the metrics classes alone, not of the process
        if "driven/metrics-v0" in capture and name == "vllm:cache_config_info":
            continue  # not part of what was driven there
        assert name in real, name
        assert shape.type == real[name].type, name
        if real[name].labels and name != "vllm:cache_config_info":  # its labels are the operator's configuration
            assert shape.labels == real[name].labels, name
            assert shape.bounds == real[name].bounds, name


IN_RULES = set(re.findall(r'__name__=~"\(ray_\)\?vllm\[:_\]([^"]+)"', VLLM_RULES.read_text()))


def is_read(family: str) -> bool:
    """Whether the exporter or a recording takes figures from it, or the rule pack does without an exporter."""
    series = [family + suffix for suffix in ("", "_total", "_bucket", "_sum", "_count")]
    wanted = not {f"vllm:{family}", f"vllm:{family}_count"}.isdisjoint(MEANINGS | LENGTH_MEANINGS)
    return wanted or any(re.fullmatch(rule, one) for rule in IN_RULES for one in series)


@pytest.mark.parametrize(("capture", "settings"), REAL, ids=[capture for capture, _ in REAL])
def test_what_is_simulated_of_a_release_is_what_is_read_of_it(capture: str, settings: dict[str, Any]) -> None:
    def bare(names: Iterable[str]) -> set[str]:
        return {name.removeprefix("vllm:").removesuffix("_total") for name in names if name.startswith("vllm:")}

    served = bare(name for name in shapes_of(simulated(**settings)) if not name.endswith("_created"))
    real = bare(shapes_of((CAPTURES / capture).read_text()))
    if "driven/metrics-v0" in capture:
        real.add("cache_config_info")  # not part of what was driven there
    assert {name for name in real if is_read(name)} == {name for name in served if is_read(name)}
    # by the rest the exporter tells V0 from V1
    assert {name for name in served if not is_read(name)} <= {"cache_config_info", "gpu_prefix_cache_queries"}


def test_before_any_request_v1_shows_zeros_and_v0_only_its_cache() -> None:
    v1 = shapes_of(simulated(0, load="0"))
    v0 = shapes_of(simulated(0, load="0", vllm_version="0.9.2", engine_generation="v0"))
    captured_v0 = shapes_of((CAPTURES / "0.9.2-v0-ngram-k5" / "metrics-0-before-any-request.txt").read_text())
    captured_v1 = shapes_of((CAPTURES / "0.32.0-draft_model-k3" / "metrics-0-before-any-request.txt").read_text())
    assert set(v0) == set(captured_v0)
    assert "vllm:spec_decode_num_drafts_total" in v1
    assert {n for n in v1 if n.startswith("vllm:")} <= set(captured_v1)


def test_several_api_servers_show_request_gauges_only_after_a_request() -> None:
    before = set(shapes_of(simulated(0, load="0", api_servers=2)))
    captured = shapes_of((CAPTURES / "0.32.0-draft_model-apiservers2" / "metrics-0-before.txt").read_text())
    assert before <= set(captured)
    assert "vllm:num_requests_running" not in before
    assert "vllm:num_requests_running" in shapes_of(simulated(api_servers=2))


def test_disabled_stats_leave_only_the_process() -> None:
    assert {name.split("_")[0] for name in shapes_of(simulated(disable_log_stats=True))} == {"process", "python"}


def test_the_rust_front_end_writes_openmetrics() -> None:
    body = simulated(frontend="rust")
    families = {family.name: family for family in parse_openmetrics(body)}  # type: ignore[no-untyped-call]
    drafts = families["vllm:spec_decode_num_drafts"]
    assert drafts.type == "counter"
    assert body.endswith("# EOF\n")
    assert "vllm:spec_decode_num_drafts_total{model_name=" in body
    assert not re.search(r"^vllm:spec_decode.* \d+\.\d+$", body, re.MULTILINE)
    assert not any("created" in name or name.startswith(("process", "python")) for name in families)
    assert "vllm:cache_config_info" not in families


def test_label_values_are_escaped() -> None:
    assert 'model_name="a\\"b\\\\c"' in simulated(served_model_name='a"b\\c')


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"vllm_version": "0.34.0"}, "0.6.6 to 0.33.0"),
        ({"vllm_version": "banana"}, "0.6.6 to 0.33.0"),
        ({"vllm_version": "0.10.0", "engine_generation": "v0"}, "0.9.2"),
        ({"vllm_version": "0.6.6", "engine_generation": "v1"}, "0.7.3"),
        ({"vllm_version": "0.20.2", "frontend": "rust"}, "0.22.1"),
        ({"vllm_version": "0.9.2", "engines": 2}, "0.11.0"),
    ],
)
def test_combinations_no_release_offers_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        simulated(0, **settings)
