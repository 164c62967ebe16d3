"""Names come from others: whatever characters they hold, `/metrics`, the status and the reports show them as text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from specdec_exporter.commands.analyze import analyze
from specdec_exporter.commands.check import check
from specdec_exporter.config import PredictorSettings
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig, ServerArguments
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.predictor.responses import ResponseSpeculation, parse_response
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.state.observing import observe_event
from support import running
from support.builders import saved_response, started

# The escape character in both its spellings, other control characters, line separators, one that reverses what follows.
CONTROLS = "\x1b\x9b\x00\x07\x08\n\r\x7f\x85\u2028\u2029\u200b\u202e\u2066\ufeff"
ANY = st.text(max_size=12) | st.text(alphabet=CONTROLS + "[2J?a", min_size=1, max_size=12)
ESCAPE = "\x1b"


def body(model: str, engine: str = "0", reason: str = "stop", count: int = 300) -> bytes:
    """A drafting predictor."""
    model, engine, reason = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for text in (model, engine, reason)
    )
    labels = f'model_name="{model}",engine="{engine}"'
    lines = [
        *(f"vllm:spec_decode_num_{what}_total{{{labels}}} {count}" for what in ("drafts", "accepted_tokens")),
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {2 * count}",
        *(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{n}"}} {count // 2}'
            for n in range(2)
        ),
        f"vllm:generation_tokens_total{{{labels}}} {2 * count}",
        f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {count}',
        f'vllm:cache_config_info{{engine="{engine}",kv_cache_size_tokens="{count}"}} 1',
        f'vllm:inter_token_latency_seconds_bucket{{{labels},le="+Inf"}} {count}',
        *(f"vllm:inter_token_latency_seconds_{part}{{{labels}}} {count}" for part in ("sum", "count")),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def start(*names: str) -> bytes:
    """The lines of a start, as a JSON formatter prints them; a name stands wherever one can."""
    one, two, three, four = (name.replace("'", "").replace("\\", "") for name in names)
    lines = {
        "vllm.entrypoints.utils": f"non-default args: {{'model': '{one}', 'speculative_config': {{'method': '{two}', "
        f"'model': '{three}', 'num_speculative_tokens': 2}}, 'dtype': '{four}'}}",
        "vllm.v1.engine.core": f"Initializing a V1 LLM engine (v0.32.0) with config: model='{one}', "
        f"speculative_config=SpeculativeConfig(method='{two}', model='{three}', num_spec_tokens=2), "
        f"dtype=torch.{four}, quantization='{one}', served_model_name='{four}'",
        "vllm.v1.metrics.loggers": "Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs",
        "vllm.config.speculative": f"Speculative decoding with {one}",
        "vllm.entrypoints.logger": f"Received request {one}: params: SamplingParams(temperature=0.5)",
    }
    written = (
        {"name": logger, "levelname": "WARNING", "asctime": one, "vllm_process_name": two, "message": message}
        for logger, message in lines.items()
    )
    return "".join(f"{json.dumps(line)}\n" for line in written).encode()


def texts(found: object) -> Iterator[str]:
    """All texts in nested data."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict):
        for key, value in found.items():
            yield from (*texts(key), *texts(value))
    elif isinstance(found, list | tuple):
        for each in found:
            yield from texts(each)


def require_text(found: object) -> None:
    for text in texts(msgspec.to_builtins(found)):
        assert text.isprintable(), ascii(text)


async def served(log: bytes, *bodies: bytes) -> tuple[str, str, object]:
    """`/metrics` in both formats, and the status."""
    async with started(PredictorSettings(name="svc")) as runtime:
        (predictor,) = runtime.predictors
        for event in LogScanner(ReaderCounters()).scan(bytearray(log), len(log)):
            observe_event(predictor.state, event)
        for each in bodies:
            predictor.observe(parse_exposition(each))
        collector = SpecdecCollector(runtime)
        open_text = openmetrics.generate_latest(collector).decode()  # type: ignore[no-untyped-call]
        return generate_latest(collector).decode(), open_text, runtime.status()


