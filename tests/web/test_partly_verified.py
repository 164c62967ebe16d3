"""With ``enable_adaptive_verification``, vLLM verifies only part of each draft and counts all of it as drafted.

So nothing is said of rate and curve, wherever one asks: metrics, API, ``check`` and ``analyze``. Length, tokens per
step and the measured speed-up are true, and they decide. The predictors are fake counters, and the demo's simulator.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from demo.simulator.engine import Engine
from demo.simulator.log import log_lines
from demo.simulator.server import serving as simulator
from demo.simulator.settings import LatencyModel, SimulatorSettings
from loglines import rendered
from running import Exporter, exporter, predictor
from specdec_exporter.baseline.file import Baseline, write_baseline
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import Counts

WHY = "vLLM verifies only part of each draft; it does not count which"
HEAD = "position 1 almost never"
BY_POSITION = ("specdec_position_acceptance_ratio", "specdec_position_conditional_acceptance_ratio")
# What needs the number of verified tokens, beside rates of later positions.
UNKNOWABLE = {
    "specdec_acceptance_ratio",
    "specdec_mean_draft_length",
    "specdec_window_acceptance_ratio_bucket",
}
BOUNDS = (0.01, 0.025, 0.05, float("inf"))
PLAIN_SECONDS = 0.02  # per output token, without drafts
SPEEDUP = 1.3
PLAIN = Baseline(
    name="plain",
    recorded_at="2026-11-20T10:00:00Z",
    duration_seconds=1800.0,
    model_name="tiny",
    time_per_output_token_seconds=Histogram(bounds=BOUNDS, counts=(0.0, 5e3, 5e3, 5e3), sum=5e3 * PLAIN_SECONDS),
    counts=Counts(),
    requests_finished=5e3,
)
CURVE = (0.72, 0.52, 0.37, 0.27, 0.19, 0.14, 0.1)  # all of the draft is verified: 33 %


@dataclasses.dataclass
class Predictor:
    """What it shows of its drafts; :meth:`draft` adds some."""

    method: str
    k: int
    adaptive: bool = True
    drafts: int = 0
    accepted: list[int] = dataclasses.field(default_factory=list)

    def draft(self, rates: Sequence[float], *, drafts: int = 10_000) -> bytes:
        """Draft k tokens so many times; ``rates``: how many of the drafts accept each position, as it counts."""
        self.drafts += drafts
        added = [round(rate * drafts) for rate in (*rates, *[0.0] * self.k)[: self.k]]
        self.accepted = [a + b for a, b in zip(self.accepted or [0] * self.k, added, strict=True)]
        return self.body()

    def body(self) -> bytes:
        requests = self.drafts // 50
        labels = 'model_name="tiny",engine="0"'
        lines = [
            f"vllm:{name}_total{{{labels}}} {value}"
            for name, value in {
                "spec_decode_num_drafts": self.drafts,
                "spec_decode_num_draft_tokens": self.drafts * self.k,
                "spec_decode_num_accepted_tokens": sum(self.accepted),
                "generation_tokens": self.drafts + sum(self.accepted) + requests,
            }.items()
        ]
        for position, count in enumerate(self.accepted or [0] * self.k):
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            lines.append(f'{name}{{{labels},position="{position}"}} {count}')
        for name, count, mean in (
            ("request_time_per_output_token_seconds", requests, PLAIN_SECONDS / SPEEDUP),
            ("time_to_first_token_seconds", requests, 0.02),
            ("inter_token_latency_seconds", self.drafts, 0.02),
        ):
            for bound in BOUNDS:
                le = "+Inf" if bound == float("inf") else bound
                lines.append(f'vllm:{name}_bucket{{{labels},le="{le}"}} {count if mean <= bound else 0}')
            lines += [f"vllm:{name}_sum{{{labels}}} {count * mean}", f"vllm:{name}_count{{{labels}}} {count}"]
        types = ["# TYPE vllm:num_requests_running gauge", f"vllm:num_requests_running{{{labels}}} 40"]
        return "\n".join([*lines, *types, ""]).encode()

    def log(self, folder: Path, *windows: Sequence[float]) -> Path:
        """Its start, and windows of 1,000 drafts, in a file."""
        settings = SimulatorSettings(method=self.method, k=self.k, adaptive_verification=self.adaptive)
        lines = log_lines(Engine(settings))
        for number, rates in enumerate(windows):
            counts = [round(1000 * rate) for rate in (*rates, *[0.0] * self.k)[: self.k]]
            text = rendered("0.10.2", 1000, counts, 1000 * self.k)
            lines.append(f"(APIServer pid=4242) INFO 09-21 14:15:{number:02d} [metrics.py:120] {text}")
        path = folder / "vllm.log"
        path.write_text("\n".join(lines) + "\n")
        return path


def names(samples: dict[str, float]) -> set[str]:
    return {series.partition("{")[0] for series in samples}


def drafts_of(samples: dict[str, float]) -> float:
    return sum(value for series, value in samples.items() if series.startswith("specdec_drafts_total"))


def derived_positions(samples: dict[str, float]) -> list[str]:
    return [series for series in samples if series.startswith(BY_POSITION) and 'position="0"' not in series]


async def status(running: Exporter) -> dict[str, Any]:
    (found,) = json.loads(await running.get("/api/v1/status"))["predictors"]
    return dict(found)


async def known(running: Exporter, verification: str) -> None:
    """Wait until the log's start lines are read."""
    await running.until(lambda samples: any(f'verification="{verification}"' in series for series in samples))


