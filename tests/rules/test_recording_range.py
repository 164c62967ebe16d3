"""Recording a baseline from a range of a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

import tsdb
from fieldtools import either
from promtool import promtool
from specdec_exporter.baseline.file import Baseline, Context, parse_baseline, read_baseline, to_yaml
from specdec_exporter.baseline.prometheus import record_range
from specdec_exporter.commands import cli
from specdec_exporter.errors import BaselineError

START = 1_790_000_000
STEP = 15
HOUR = 3600
END = datetime.fromtimestamp(START + HOUR, UTC)
BOUNDS = ("0.05", "0.1", "+Inf")
OWN = 'inference_service="%s",model_name="tiny",engine="%s",namespace="prod",job="specdec"'


def histogram(name: str, labels: str, n: float, bounds: tuple[str, ...] = BOUNDS) -> dict[str, float]:
    """Of each two requests one is in the first bucket and one in the second; their mean is 0.06 s."""
    counts = [n / 2, *[n] * (len(bounds) - 1)]
    return {
        **{f'{name}_bucket{{{labels},le="{le}"}}': count for le, count in zip(bounds, counts, strict=True)},
        f"{name}_sum{{{labels}}}": n * 0.06,
        f"{name}_count{{{labels}}}": n,
    }


def exported(service: str, n: float, engine: str = "0", bounds: tuple[str, ...] = BOUNDS) -> dict[str, float]:
    """What the exporter shows after ``n`` requests of 21 tokens each: 8 drafts of 3 tokens, 12 of them accepted."""
    labels = OWN % (service, engine)
    return {
        f"specdec_drafts_total{{{labels}}}": 8 * n,
        f"specdec_draft_tokens_total{{{labels}}}": 24 * n,
        f"specdec_accepted_tokens_total{{{labels}}}": 12 * n,
        f'specdec_accepted_tokens_per_position_total{{{labels},position="0"}}': 6 * n,
        f'specdec_accepted_tokens_per_position_total{{{labels},position="1"}}': 4 * n,
        f'specdec_accepted_tokens_per_position_total{{{labels},position="2"}}': 2 * n,
        f"specdec_generation_tokens_total{{{labels}}}": 21 * n,
        f"specdec_prompt_tokens_total{{{labels}}}": 10 * n,
        f"specdec_preemptions_total{{{labels}}}": 0,
        f'specdec_requests_finished_total{{{labels},finished_reason="stop"}}': n / 2,
        f'specdec_requests_finished_total{{{labels},finished_reason="length"}}': n / 2,
        **histogram("specdec_time_to_first_token_seconds", labels, n, bounds),
        **histogram("specdec_time_per_output_token_seconds", labels, n, bounds),
        **histogram("specdec_step_latency_seconds", labels, 8 * n, bounds),
        f'specdec_predictor_info{{{labels},vllm_version="0.32.0",engine_generation="v1",method="eagle3"}}': 1,
        f"specdec_num_speculative_tokens{{{labels}}}": 3,
    }


def of_predictor(n: float) -> dict[str, float]:
    """The same of a predictor that is scraped itself."""
    labels = 'model_name="tiny",engine="0",namespace="raw",job="vllm"'
    return {
        f"vllm:spec_decode_num_drafts_total{{{labels}}}": 8 * n,
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}}": 24 * n,
        f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}}": 12 * n,
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="0"}}': 12 * n,
        f"vllm:generation_tokens_total{{{labels}}}": 21 * n,
        f'vllm:request_success_total{{{labels},finished_reason="stop"}}': n,
        **histogram("vllm:time_to_first_token_seconds", labels, n),
        **histogram("vllm:inter_token_latency_seconds", labels, 8 * n),
        **histogram("vllm:e2e_request_latency_seconds", labels, n),
    }


def samples(second: int) -> dict[str, float]:
    n = 20 + second / STEP * 2
    since_restart = n if second < HOUR / 2 else (second - HOUR / 2) / STEP * 2
    late = max(0, second - HOUR / 2) / STEP * 2
    return {
        **exported("steady", n),
        **exported("pair", n, "0"),
        **exported("pair", 3 * n, "1"),
        **exported("restarted", since_restart),
        **(exported("late", late) if late else {}),
        **exported("mixed", n, "0"),
        **exported("mixed", n, "1", ("0.05", "0.2", "+Inf")),
        **exported("idle", 20),
        **{series.replace('"v1"', '"v0"'): value for series, value in exported("old", n).items()},
        **of_predictor(n),
    }


@pytest.fixture(scope="module", params=either("prometheus", "prometheus3"))
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tsdb")
    lines: dict[str, list[str]] = {}
    for second in range(0, HOUR + STEP, STEP):
        for series, value in samples(second).items():
            lines.setdefault(series.partition("{")[0], []).append(f"{series} {value} {START + second}")
    dump = folder / "samples.om"
    dump.write_text(
        "".join(f"# TYPE {name} unknown\n" + "\n".join(of) + "\n" for name, of in lines.items()) + "# EOF\n"
    )
    promtool().create_blocks(dump, folder / "data")
    with tsdb.prometheus(folder / "data", request.param) as running:
        yield running


async def recorded(url: str, selector: str, *, context: Context | None = None) -> Baseline:
    found = await record_range(url, selector=selector, range_seconds=HOUR, end=END, context=context)
    assert parse_baseline(to_yaml(found).encode()) == found  # what was recorded can be read
    return found


def service(name: str) -> str:
    return f'{{inference_service="{name}"}}'


REQUESTS = HOUR / STEP * 2


@pytest.mark.parametrize(("name", "times"), [("steady", 1), ("pair", 4)])
async def test_a_range_is_recorded_with_every_engine_and_bucket(url: str, name: str, times: int) -> None:
    found = await recorded(url, service(name), context=Context(hardware="1x L4"))
    assert found.requests_finished == pytest.approx(REQUESTS * times, rel=0.01)
    counts = found.counts
    assert counts.drafts == pytest.approx(8 * REQUESTS * times, rel=0.01)
    assert counts.accepted_tokens is not None
    assert counts.draft_tokens is not None
    assert counts.accepted_tokens / counts.draft_tokens == pytest.approx(0.5)
    assert counts.accepted_per_position == pytest.approx([c * REQUESTS * times for c in (6, 4, 2)], rel=0.01)
    assert counts.steps == pytest.approx(8 * REQUESTS * times, rel=0.01)
    latency = found.time_per_output_token_seconds
    assert latency is not None
    assert latency.bounds == (0.05, 0.1, float("inf"))
    assert latency.counts == pytest.approx([share * REQUESTS * times for share in (0.5, 1, 1)], rel=0.01)
    assert latency.sum / latency.count == pytest.approx(0.06, rel=0.001)
    assert found.request_latency_seconds is None
    assert (found.name, found.model_name, found.method) == (name, "tiny", "eagle3")
    assert (found.vllm_version, found.num_speculative_tokens) == ("0.32.0", 3)
    assert found.recorded_at == "2026-09-21T15:13:20Z"
    assert found.duration_seconds == HOUR
    assert found.context == Context(hardware="1x L4", runtime="vLLM 0.32.0")


async def test_a_restart_within_the_range_loses_nothing_but_the_moment_itself(url: str) -> None:
    found = await recorded(url, service("restarted"))
    assert found.requests_finished == pytest.approx(REQUESTS, rel=0.02)


async def test_a_service_that_came_later_has_the_duration_of_what_there_is(url: str) -> None:
    found = await recorded(url, service("late"))
    assert found.duration_seconds == pytest.approx(HOUR / 2, abs=2 * STEP)
    assert found.requests_finished == pytest.approx(REQUESTS / 2, rel=0.02)


async def test_a_predictor_that_is_scraped_itself_is_recorded_by_its_own_names(url: str) -> None:
    found = await recorded(url, '{namespace="raw"}')
    assert found.requests_finished == pytest.approx(REQUESTS, rel=0.01)
    assert found.counts.drafts == pytest.approx(8 * REQUESTS, rel=0.01)
    assert found.counts.steps == pytest.approx(8 * REQUESTS, rel=0.01)
    assert [sli for sli, _ in found.histograms()] == ["time_to_first_token_seconds", "request_latency_seconds"]
    assert (found.model_name, found.name, found.method) == ("tiny", "tiny", None)


async def test_of_a_v0_engine_only_latency_is_recorded(url: str) -> None:
    found = await recorded(url, service("old"))
    assert (found.counts.draft_tokens, found.counts.generation_tokens) == (None, None)
    assert found.time_to_first_token_seconds is not None


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ('{namespace="prod",inference_service=~"steady|pair"}', r'2 services .*"pair".*"steady".*Narrow --selector'),
        ('{job=~".+"}', "7 services or models match, expected one: "),
        (service("nobody"), "no series of a predictor matches .*specdec_generation_tokens_total"),
        (service("mixed"), "different buckets for time_to_first_token_seconds"),
        (service("idle"), "no request finished in the recorded 3600 s"),
        ("{inference_service=steady}", "refused .*parse error"),
        ("steady", "expected a selector such as"),
        ('{a="b"} or up{c="d"}', "expected a selector such as"),
    ],
)
async def test_what_is_not_one_service_with_requests_is_refused(url: str, selector: str, said: str) -> None:
    with pytest.raises(BaselineError, match=said):
        await recorded(url, selector)


def test_the_command_writes_the_file_and_says_how_much_of_the_range_there_was(url: str, tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    source = ["--prometheus", url, "--selector", service("late"), "--range=1h", "--end=2026-09-21T15:13:20Z"]
    arguments = ["baseline", "record", *source, "-o", str(path), "--hardware=1x L4"]
    result = CliRunner().invoke(cli.cli, arguments, standalone_mode=False, catch_exceptions=False)
    assert result.return_value == 0
    assert "note: Prometheus has data for only 1,7" in result.output
    found = read_baseline(str(path))
    assert (found.name, found.context.hardware) == ("base", "1x L4")


async def test_braces_may_stand_in_quotes(url: str) -> None:
    assert (await recorded(url, '{ inference_service=~"stead{1}y" , }')).name == "steady"


async def test_what_does_not_speak_the_api_is_one_clear_line(url: str, tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="answered 404 without a Prometheus result: expected the base URL"):
        await recorded(f"{url}/nowhere", service("steady"))
    with pytest.raises(BaselineError, match="cannot be queried"):
        await recorded("http://127.0.0.1:9", service("steady"))
    with pytest.raises(BaselineError, match="expected the URL of a Prometheus"):
        await recorded("127.0.0.1:9090", service("steady"))
