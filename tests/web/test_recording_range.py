"""Recording a baseline from a range of a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from operator import add
from pathlib import Path

import pytest

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.baseline.prometheus import record_range
from specdec_exporter.baseline.reading import parse_baseline, read_baseline
from specdec_exporter.baseline.writing import to_yaml
from specdec_exporter.errors import BaselineError
from specdec_exporter.speculation.load import Load
from support import tsdb
from support.builders import known
from support.fieldtools import either
from support.promtool import promtool
from support.running import commanded

START = 1_790_000_000
STEP = 15
HOUR = 3600
HALF = HOUR // 2
STALL = 1000  # neither a scrape nor the end of a step; the stall ends in another step
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
        f"specdec_cached_prompt_tokens_total{{{labels}}}": 4 * n,
        f"specdec_preemptions_total{{{labels}}}": 0,
        f'specdec_requests_finished_total{{{labels},finished_reason="stop"}}': n / 2,
        f'specdec_requests_finished_total{{{labels},finished_reason="length"}}': n / 2,
        **histogram("specdec_time_to_first_token_seconds", labels, n, bounds),
        **histogram("specdec_time_per_output_token_seconds", labels, n, bounds),
        **histogram("specdec_step_latency_seconds", labels, 8 * n, bounds),
        f'specdec_predictor_info{{{labels},vllm_version="0.32.0",engine_generation="v1",method="eagle3"}}': 1,
        f"specdec_num_speculative_tokens{{{labels}}}": 3,
    }


def of_engine(code: str, n: float) -> dict[str, float]:
    """What the exporter shows of another inference engine; the service has its name."""
    facts = f'vllm_version="",inference_engine="{code}",draft_model="d"'
    return {
        series.replace('vllm_version="0.32.0"', facts).replace('"v1"', '""'): value
        for series, value in exported(code, n).items()
    }


def of_predictor(n: float) -> dict[str, float]:
    """The same of a predictor that is scraped itself; its name holds an escape character."""
    labels = 'model_name="ti\x1bny",engine="0",namespace="raw",job="vllm"'
    return {
        f"vllm:spec_decode_num_drafts_total{{{labels}}}": 8 * n,
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}}": 24 * n,
        f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}}": 12 * n,
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="0"}}': 12 * n,
        f"vllm:generation_tokens_total{{{labels}}}": 21 * n,
        f"vllm:prefix_cache_hits_total{{{labels}}}": 4 * n,
        f'vllm:request_success_total{{{labels},finished_reason="stop"}}': n,
        **histogram("vllm:time_to_first_token_seconds", labels, n),
        **histogram("vllm:inter_token_latency_seconds", labels, 8 * n),
        **histogram("vllm:e2e_request_latency_seconds", labels, n),
        **histogram("vllm:request_prompt_tokens", labels, n),
        **histogram("vllm:request_generation_tokens", labels, n),
    }


def under_kserve(series: str) -> str:
    """The same as KServe's monitors rename it, in a namespace of its own."""
    return series.replace("vllm", "kserve_vllm").replace("raw", "kserve")


PACE = {3: 0.02, 6: 0.024, 12: 0.03}  # step time by concurrency


def busy(
    service: str, engine: str, seconds_at: dict[int, float], *, preemptions: int = 0, **more: float
) -> dict[str, float]:
    """What the exporter shows after so many seconds at each concurrency, with steps of :data:`PACE`.

    Of each 2 steps of a request one has a draft of 3 tokens; half of the drafts are accepted as a whole, the others not
    at all. ``steps`` and ``step_seconds`` come on top: they take another time.
    """
    labels = OWN % (service, engine)
    steps = more.get("steps", 0.0) + sum(seconds * b / PACE[b] for b, seconds in seconds_at.items())
    step_seconds = more.get("step_seconds", 0.0) + sum(seconds * b for b, seconds in seconds_at.items())
    drafts, requests = steps / 2, steps / 50
    shown = {
        f"specdec_drafts_total{{{labels}}}": drafts,
        f"specdec_draft_tokens_total{{{labels}}}": 3 * drafts,
        f"specdec_accepted_tokens_total{{{labels}}}": 1.5 * drafts,
        f"specdec_generation_tokens_total{{{labels}}}": steps + 1.5 * drafts + requests,
        f"specdec_prompt_tokens_total{{{labels}}}": 100 * requests,
        f"specdec_preemptions_total{{{labels}}}": preemptions,
        f'specdec_requests_finished_total{{{labels},finished_reason="stop"}}': requests,
        f"specdec_step_latency_seconds_sum{{{labels}}}": step_seconds,
        f"specdec_step_latency_seconds_count{{{labels}}}": steps,
        **histogram("specdec_time_to_first_token_seconds", labels, requests),
    }
    for position in "012":
        shown[f'specdec_accepted_tokens_per_position_total{{{labels},position="{position}"}}'] = drafts / 2
    return shown


