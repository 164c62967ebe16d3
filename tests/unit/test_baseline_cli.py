"""``baseline show``, ``check`` and the usage of ``record``: what is printed, and how it exits."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click import UsageError
from msgspec.structs import replace

from specdec_exporter.baseline.file import Baseline, Block, Context
from specdec_exporter.baseline.writing import to_document, to_yaml
from specdec_exporter.errors import SpecdecError
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.speculation.load import Load
from support.builders import CAPTURES
from support.processes import exporter_ran
from support.running import commanded, predictor

INF = float("inf")
DUMP = (CAPTURES / "0.32.0-draft_model-k3/metrics-8-p90.txt").read_bytes()
LIVE = parse_exposition(DUMP).engines[0]
BASELINE = Baseline(
    name="chat",
    recorded_at="2026-01-31T12:00:00Z",
    duration_seconds=1800.0,
    context=Context(hardware="1x L4", model="org/tiny", runtime="vLLM 0.32.0", command="vllm serve"),
    model_name="tiny",
    vllm_version="0.32.0",
    method="eagle3",
    num_speculative_tokens=3,
    time_per_output_token_seconds=Histogram((0.01, 0.025, INF), (40.0, 98.0, 100.0), 2.5),
    counts=Counts(1000.0, 3000.0, 2000.0, (900.0, 700.0, 400.0), 3100.0, 100.0, 1000.0),
    requests_finished=100.0,
)


def saved(folder: Path, **changes: Any) -> str:
    path = folder / "base.yaml"
    path.write_text(to_yaml(replace(BASELINE, **changes)))
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return saved(tmp_path)


def shown(folder: Path, **changes: Any) -> str:
    """What ``show`` says of the baseline with these changes, on one line."""
    code, text = commanded("baseline", "show", saved(folder, **changes))
    assert code == 0
    return " ".join(text.split())


def test_show_says_what_was_measured_and_what_is_missing(tmp_path: Path) -> None:
    text = shown(tmp_path)
    for words in (
        "recorded over 1,800 s until 2026-01-31T12:00:00Z",
        "hardware 1x L4",
        "request parameters not given",
        "speculation eagle3, k = 3",
        "acceptance 66.7% of 3,000 draft tokens",
        "length 3.00 tokens per draft",
        "curve 90.0% 70.0% 40.0%",
        "tokens per step 3.00",
        "per output token 100 25 ms 10 ms to 25 ms > 10 ms",
        "note: no time to first token was recorded",
    ):
        assert words in text


def test_show_has_a_row_for_each_load(tmp_path: Path) -> None:
    counts = Counts(500.0, 1500.0, 1000.0, (), 1550.0, 50.0, 500.0, step_seconds=15.0)
    plain = replace(Counts(0.0, 0.0, 0.0), generation_tokens=600.0, first_tokens=100.0, steps=500.0, step_seconds=12.5)
    text = shown(tmp_path, intervals=(Load(5.0, counts), Load(0.01, plain), Load(5.0, counts)))
    head = "in decode of the time step time tokens per step acceptance"
    assert f"{head} 3.0 99.9% 30 ms 3.00 66.7% 1,250.0 0.1% 25 ms 1.00 - " in text
    assert "a step without drafts takes" not in text


def test_show_says_what_a_step_without_drafts_takes_and_by_what(tmp_path: Path) -> None:
    loads = []
    for concurrency, prompts in ((4.0, 2.0), (8.0, 0.0), (16.0, 1.0), (32.0, 3.0)):
        step = 0.02 + 0.0004 * concurrency + 0.00005 * prompts
        steps = 15.0 * concurrency / step
        counts = Counts(steps=steps, step_seconds=15.0 * concurrency, generation_tokens=steps, first_tokens=0.0)
        loads.append(Load(15.0, replace(counts, prompt_tokens=prompts * 15.0 / step)))
    words = "20 ms + 0.4 ms for each request in decode + 0.05 ms for each prompt token read in it"
    text = shown(tmp_path, counts=loads[0].counts, intervals=tuple(loads * 2))
    assert f"a step without drafts takes {words}" in text


def test_blocks_and_lengths_are_shown(tmp_path: Path) -> None:
    length = Histogram((100.0, 200.0, INF), (20.0, 90.0, 100.0), 15_050.0)
    text = shown(tmp_path, blocks=(Block(seconds=75.0),) * 24, prompt_length=length)
    assert "blocks of time 24 of about 75 s" in text
    assert "prompt length 150 tokens on average" in text
    assert "answer length" not in text
    assert "100 requests, 24 blocks of time" in commanded("baseline", "check", tmp_path / "base.yaml")[1]


def test_the_range_of_prompts_over_the_blocks_is_shown(tmp_path: Path) -> None:
    prompts = ((40.0, 32_000.0), (0.0, 0.0), (60.0, 192_000.0))
    counts = [Counts(first_tokens=requests, prompt_tokens=tokens) for requests, tokens in prompts]
    blocks = tuple(Block(seconds=75.0, counts=each) for each in counts)
    whole = replace(BASELINE.counts, prompt_tokens=224_000.0, first_tokens=100.0)
    words = "prompt length 2,240 tokens on average, 800 to 3,200 by block of time"
    assert words in shown(tmp_path, blocks=blocks, counts=whole)


def test_of_drafts_that_were_verified_in_part_no_acceptance_is_shown(tmp_path: Path) -> None:
    command = "vllm serve m --speculative-config.method=eagle3 --speculative-config.enable_adaptive_verification=true"
    loads = (Load(5.0, replace(BASELINE.counts, step_seconds=15.0)),)
    text = shown(tmp_path, context=replace(BASELINE.context, command=command), intervals=loads)
    assert "acceptance 66.7%" not in text
    assert "length 3.00 tokens per draft" in text
    assert "curve 90.0% tokens per step" in text
    assert "3.0 100.0% 15 ms 3.00 - note" in text
    assert f"note: {PARTLY_VERIFIED}" in text


def test_show_gives_programs_the_file_as_json(file: str) -> None:
    assert json.loads(commanded("baseline", "show", file, "--output=json")[1]) == json.loads(
        json.dumps(to_document(BASELINE))
    )


def test_check_names_every_file_and_fails_if_one_is_bad(file: str, tmp_path: Path) -> None:
    assert commanded("baseline", "check", file)[0] == 0
    bad = tmp_path / "bad.yaml"
    bad.write_text(to_yaml(BASELINE).replace("0.025: 98", "0.025: 9"))
    code, text = commanded("baseline", "check", bad, file)
    assert code == 1
    fail, ok = (line for line in text.splitlines() if "note:" not in line)
    assert fail.startswith(f"FAIL {bad}: ")
    assert "time_per_output_token_seconds.buckets.0.025: expected a cumulative count of at least 40, found 9" in fail
    assert ok.startswith(f"OK   {file}: ")


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"time_per_output_token_seconds": None, "request_latency_seconds": LIVE.request_latency}, 0, "OK "),
        ({}, 2, "WARN time_per_output_token_seconds was recorded in other buckets"),
        ({"vllm_version": "0.31.0"}, 2, "WARN recorded with vLLM 0.31.0, now it is 0.32.0"),
        ({"model_name": "large"}, 1, "does not fit: it is of model 'large', the predictor serves tiny"),
    ],
)
async def test_check_compares_with_a_running_predictor(
    change: dict[str, object], code: int, said: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, **change)
    async with predictor(DUMP) as server:
        check = ("baseline", "check", path, f"--predictor.url={server.url}")
        done = await asyncio.to_thread(exporter_ran, *check)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prometheus=http://x", "--duration=1m"), "--prometheus excludes"),
        (("--prometheus=http://x",), "--prometheus needs --selector"),
        (("--range=1h",), "need --prometheus"),
        (("--prometheus=http://x", "--selector={}", "--range=yesterday/now"), "expected a time with its zone"),
        (
            ("--prometheus=http://x", "--selector={}", "--range=2026-01-31T12:00:00Z/2026-01-31T11:00:00Z"),
            "expected a start before the end",
        ),
        (
            ("--prometheus=http://u:s3c/ret@x", "--selector={}"),
            "expected a URL such as http://127.0.0.1:8080, found 'x'",
        ),
        (("--duration=soon",), "expected a duration"),
        (("--command=" + "x" * 5000,), "expected a text of at most 4096 characters, found 5000"),
    ],
)
def test_what_does_not_go_together_is_bad_usage(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        commanded("baseline", "record", *arguments)


@pytest.mark.parametrize(
    ("place", "said"),
    [("missing/base.yaml", "expected a file in a directory that exists"), ("base.yaml", "exists already")],
)
def test_a_place_that_cannot_hold_the_file_is_refused_before_anything_is_asked(
    place: str, said: str, file: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecdecError, match=said):
        commanded("baseline", "record", "--predictor.url=http://127.0.0.1:9", "-o", tmp_path / place)
