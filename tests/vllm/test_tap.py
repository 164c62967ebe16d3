"""``tap`` beside a real server (0.29.0 and later) and a gateway that stores requests and responses."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from running import exporter
from specdec_exporter.predictor.versions import parse_release
from vllm.checkpoints import write_adapter
from vllm.exporter import Exposition
from vllm.language import CHORUS, Prompt, flawed_copy
from vllm.server import MODEL_NAME, Installation, Server, running
from vllm.test_per_request import NGRAM
from vllm.test_real_server import VLLM

ADAPTER = "sql-lora"
STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
CHOICE: dict[str, Any] = {"structured_outputs": {"choice": ["w16", "w17"]}}


class Gateway:
    """Sends requests on and appends a line for each to a file: headers, and both bodies as text."""

    def __init__(self, server: Server, path: Path) -> None:
        self._server = server
        self._path = path

    def send(self, tenant: str, path: str = "/v1/completions", **body: Any) -> None:
        sent = json.dumps({"model": MODEL_NAME, "max_tokens": 40, "ignore_eos": True, **body})
        headers = {"Content-Type": "application/json", "X-Tenant": tenant}
        request = urllib.request.Request(self._server.url + path, sent.encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            received = answer.read().decode()
        line = {
            "request": {"uri": path, "headers": {"x-tenant": tenant}, "body": sent},
            "response": {"status": 200, "body": received},
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def prompt(start: int, flaw_every: int = 4) -> Prompt:
    return flawed_copy(1.0, start=start, length=80, flaw_every=flaw_every)


def send_all(gateway: Gateway) -> None:
    """Eight requests: two tenants, an adapter, a stream of either kind, a choice, and one without a temperature."""
    gateway.send("acme", prompt=prompt(1), temperature=0)
    gateway.send("acme", prompt=prompt(31), temperature=0, model=ADAPTER)
    gateway.send("acme", prompt=prompt(7, 25), temperature=0.7, **STREAMED)
    gateway.send("globex", prompt=CHORUS, temperature=0, max_tokens=9)
    gateway.send("globex", prompt=prompt(62))
    gateway.send("globex", prompt=prompt(93), temperature=0, **CHOICE)
    words = " ".join(f"w{token}" for token in prompt(5))
    chat = {"messages": [{"role": "user", "content": words}], "chat_template": "{{ messages[0].content }}"}
    gateway.send("acme", "/v1/chat/completions", **chat, temperature=0.3)
    gateway.send("acme", "/v1/chat/completions", **chat, temperature=0, **STREAMED)


async def test_requests_by_kind_sum_up_to_the_servers_counters(
    installation: Installation, models: Path, tmp_path: Path
) -> None:
    release = parse_release(installation.release())
    if release is None or release < (0, 29, 0):
        pytest.skip("came with 0.29.0")
    write_adapter(tmp_path / "adapter")
    arguments = (
        *("--speculative-config", json.dumps(NGRAM), "--per-request-spec-decode-metrics", "summary"),
        *("--enable-log-requests", "--trust-request-chat-template"),
        *("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"{ADAPTER}={tmp_path / 'adapter'}"),
    )
    server = Server(installation, models=models, directory=tmp_path, arguments=arguments)
    stored = tmp_path / "gateway.jsonl"
    stored.touch()
    flags = ("--tap.header=X-Tenant", f"--predictor.log-path={server.log_path}", str(stored))
    with running(server):
        async with exporter(*flags, command="tap") as tap:
            send_all(Gateway(server, stored))
            by = {
                "adapter": {MODEL_NAME: 7, ADAPTER: 1},
                "temperature": {"0": 5, "(0,0.5]": 1, "(0.5,0.8]": 1, "(0.8,1]": 1, ">1": 0, "unknown": 0},
                "structured": {"yes": 1, "no": 7, "unknown": 0},
                "header": {"acme": 5, "globex": 3},
            }
            wanted = {
                f'specdec_tap_requests_total{{by="{name}",group="{group}",inference_service="default"}}': float(
                    requests
                )
                for name, groups in by.items()
                for group, requests in groups.items()
            }
            samples = await tap.until(lambda samples: wanted.items() <= samples.items())
            (tmp_path / "page.txt").write_text(await tap.get("/"))
        counted = VLLM.count(Exposition(server.metrics()))
    for name in by:
        for family, truth in (
            ("drafts", counted.drafts),
            ("draft_tokens", counted.draft_tokens),
            ("accepted_tokens", sum(counted.accepted_per_position)),
        ):
            start = f'specdec_tap_{family}_total{{by="{name}",'
            assert sum(value for series, value in samples.items() if series.startswith(start)) == truth, (name, family)
