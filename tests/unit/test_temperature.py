"""Temperatures of requests in the predictor's log become one bounded histogram; nothing else of them is kept."""

from __future__ import annotations

from pathlib import Path

from builders import Clock, engine, known, snapshot
from running import exporter, predictor
from specdec_exporter.histogram import HistogramCounter
from specdec_exporter.predictor.log.configline import parse_request_params
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import RequestParams
from specdec_exporter.serving.state import PredictorState

FAMILY = "specdec_request_temperature"
BODY = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 0
"""


def line(number: int, temperature: str, prompt: str = "") -> str:
    return (
        f"INFO 11-20 21:43:16 [logger.py:39] Received request cmpl-{number}-0: {prompt}"
        f"params: SamplingParams(n=1, temperature={temperature}, top_p=1.0), lora_request: None.\n"
    )


def test_a_list_with_strings_is_read_as_one_without() -> None:
    def read(stop: str) -> object:
        params = f"SamplingParams(n=1, temperature=0.7, stop={stop}, top_p=0.9)"
        return parse_request_params(f"Received request a: params: {params}, lora_request: None.")

    assert read("[]") == RequestParams(request_id="a", n=1, temperature=0.7, top_p=0.9)
    assert read("[', temperature=2.0, (']") == read("[]")


def told(*temperatures: float | None) -> HistogramCounter | None:
    """What a predictor's state has of requests with these temperatures."""
    clock = Clock()
    state = PredictorState("chat", reader=ReaderCounters(), clock=clock.monotonic, wall_clock=clock.wall)
    state.observe_snapshot(snapshot(engine()))
    for temperature in temperatures:
        state.observe_event(RequestParams(request_id="a", temperature=temperature))
    return state.temperatures


def test_it_is_there_when_a_request_was_seen() -> None:
    assert told() is None
    assert told(None) is None
    seen = known(told(0.0, 0.7))
    assert (seen.histogram.counts[0], seen.count, seen.sum) == (1, 2, 0.7)


async def test_the_exporter_serves_it_without_a_word_of_the_prompt(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("")
    async with (
        predictor(BODY) as playing,
        exporter(f"--predictor.url={playing.url}", f"--predictor.log-path={log}") as running,
    ):
        assert not [series for series in await running.samples() if series.startswith(FAMILY)]
        with log.open("a") as file:
            file.write(line(1, "0.0") + line(2, "0.7", "prompt: 'a secret, temperature=9.0', ") + line(3, "3.5"))
        labels = 'engine="",inference_service="default",model_name="tiny"'
        samples = await running.until(lambda samples: samples.get(f"{FAMILY}_count{{{labels}}}") == 3.0)
        page = await running.get("/metrics")
    within = {
        bound: samples[f'{FAMILY}_bucket{{engine="",inference_service="default",le="{bound}",model_name="tiny"}}']
        for bound in ("0.0", "0.6", "0.8", "2.0", "+Inf")
    }
    assert within == {"0.0": 1.0, "0.6": 1.0, "0.8": 2.0, "2.0": 2.0, "+Inf": 3.0}
    assert samples[f"{FAMILY}_sum{{{labels}}}"] == 4.2
    assert "secret" not in page