@settings(deadline=None, max_examples=60)
@given(ANY, ANY, ANY, st.tuples(ANY, ANY, ANY, ANY))
def test_whatever_names_hold_metrics_parse_and_show_text(
    model: str, engine: str, reason: str, names: tuple[str, str, str, str]
) -> None:
    shot = partial(body, model, engine, reason)
    text, open_text, status = asyncio.run(served(start(*names), shot(), shot(count=600)))
    require_text(text.split("\n"))
    require_text(open_text.split("\n"))
    require_text(status)
    for families in (parse_text(text), parse_openmetrics(open_text)):  # type: ignore[no-untyped-call]
        samples = [sample for family in families for sample in family.samples]
        assert [sample.value for sample in samples if sample.name == "specdec_drafts_total"] == [600]
        for sample in samples:
            require_text(sample.labels)


@settings(deadline=None, max_examples=60)
@given(st.tuples(ANY, ANY, ANY, ANY))
def test_whatever_a_log_holds_its_events_are_text(names: tuple[str, str, str, str]) -> None:
    log = start(*names)
    scanner = LogScanner(ReaderCounters(), trust="any")
    events = [*scanner.scan(bytearray(log), len(log)), *scanner.finish()]
    assert {ServerArguments, EngineConfig} <= set(map(type, events))
    require_text(events)


@given(ANY, ANY, ANY)
def test_whatever_a_saved_response_holds_its_names_are_text(name: str, model: str, header: str) -> None:
    line = {"response": saved_response([1, 2], id=name, model=model), "request_headers": {"X-Tenant": header}}
    found = parse_response(json.dumps(line).encode(), "X-Tenant")
    assert isinstance(found, ResponseSpeculation)
    require_text(found)


@settings(deadline=None, max_examples=20)
@given(ANY, ANY, ANY, st.tuples(ANY, ANY, ANY, ANY))
def test_check_and_analyze_print_no_escape(
    tmp_path_factory: pytest.TempPathFactory, model: str, engine: str, reason: str, names: tuple[str, str, str, str]
) -> None:
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    log.write_bytes(start(*names))

    async def checked(output: Any) -> str:
        async with running.predictor(body(model, engine, reason)) as predictor:
            with running.printed() as found:
                await check(predictor.url, log_paths=[str(log)], window_seconds=0.01, output=output)
        return found.out + found.err

    for output in ("text", "json"):
        require_text(asyncio.run(checked(output)).split("\n"))
    for output in ("text", "jsonl"):
        require_text(analyzed(log, output).split("\n"))


def analyzed(log: Path, output: Any) -> str:
    with running.printed() as found:
        analyze([str(log)], output=output)
    return found.out


def figures(*bodies: bytes) -> tuple[Snapshot, dict[tuple[str, str], float | None]]:
    found = parse_exposition(b"".join(bodies))
    return found, {(each.model_name, each.engine): each.drafts for each in found.engines}


def test_of_two_names_that_look_alike_the_second_is_left_out_and_counted() -> None:
    lines = len(body("m").splitlines()) - 1  # one is of the engine, whatever its models
    for first, second in ((f"a{ESCAPE}", "a?"), ("a?", f"a{ESCAPE}"), (f"a{ESCAPE}", "a\x7f")):
        found, drafts = figures(body(first, count=300), body("b", count=400), body(second, count=500))
        assert drafts == {("a?", "0"): 300, ("b", "0"): 400}
        assert found.dropped == {"labels": lines}


def test_engines_that_look_alike_are_told_apart_by_their_first_line() -> None:
    found, drafts = figures(body("m", f"1{ESCAPE}", count=300), body("m", "1?", count=500))
    assert drafts == {("m", "1?"): 300}
    assert [each.kv_cache_tokens for each in found.engines] == [300]


def test_reasons_that_look_alike_do_not_add_up() -> None:
    one, two = (f'vllm:request_success_total{{finished_reason="{reason}"}} 4\n' for reason in (f"x{ESCAPE}", "x?"))
    found = parse_exposition((one + two).encode())
    assert [each.requests_finished for each in found.engines] == [{"x?": 4.0}]


async def test_a_known_name_keeps_its_place_though_it_is_shown_otherwise() -> None:
    async with running.predictor(body(f"a{ESCAPE}")) as predictor, open_session() as session:
        fetcher = MetricsFetcher(session, predictor.url, most_engines=1)
        await fetcher.fetch(5)
        predictor.body = body("new") + body(f"a{ESCAPE}", count=400)
        found = await fetcher.fetch(5)
    assert [(each.model_name, each.drafts) for each in found.engines] == [("a?", 400)]