async def command(*arguments: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "specdec_exporter", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "400"},  # no line is broken
    )
    out, _ = await process.communicate()
    assert process.returncode in (0, 2), out.decode()
    return " ".join(out.decode().split())


def assert_silent(shown: dict[str, Any]) -> None:
    """Nothing of the API is made of the number of verified tokens, and it says why."""
    for figures in (shown["window"], shown["lifetime"], *(each["window"] for each in shown["engines"])):
        assert (figures["acceptance_ratio"], figures["mean_draft_length"]) == (None, None)
        assert len(figures["per_position"]) == 1
    assert {point["acceptance_ratio"] for point in shown["history"]} <= {None}
    assert shown["adaptive_verification"] is True
    assert WHY in json.dumps(shown)
    assert HEAD not in json.dumps(shown)


@pytest.mark.parametrize(
    ("method", "k", "rate", "measured"), [("dspark", 7, "10.3", False), ("eagle3", 3, "24.0", True)]
)
async def test_one_verified_token_is_no_finding(method: str, k: int, rate: str, measured: bool, tmp_path: Path) -> None:
    """72 % of the drafts accept the only token that is verified. Where a baseline is served, the speed-up decides."""
    fake = Predictor(method, k)
    arguments = [f"--predictor.log-path={fake.log(tmp_path, (0.72,), (0.72,))}", "--predictor.log-from=start"]
    if measured:
        write_baseline(str(tmp_path / "plain.yaml"), PLAIN)
        arguments.append(f"--baseline.file={tmp_path / 'plain.yaml'}")
    async with predictor(fake.body()) as vllm, exporter(f"--predictor.url={vllm.url}", *arguments) as running:
        await known(running, "adaptive")
        vllm.body = fake.draft((0.72,))
        samples = await running.samples()
        shown = await status(running)
        of_exporter = await command("check", running.url)
        vllm.bodies, vllm.requests = [fake.body(), fake.draft((0.72,))], 0
        checked = await command("check", vllm.url, "--window=100ms", arguments[0])
    labels = 'engine="0",inference_service="default",model_name="tiny"'
    assert names(samples) & UNKNOWABLE == set()
    assert derived_positions(samples) == []
    assert samples[f'specdec_position_acceptance_ratio{{{labels},position="0"}}'] == 0.72
    assert samples[f"specdec_mean_acceptance_length{{{labels}}}"] == pytest.approx(1.72)
    assert samples[f"specdec_tokens_per_step{{{labels}}}"] == pytest.approx(1.72)
    assert samples[f"specdec_draft_tokens_total{{{labels}}}"] == 10_000 * k
    assert_silent(shown)
    judged = shown["verdict"]["code"], shown["verdict"]["basis"]
    assert judged == (("healthy", "measured") if measured else ("watch", "assumed"))
    analyzed = await command("analyze", fake.log(tmp_path, (0.72,), (0.72,)))
    for said in (of_exporter, checked, analyzed):
        assert WHY in said
        assert HEAD not in said
        assert rate not in said
    for said in (checked, analyzed):
        assert "1.72" in said