def started(service: str, second: int) -> dict[str, float]:
    """What a predictor shows that started a while ago: for a minute each step took 1 s, then it was at 6."""
    slow = min(second, 60)
    return busy(service, "0", {6: second - slow}, steps=slow, step_seconds=slow)


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
        **of_engine("tensorrt_llm", n),
        **of_engine("llamacpp", n),
        **of_engine("mystery", n),
        **of_predictor(n),
        **{under_kserve(series): value for series, value in of_predictor(n).items()},
        **busy("busy", "0", {3: min(second, HALF), 6: max(0, second - HALF)}),
        **busy("busy", "1", {12: second}),
        **(busy("sparse", "0", {6: second}) if second % 60 == 0 else {}),
        **(busy("begun", "0", {3: second}) if second < HALF else started("begun", second - HALF)),
        **(started("new", second - HALF) if second >= HALF else {}),
        **stalled(second),
    }


def stalled(second: int) -> dict[str, float]:
    """A request that is preempted once, and waits 50 s for its next step."""
    waited = {"steps": 1.0, "step_seconds": 50.0} if second >= STALL + 50 else {}
    return busy("stalled", "0", {6: second}, preemptions=int(second >= STALL), **waited)


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


@pytest.mark.parametrize("namespace", ["raw", "kserve", "raw|kserve"])  # the last: both prefixes of the same predictor
async def test_a_predictor_that_is_scraped_itself_is_recorded_by_its_own_names(url: str, namespace: str) -> None:
    found = await recorded(url, f'{{namespace=~"{namespace}"}}')
    assert found.requests_finished == pytest.approx(REQUESTS, rel=0.01)
    assert found.counts.drafts == pytest.approx(8 * REQUESTS, rel=0.01)
    assert found.counts.steps == pytest.approx(8 * REQUESTS, rel=0.01)
    assert [sli for sli, _ in found.histograms()] == ["time_to_first_token_seconds", "request_latency_seconds"]
    assert (found.model_name, found.name, found.method) == ("ti?ny", "ti?ny", None)


async def test_of_another_engine_its_name_and_its_draft_are_recorded(url: str) -> None:
    found = await recorded(url, service("tensorrt_llm"))
    assert (found.engine.name, found.vllm_version, found.context.runtime) == ("TensorRT-LLM", None, None)
    assert (found.method, found.draft_model, found.num_speculative_tokens) == ("eagle3", "d", 3)


async def test_of_a_v0_engine_only_latency_is_recorded(url: str) -> None:
    found = await recorded(url, service("old"))
    assert (found.counts.draft_tokens, found.counts.generation_tokens) == (None, None)
    assert found.time_to_first_token_seconds is not None
    assert found.intervals == ()


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ('{namespace="prod",inference_service=~"steady|pair"}', r'2 services .*"pair".*"steady".*Narrow --selector'),
        ('{job=~".+"}', "15 services or models match, expected one: "),
        (service("nobody"), "no series of a predictor matches .*specdec_generation_tokens_total"),
        (service("mixed"), "different buckets for time_to_first_token_seconds"),
        (service("llamacpp"), "llama.cpp tells no latencies"),
        (service("mystery"), "expected an inference engine of .*, found 'mystery'"),
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
    source = ["--prometheus", url, "--selector", service("late"), "--range=2026-09-21T14:13:20Z/2026-09-21T15:13:20Z"]
    arguments = ["baseline", "record", *source, "-o", str(path), "--hardware=1x L4"]
    code, text = commanded(*arguments)
    assert code == 0
    assert "note: Prometheus has data for only 1,7" in text
    found = read_baseline(str(path))
    assert (found.name, found.context.hardware) == ("base", "1x L4")


async def test_what_does_not_speak_the_api_is_one_clear_line(url: str, tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="answered 404 without a Prometheus result: expected the base URL"):
        await recorded(f"{url}/nowhere", service("steady"))
    with pytest.raises(BaselineError, match="cannot be queried"):
        await recorded("http://127.0.0.1:9", service("steady"))
    with pytest.raises(BaselineError, match="expected the URL of a Prometheus"):
        await recorded("127.0.0.1:9090", service("steady"))


# --- Blocks of time and lengths ---


@pytest.mark.parametrize(
    ("name", "blocks"), [("steady", 24), ("pair", 24), ("restarted", 24), ("late", 24), ("sparse", 15)]
)
async def test_blocks_of_time_add_up_to_the_range(url: str, name: str, blocks: int) -> None:
    found = await recorded(url, service(name))
    assert len(found.blocks) == pytest.approx(blocks, abs=1)
    assert {block.seconds for block in found.blocks} == {found.blocks[0].seconds}
    total = reduce(add, found.blocks)
    assert total.seconds == pytest.approx(found.duration_seconds, rel=0.001)
    for count in ("drafts", "accepted_tokens", "generation_tokens", "steps", "step_seconds", "prompt_tokens"):
        assert getattr(total.counts, count) == pytest.approx(getattr(found.counts, count), rel=0.05)
    for sli, whole in found.histograms():
        assert getattr(total, sli).counts == pytest.approx(whole.counts, rel=0.05)
        for block in found.blocks:
            assert getattr(block, sli).mean == pytest.approx(0.06, rel=1e-6)


