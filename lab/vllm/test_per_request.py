"""Responses that a real server adds its per-request figures to (0.29.0 and later) sum up to its own counters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from specdec_exporter.predictor.versions import parse_release
from support.processes import exporter_ran, wait_until
from vllm import hostile
from vllm.exporter import Exposition
from vllm.language import CHORUS, Prompt, excerpt, flawed_copy
from vllm.server import Installation, Server, running
from vllm.test_real_server import VLLM

K = 5
NGRAM = {"method": "ngram", "num_speculative_tokens": K, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
ARGUMENTS = (
    *("--speculative-config", json.dumps(NGRAM)),
    *("--per-request-spec-decode-metrics", "detailed", *hostile.ARGUMENTS),
)


def complete(server: Server, prompt: Prompt, **parameters: Any) -> list[str]:
    """The lines of one response, as a client that saves everything would write them."""
    return server.answer(prompt, **{"max_tokens": 40, **parameters}).splitlines()


def saved_responses(server: Server) -> list[str]:
    """Short drafts, requests without any, a stream, two temperatures, and a request with two choices."""
    lines: list[str] = []
    for index in range(3):
        lines += complete(server, flawed_copy(1.0, start=31 * index, length=80, flaw_every=4), temperature=0)
    lines += complete(server, CHORUS, temperature=0, max_tokens=9)
    lines += complete(server, excerpt(1.0, start=50), temperature=0)
    # The last chunk carries the record only if the client asks for usage.
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    lines += complete(server, flawed_copy(1.0, start=7, length=80, flaw_every=25), temperature=0.7, **streamed)
    return lines


def await_drafts_in_log(server: Server) -> int:
    """The draft tokens that the server counted, as soon as its log has all of them."""
    drafted = VLLM.count(Exposition(server.metrics())).draft_tokens
    own_line = re.compile(
        r"^\(\w+ pid=\d+\) INFO [\d: -]+\[metrics\.py:\d+\] SpecDec.* Drafted: (\d+) tokens", re.MULTILINE
    )
    wait_until(
        lambda: sum(map(int, own_line.findall(server.log()))) >= drafted,
        seconds=30,
        what=f"sum of {drafted} draft tokens in vLLM's log",
    )
    return drafted


def test_saved_responses_sum_up_to_the_counters(installation: Installation, models: Path, tmp_path: Path) -> None:
    release = parse_release(installation.release())
    if release is None or release < (0, 29, 0):
        pytest.skip("came with 0.29.0")
    server = Server(installation, models=models, directory=tmp_path, arguments=ARGUMENTS)
    responses = tmp_path / "responses.jsonl"
    with running(server):
        lines = saved_responses(server)
        wait_until(lambda: VLLM.count(Exposition(server.metrics())).requests == 6, seconds=30, what="six requests")
        (tmp_path / "metrics.txt").write_text(server.metrics())
        counted = VLLM.count(Exposition((tmp_path / "metrics.txt").read_text()))
        # Several choices carry no record, so this is not compared.
        lines += complete(server, CHORUS, n=2, temperature=0.7, max_tokens=9)
        hostile.attack(server)
        complete(server, CHORUS, temperature=0, max_tokens=9)
        drafted = await_drafts_in_log(server)
    responses.write_text("\n".join(lines) + "\n")

    result = exporter_ran("analyze", str(server.log_path), "--responses", str(responses), "--output", "jsonl")
    assert result.returncode in (0, 2), result.stderr
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    # The log is full of forged lines, and has the server's own numbers all the same.
    assert server.log().count("900000 tokens") > 100
    assert sum(said["draft_tokens"] for said in objects if said["kind"] == "spec_decoding") == drafted
    assert {said["method"] for said in objects if said["kind"] == "engine_config"} == {"ngram"}
    (given,) = (said["arguments"] for said in objects if said["kind"] == "server_arguments")
    assert given["speculative_config"]["method"] == "ngram"
    assert not [said for said in objects if "evil" in json.dumps(said)]
    assert not [said for said in objects if said.get("warning") == "mtp_layer_reused"]
    assert "could not be read" not in result.stderr
    summary = objects[-1]
    assert summary["kind"] == "responses"
    assert summary["junk"] == 0
    every = summary["all"]
    assert every["requests"] == 6
    assert every["drafts"] == counted.drafts
    assert every["draft_tokens"] == counted.draft_tokens
    assert every["accepted_tokens"] == sum(counted.accepted_per_position)
    assert every["per_position"] == pytest.approx([n / counted.drafts for n in counted.accepted_per_position])
    # Drafts are short here, so only the steps tell what was offered.
    assert counted.draft_tokens < K * counted.drafts
    assert every["exact"]["requests"] == every["drafted_requests"]
    kinds = {(each["by"], each["value"]): each["group"]["requests"] for each in summary["groups"]}
    temperatures = {value: requests for (by, value), requests in kinds.items() if by == "temperature"}
    assert temperatures == {"0": 5, "(0.5,0.8]": 1}
    assert ("prompt_length", "unknown") not in kinds
    report = exporter_ran("analyze", str(server.log_path), "--responses", str(responses))
    assert "By temperature" in report.stdout