@pytest.mark.parametrize("adaptive", [False, True])
async def test_a_rising_load_is_no_news_of_the_draft(adaptive: bool, tmp_path: Path) -> None:
    """Less and less of each draft is verified. Without the option, the same counters mean what they say."""
    fake, words = Predictor("eagle3", 3, adaptive), []
    log = fake.log(tmp_path, *(CURVE[:depth] for depth in (3, 2, *[1] * 30)))
    arguments = (f"--predictor.log-path={log}", "--predictor.log-from=start")
    async with predictor(fake.body()) as vllm, exporter(f"--predictor.url={vllm.url}", *arguments) as running:
        await known(running, "adaptive" if adaptive else "full")
        for depth, drafts in ((3, 10_000), (2, 10_000), (1, 300_000)):
            vllm.body = fake.draft(CURVE[:depth], drafts=drafts)
            samples = await running.samples()
            shown = await status(running)
            words.append(shown["verdict"]["code"])
    analyzed = await command("analyze", log)
    if adaptive:
        assert words == ["watch"] * 3
        assert_silent(shown)
        assert WHY in analyzed
        assert HEAD not in analyzed
    else:
        assert shown["adaptive_verification"] is False
        assert shown["window"]["acceptance_ratio"] == pytest.approx(0.25, abs=0.01)
        assert HEAD in json.dumps(shown["verdict"])
        assert "specdec_acceptance_ratio" in names(samples)
        assert len(derived_positions(samples)) == 4
        assert "acceptance 0.25" in json.dumps(shown["verdict"])
        assert WHY not in analyzed


@pytest.mark.parametrize(("adaptive", "load"), [(True, 1), (True, 16), (False, 16)])
async def test_the_simulator_trims_and_the_exporter_says_no_rate(adaptive: bool, load: int, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    settings = SimulatorSettings(
        vllm_version="0.33.0",
        method="dspark",
        k=len(CURVE),
        acceptance=CURVE,
        load=load,
        latency=LatencyModel(draft_token_seconds=0.0005, batched_token_seconds=0.001),
        adaptive_verification=adaptive,
        speed=40.0,
        listen_address="127.0.0.1:0",
        log_path=str(log),
    )
    async with simulator(settings) as url:
        arguments = (f"--predictor.url={url}", f"--predictor.log-path={log}", "--predictor.log-from=start")
        async with exporter(*arguments) as running:
            await known(running, "adaptive" if adaptive else "full")
            length = "specdec_mean_acceptance_length"
            begun = drafts_of(await running.samples())
            samples = await running.until(lambda samples: drafts_of(samples) > begun + 6000)
            shown = await status(running)
        analyzed = await command("analyze", log)
    whole = sum(CURVE)
    (found,) = (value for series, value in samples.items() if series.startswith(length))
    assert found == pytest.approx(1.72 if adaptive and load > 1 else 1 + whole, abs=0.15)
    if adaptive:
        assert names(samples) & UNKNOWABLE == set()
        assert_silent(shown)
        assert shown["verdict"]["code"] == ("watch" if load > 1 else "healthy")
        assert WHY in analyzed
        assert HEAD not in analyzed
    else:
        assert shown["window"]["acceptance_ratio"] == pytest.approx(whole / 7, abs=0.03)
        assert shown["verdict"]["code"] == "healthy"
        assert shown["adaptive_verification"] is False
        assert "specdec_acceptance_ratio" in names(samples)
