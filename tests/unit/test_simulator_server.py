"""The simulated predictor behind real HTTP: the OpenAI API, the metrics, the log, restarts and faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from specdec_exporter.errors import ConfigError
from specdec_exporter.simulator.openai_api import OWNED_BY
from specdec_exporter.simulator.scenario import parse_incident
from specdec_exporter.simulator.server import HEADER, run
from specdec_exporter.simulator.settings import SimulatorSettings

IN_TIME_SECONDS = 20.0


@contextlib.asynccontextmanager
async def simulated(*incidents: str, **settings: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """A running simulator on a free port, and a client of it. Its load is 0 and its speed 20 unless told otherwise."""
    told = {"load": "0", "speed": 20.0, "log_path": "/dev/null", "listen_address": "127.0.0.1:0", **settings}
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    serving = asyncio.create_task(
        run(
            SimulatorSettings(**told, incidents=tuple(map(parse_incident, incidents))), ready=port.set_result, stop=stop
        )
    )
    try:
        async with asyncio.timeout(IN_TIME_SECONDS):
            await asyncio.wait((port, serving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        url = f"http://127.0.0.1:{port.result()}"
        async with aiohttp.ClientSession(base_url=url) as session:
            yield session
    finally:
        stop.set()
        await serving


async def metrics(session: aiohttp.ClientSession) -> dict[str, float]:
    async with session.get("/metrics") as response:
        assert response.status == 200
        lines = (line.rpartition(" ") for line in (await response.text()).splitlines() if not line.startswith("#"))
        return {series.partition("{")[0]: float(value) for series, _, value in lines}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(IN_TIME_SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


async def events(response: aiohttp.ClientResponse) -> list[str]:
    return [line.decode().removeprefix("data: ").rstrip() async for line in response.content if line.strip()]


async def test_it_says_everywhere_that_it_is_a_simulation() -> None:
    async with simulated() as session:
        for path in ("/health", "/version", "/metrics", "/v1/models", "/nowhere"):
            async with session.get(path) as response:
                assert response.headers[HEADER] == OWNED_BY
        async with session.get("/v1/models") as response:
            assert (await response.json())["data"][0]["owned_by"] == "specdec-exporter simulator"


@pytest.mark.parametrize("prompt", ["five tokens of text!", [1, 2, 3, 4, 5], [[1, 2, 3, 4, 5]]])
async def test_a_completion_has_the_tokens_asked_for_and_is_counted(prompt: Any) -> None:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
    async with simulated(served_model_name="tiny") as session:
        async with session.post("/v1/completions", json=body) as response:
            answer = await response.json()
        counted = await metrics(session)
    assert answer["object"] == "text_completion"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 40, "total_tokens": 45}
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(answer["choices"][0]["text"].split()) == 40
    assert counted["vllm:generation_tokens_total"] == 40
    assert counted["vllm:prompt_tokens_total"] == 5
    assert counted["vllm:inter_token_latency_seconds_count"] == counted["vllm:spec_decode_num_drafts_total"] < 40


async def test_a_stream_comes_in_pieces_and_ends_with_usage_and_done() -> None:
    body = {"prompt": "hello", "max_tokens": 40, "stream": True, "stream_options": {"include_usage": True}}
    async with simulated() as session, session.post("/v1/completions", json={**body, "ignore_eos": True}) as response:
        assert response.content_type == "text/event-stream"
        *pieces, usage, done = await events(response)
    assert done == "[DONE]"
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["completion_tokens"] == 40
    choices = [json.loads(piece)["choices"][0] for piece in pieces]
    assert len("".join(choice["text"] for choice in choices).split()) == 40
    assert 10 <= len(choices) < 40  # a piece per engine step, not per token
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]


async def test_a_chat_streams_deltas_and_answers_whole() -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 12, "ignore_eos": True}
    async with simulated() as session:
        async with session.post("/v1/chat/completions", json=body) as response:
            whole = await response.json()
        async with session.post("/v1/chat/completions", json={**body, "stream": True}) as response:
            first, *rest, done = await events(response)
    assert whole["choices"][0]["message"]["role"] == "assistant"
    assert whole["usage"]["completion_tokens"] == 12
    assert json.loads(first)["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(json.loads(piece)["choices"][0]["delta"]["content"] for piece in rest)
    assert text == whole["choices"][0]["message"]["content"]
    assert done == "[DONE]"


async def test_a_request_that_may_stop_stops_by_itself() -> None:
    async with (
        simulated(output_tokens=10, max_model_len=4096) as session,
        session.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]}) as response,
    ):
        answer = await response.json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 200


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/completions", {"model": "other", "prompt": "x"}, 404, "`other`"),
        ("/v1/completions", {"prompt": ""}, 400, "prompt"),
        ("/v1/completions", {"prompt": [1.5]}, 400, "prompt"),
        ("/v1/completions", {"prompt": "x", "n": 2}, 400, "n:"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 10**6}, 400, "max_model_len"),
        ("/v1/completions", [], 400, "object"),
        ("/v1/completions", "{", 400, "JSON"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
    ],
)
async def test_a_bad_request_is_refused_in_words(path: str, body: Any, status: int, says: str) -> None:
    data = body if isinstance(body, str) else json.dumps(body)
    async with simulated() as session, session.post(path, data=data) as response:
        assert response.status == status
        assert says in (await response.json())["error"]["message"]


async def test_a_client_that_leaves_frees_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async with simulated(max_num_seqs=1, output_tokens=5) as session:
        body = {"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "stream": True}
        async with session.post("/v1/completions", json=body) as response:
            await response.content.readline()
        async with session.post("/v1/completions", json={"prompt": "x", "max_tokens": 5}) as response:
            assert response.status == 200
        counted = await metrics(session)
    assert counted["vllm:num_requests_running"] == 0
    assert counted["vllm:generation_tokens_total"] < 8000
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    ("settings", "version", "content_type"),
    [
        ({"vllm_version": "0.9.2"}, {"version": "0.9.2"}, "text/plain; version=0.0.4; charset=utf-8"),
        ({"vllm_version": "0.32.0"}, {"version": "0.32.0"}, "text/plain; version=1.0.0; charset=utf-8"),
        (
            {"frontend": "rust"},
            {"version": "0.32.0", "rust_frontend_version": "0.32.0"},
            "application/openmetrics-text; version=1.0.0",
        ),
    ],
)
async def test_version_and_content_type_are_those_of_the_release(
    settings: dict[str, Any], version: dict[str, str], content_type: str
) -> None:
    async with simulated(**settings) as session:
        async with session.get("/version") as response:
            assert await response.json() == version
        async with session.get("/metrics") as response:
            assert response.headers["Content-Type"] == content_type


async def test_log_lines_are_written_as_time_passes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "predictor.log"
    path.write_text("what was there before\n")
    async with simulated(log_path=str(path), load=4, speed=50.0) as session:

        async def two_windows() -> bool:
            return path.read_text().count("SpecDecoding metrics") >= 2

        await until(two_windows)
        await metrics(session)
    text = path.read_text()
    assert text.startswith("what was there before\n")
    assert text.endswith("\n")
    assert '"GET /metrics HTTP/1.1" 200 OK' in text


async def test_a_restart_drops_everyone_and_comes_back_from_zero(caplog: pytest.LogCaptureFixture) -> None:
    async with simulated("restart at=10s for=10s", speed=20.0) as session:
        body = {"prompt": "x", "max_tokens": 8000, "ignore_eos": True}
        with pytest.raises(aiohttp.ClientError):
            async with session.post("/v1/completions", json=body) as response:
                await response.read()
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get("/health")

        async def back() -> bool:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get("/health") as response:
                    return response.ok
            return False

        await until(back)
        assert (await metrics(session))["vllm:spec_decode_num_drafts_total"] == 0
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    ("mode", "status", "content_type"), [("http_500", 500, "text/plain"), ("html", 200, "text/html")]
)
async def test_broken_metrics_do_not_break_serving(mode: str, status: int, content_type: str) -> None:
    async with simulated(f"metrics_error at=0 mode={mode}") as session:
        async with session.get("/metrics") as response:
            assert (response.status, response.content_type) == (status, content_type)
        async with session.get("/health") as response:
            assert response.ok


async def test_slow_metrics_come_late() -> None:
    async with simulated("metrics_error at=0 mode=slow seconds=0.3") as session:
        with pytest.raises(TimeoutError):
            await session.get("/metrics", timeout=aiohttp.ClientTimeout(total=0.1))
        async with session.get("/metrics") as response:
            assert "vllm:" in await response.text()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listen_address": "nowhere"}, "listen_address: expected HOST:PORT, found 'nowhere'"),
        ({"listen_address": "127.0.0.1:99999"}, "listen_address"),
        ({"log_path": "/nowhere/at/all.log"}, r"log_path /nowhere/at/all\.log: No such file"),
    ],
)
async def test_what_cannot_be_had_is_a_config_error(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        await run(SimulatorSettings(**{"listen_address": "127.0.0.1:0", "log_path": "/dev/null", **settings}))


async def test_a_taken_port_is_a_config_error() -> None:
    async with simulated() as session:
        address = str(session._base_url).removeprefix("http://").rstrip("/")
        with pytest.raises(ConfigError, match=address):
            await run(SimulatorSettings(listen_address=address, log_path="/dev/null"))


async def test_it_ends_by_itself_after_its_duration() -> None:
    async with asyncio.timeout(IN_TIME_SECONDS):
        await run(SimulatorSettings(listen_address="127.0.0.1:0", log_path="/dev/null", duration_seconds=0.1))


async def test_the_command_says_what_it_is_and_where_and_ends_on_sigterm(tmp_path: pathlib.Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from specdec_exporter.commands.simulate import command; command()"),
        *("--listen-address", "127.0.0.1:0", "--log-path", str(tmp_path / "log")),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(IN_TIME_SECONDS):
            notice = (await process.stderr.readline()).decode()
            where = (await process.stderr.readline()).decode()
            assert "no vLLM and no model run here" in notice
            url = where.rsplit(" ", 1)[1].strip()
            async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as response:
                assert response.ok
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
