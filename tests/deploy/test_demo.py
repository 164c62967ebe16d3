"""``make demo``, as a process of its own: a page must come, and everything must end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
TOOLS = Path(__file__).parents[2] / ".tools" / "bin"
PAGE_SECONDS = 180.0

pytestmark = pytest.mark.debian


@contextlib.asynccontextmanager
async def demo(*arguments: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "demo", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": str(DEPLOY),
            "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}",
            **environment,
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def read_until(process: asyncio.subprocess.Process, text: str) -> str:
    """The output up to and including the first line that holds ``text``."""
    assert process.stdout is not None
    lines = []
    while line := (await process.stdout.readline()).decode():
        lines.append(line)
        if text in line:
            return "".join(lines)
    assert process.stderr is not None
    raise AssertionError(f"it ended without {text!r}: {''.join(lines)}{(await process.stderr.read()).decode()}")


async def test_a_measured_loss_pages_and_a_measured_gain_does_not() -> None:
    async with demo() as process:
        async with asyncio.timeout(PAGE_SECONDS):
            output = await read_until(process, "FIRING  critical  SpecDecodeHarmful")
            page = " ".join((await read_until(process, "Runbook: ")).split())
        assert "the predictors are simulated" in output
        rows = [line for line in output.splitlines() if line.startswith("chat     drafting")]
        assert re.search(r" 1\.[4-7]\dx +healthy: Speculation is paying off$", rows[-1])
        assert re.search(r"code     drafting .* 0\.7\dx +harmful: Speculation makes the service slower than", output)
        assert re.search(r"search   drafting .* slower: Slower than before, not because of drafts", output)
        assert "Decoding on demo/code (simulated/target-8b) takes 1." in page
        assert re.search(
            r"The measured speed-up is 0\.7\d \(like_load\), and within chance it is 0\.[67]\d to 0\.8\d", page
        )
        assert re.search(r"Acceptance is \d\d(\.\d+)?% \(break-even 3\d(\.\d+)?%, measured\)", page)
        assert page.endswith("SpecDecodeHarmful.md")
        assert "SpecDecodeAcceptanceLow" not in output
        process.send_signal(signal.SIGINT)
        _, errors = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, errors.decode()


async def test_it_ends_by_itself_when_told_to() -> None:
    async with demo("--seconds", "3") as process:
        output, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, errors.decode()
        assert "code     " in output.decode()


async def test_a_part_that_cannot_run_is_named() -> None:
    async with demo(SPECDEC_PREDICTOR_TIMEOUT="banana") as process:
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 1
        assert "demo: specdec-exporter ended with exit code 2" in errors.decode()
