"""``tap`` as a process: files through rotation, a pipe, hostile lines, and no word of anybody's text in any output."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from builders import FIXTURES
from running import Exporter, exporter
from specdec_exporter.commands.cli import cli
from specdec_exporter.predictor.log.lines import CHUNK_BYTES

SECRET = "hunter2"
RECORD = {"acceptance_histogram": [1, 0, 0, 2], "num_draft_tokens": 9, "num_spec_tokens": 3}
HOSTILE = (
    b"{" * 200_000 + b"\n",
    b"x" * (CHUNK_BYTES + 1) + b"\n",
    b'{"response": "' + b"\\" * 4000 + b'"}\n',
    b'{"choices": [], "metrics": {"speculative_decoding": {"acceptance_histogram": [1e999]}}}\n',
    b'{"choices": [], "metrics": {"speculative_decoding": ["%b"]}}\n' % SECRET.encode(),
    b"\xff\xfe\x00\n",
    b"\n",
)


def line(tenant: str, name: str = "chatcmpl-1", **asked: Any) -> bytes:
    """What a gateway stores, with a secret wherever somebody's text is."""
    text = f"the password is {SECRET}"
    body = {"model": text, "messages": [{"role": "user", "content": text}], "user": text, text: text, **asked}
    answer = {
        "id": name,
        "model": "sql-lora",
        "choices": [{"message": {"content": text}, "logprobs": [text]}],
        "usage": {"x": text},
        "metrics": {"speculative_decoding": {**RECORD, text: text}},
    }
    headers = {"authorization": f"Bearer {SECRET}", "cookie": SECRET, "x-tenant": tenant}
    line = {
        "request": {"uri": f"/{SECRET}", "headers": headers, "body": body},
        "response": {"body": json.dumps(answer)},
    }
    return json.dumps(line).encode() + b"\n"


def requests(samples: dict[str, float], by: str) -> dict[str, float]:
    start, end = f'specdec_tap_requests_total{{by="{by}",group="', '",inference_service="chat"}'
    return {
        series.removeprefix(start).removesuffix(end): value
        for series, value in samples.items()
        if series.startswith(start) and value
    }


def lines(samples: dict[str, float], result: str) -> float:
    return samples[f'specdec_tap_lines_total{{inference_service="chat",result="{result}"}}']


async def everything(tap: Exporter) -> str:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    metrics = await tap.get("/metrics", **accept)
    assert list(parse_openmetrics(metrics))  # type: ignore[no-untyped-call]
    assert "NaN" not in metrics
    return metrics + await tap.get("/") + await tap.get("/api/v1/status") + "\n".join(tap.log)


async def test_it_follows_a_file_and_keeps_no_text_of_anybody(tmp_path: Path) -> None:
    stored, log = tmp_path / "responses.jsonl", tmp_path / "server.log"
    stored.write_bytes(line("before"))
    log.write_text("")
    flags = ("--predictor.name=chat", "--tap.header=X-Tenant", f"--predictor.log-path={log}", "--log.level=debug")
    async with exporter(*flags, str(tmp_path / "*.jsonl"), command="tap") as tap:
        with stored.open("ab") as file:
            file.write(line("acme", temperature=0, response_format={"type": "json_object"}))
        await tap.until(lambda samples: requests(samples, "header") == {"acme": 1})
        stored.rename(tmp_path / "responses.jsonl.1")
        stored.write_bytes(
            b"".join((*HOSTILE, line("globex", "chatcmpl-2", temperature=0.9, tools=[{}]), line("a\nb")))
        )
        with log.open("a") as file:
            prompt = f"prompt: '{SECRET}', params: SamplingParams(n=1, temperature=0.7), lora_request: None."
            file.write(f"INFO 11-20 21:43:16 [logger.py:39] Received request chatcmpl-1: {prompt}\n")
        samples = await tap.until(lambda samples: sum(requests(samples, "header").values()) == 3)
        assert requests(samples, "header") == {"acme": 1, "globex": 1, "a?b": 1}
        assert requests(samples, "adapter") == {"sql-lora": 3}
        assert requests(samples, "temperature") == {"0": 1, "(0.8,1]": 1, "(0.5,0.8]": 1}
        assert requests(samples, "structured") == {"yes": 2, "no": 1}
        assert (lines(samples, "record"), lines(samples, "too_long")) == (3, 1)
        assert lines(samples, "unreadable") == len(HOSTILE) - 2  # one is too long, one is empty
        assert samples['specdec_tap_up{inference_service="chat"}'] == 1
        said = await everything(tap)
        assert SECRET not in said
        assert "password" not in said
        assert "X-Tenant     acme" in said
        assert (await tap.get("/-/ready"), await tap.get("/-/healthy")) == (
            "specdec-exporter is ready.\n",
            "specdec-exporter is healthy.\n",
        )
        status = json.loads(await tap.get("/api/v1/status"))
        assert status["all"]["accepted_tokens"] == 3 * 6
        assert {(each["by"], each["value"]): each["group"]["requests"] for each in status["groups"]}[
            ("header", "globex")
        ] == 1
    assert await tap.stop() == 0


async def test_it_reads_a_pipe_to_its_end_and_serves_on() -> None:
    reading, writing = os.pipe()
    async with exporter("--predictor.name=chat", "-", command="tap", stdin=reading) as tap:
        os.close(reading)
        stored = (FIXTURES / "responses" / "0.32.0-ngram-k5.jsonl").read_bytes()
        await asyncio.to_thread(os.write, writing, stored)
        os.close(writing)
        samples = await tap.until(lambda samples: requests(samples, "adapter") == {"tiny": 6})
        assert samples['specdec_tap_drafts_total{by="adapter",group="tiny",inference_service="chat"}'] == 50
        assert requests(samples, "header") == {}
        assert "(0" not in json.dumps(requests(samples, "temperature"))


async def test_a_missing_file_is_down_in_words(tmp_path: Path) -> None:
    flags = ("--predictor.name=chat", f"--predictor.log-path={tmp_path / 'gone.log'}")
    async with exporter(str(tmp_path / "gone.jsonl"), *flags, command="tap") as tap:
        samples = await tap.samples()
        assert samples['specdec_tap_up{inference_service="chat"}'] == 0
        assert samples['specdec_tap_log_up{inference_service="chat"}'] == 0
        page = await tap.get("/")
        assert "Problem: there is no log file at" in page
        assert "Problem: the predictor's log cannot be read" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tap.header=Authorization"], "probably secret"),
        (["--tap.header=x y"], "expected the name of a header"),
        (["--tap.from=middle"], "is not one of 'end', 'start'"),
    ],
)
def test_bad_flags_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["tap", *arguments, "-"])
    assert result.exit_code == 2
    assert words in result.output