async def test_each_block_of_time_knows_its_prompts(url: str) -> None:
    found = await recorded(url, service("steady"))
    assert found.mean_prompt_tokens == pytest.approx(10.0, rel=0.01)
    for block in found.blocks:
        assert known(block.counts.prompt_tokens) / known(block.counts.first_tokens) == pytest.approx(10.0, rel=0.05)
        assert block.counts.cached_prompt_ratio == pytest.approx(0.4, rel=0.01)
    own = await recorded(url, '{namespace="raw"}')
    assert own.counts.cached_prompt_tokens == pytest.approx(4 * REQUESTS, rel=0.01)  # hits of the prefix cache
    assert {block.counts.prompt_tokens for block in own.blocks} == {None}  # no counter of prompt tokens there


async def test_lengths_come_from_the_predictor_only(url: str) -> None:
    found = await recorded(url, '{namespace="raw"}')
    for length in (found.prompt_length, found.generation_length):
        assert known(length).count == pytest.approx(REQUESTS, rel=0.01)
    assert (await recorded(url, service("steady"))).prompt_length is None


# --- Intervals ---


def by_concurrency(found: Baseline) -> dict[float, list[Load]]:
    loads: dict[float, list[Load]] = {}
    for each in found.intervals:
        loads.setdefault(round(each.concurrency, 1), []).append(each)
    return loads


async def test_each_engine_has_intervals_of_its_own(url: str) -> None:
    """One engine goes from 3 to 6 requests in decode, the other stays at 12."""
    found = await recorded(url, service("busy"))
    loads = by_concurrency(found)
    assert list(loads) == [3.0, 12.0, 6.0]  # in the order of time
    assert [len(each) for each in loads.values()] == pytest.approx([30, 60, 30], abs=2)
    assert [load.ends for load in loads[12.0]] == [pytest.approx(60.0 * (i + 1)) for i in range(1, 60)]
    assert [load.ends for load in found.intervals] == sorted(known(load.ends) for load in found.intervals)
    for one, each in loads.items():
        total = reduce(add, each)
        assert {load.seconds for load in each} == {60.0}
        assert total.steps / total.seconds == pytest.approx(one / PACE[round(one)], rel=0.001)
        assert total.tokens / total.steps == pytest.approx(1.75, rel=0.001)
        counts = total.counts
        assert known(counts.draft_tokens) / total.steps == pytest.approx(1.5, rel=0.001)
        assert known(counts.accepted_tokens) / known(counts.draft_tokens) == pytest.approx(0.5, rel=0.001)
        assert known(counts.prompt_tokens) / total.steps == pytest.approx(2.0, rel=0.001)


async def test_an_interval_holds_at_least_four_scrapes(url: str) -> None:
    found = await recorded(url, service("sparse"))
    total = reduce(add, found.intervals)
    assert 210 <= total.seconds / len(found.intervals) <= 240
    assert total.concurrency == pytest.approx(6, rel=0.02)
    assert total.step_seconds / total.steps == pytest.approx(PACE[6], rel=0.001)


@pytest.mark.parametrize(("name", "concurrencies"), [("begun", [3, 6]), ("new", [6])])
async def test_the_warm_up_after_a_start_is_left_out(url: str, name: str, concurrencies: list[int]) -> None:
    loads = by_concurrency(await recorded(url, service(name)))
    assert list(loads) == concurrencies
    for concurrency, each in loads.items():
        total = reduce(add, each)
        assert total.step_seconds / total.steps == pytest.approx(PACE[round(concurrency)], rel=0.001)
        assert total.seconds >= HALF - 300


async def test_an_interval_knows_its_preemptions(url: str) -> None:
    found = await recorded(url, service("stalled"))
    (only,) = (load for load in found.intervals if load.counts.preemptions)
    assert only.counts.preemptions == pytest.approx(1, rel=0.4)  # increase() extrapolates
    assert found.counts.preemptions == pytest.approx(1, rel=0.2)


async def test_a_predictor_that_is_scraped_itself_has_intervals_too(url: str) -> None:
    found = reduce(add, (await recorded(url, '{namespace="raw"}')).intervals)
    assert found.concurrency == pytest.approx(16 * 0.06 / STEP, rel=0.01)
    assert known(found.counts.drafts) == pytest.approx(found.steps, rel=0.001)
