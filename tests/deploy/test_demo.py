"""``make demo``, as a process of its own: what it prints is what README says, from the first line to the last."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from support.fieldtools import ROOT

DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".tools" / "bin"
FIRST_PAGE_SECONDS = 120.0
SECONDS = 200  # of README's command
REST = "..."  # in README: the rest of a page

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


def promised() -> list[str]:
    """What README shows of a run, its command aside."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"```console\n\$ make demo SECONDS={SECONDS}\n(.*?)```", readme, re.DOTALL)
    return entries(block)


def entries(text: str) -> list[str]:
    """The lines of an output. The indented lines after a line belong to it, wherever they are broken."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            found[-1] += f" {line.strip()}"
        else:
            found.append(" ".join(line.split()))
    return found


def words(entry: str) -> list[str | float]:
    """Text and numbers of an entry in turn; times and ports are all alike."""
    alike = re.sub(r"\d\d:\d\d:\d\d|(?<=:)\d{4,5}(?=/)", "#", entry)
    parts = re.split(r"(\d+(?:\.\d+)?)", alike)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]


def is_alike(said: str, shown: str) -> bool:
    """Whether an entry of a run has README's words, and numbers that differ by no more than a third."""
    if REST in shown:
        begin, end = shown.split(REST)
        return is_alike(said[: len(begin)], begin) and said.endswith(end)
    for one, other in itertools.zip_longest(words(said), words(shown)):
        if isinstance(one, float) and isinstance(other, float):
            if abs(one - other) > max(0.04, other / 3):
                return False
        elif one != other:
            return False
    return True


def differences(said: list[str], shown: list[str]) -> list[tuple[str | None, str | None]]:
    pairs = itertools.zip_longest(said, shown)
    return [(one, other) for one, other in pairs if one is None or other is None or not is_alike(one, other)]


@pytest.mark.nightly  # it needs the machine for itself, so .ci/run has a stage for this file
async def test_the_first_page_comes_and_ctrl_c_ends_it() -> None:
    async with demo() as process:
        assert process.stdout is not None
        lines: list[str] = []
        async with asyncio.timeout(FIRST_PAGE_SECONDS):
            while not (lines and "Runbook: " in lines[-1]):
                lines.append((await process.stdout.readline()).decode())
                assert lines[-1], "it ended"
        process.send_signal(signal.SIGINT)
        _, errors = await asyncio.wait_for(process.communicate(), 30)
    said = entries("".join(lines))
    assert differences(said, promised()[: len(said)]) == []
    assert said[-1].startswith("FIRING demo/code: SpecDecodeHarmful")
    assert (process.returncode, errors.decode()) == (0, "")


@pytest.mark.nightly
async def test_the_whole_output_is_what_readme_says() -> None:
    async with demo("--seconds", str(SECONDS)) as process:
        output, errors = await asyncio.wait_for(process.communicate(), SECONDS + 60)
    assert (process.returncode, errors.decode()) == (0, "")
    assert differences(entries(output.decode()), promised()) == []


async def test_a_part_that_cannot_run_is_named() -> None:
    async with demo(SPECDEC_PREDICTOR_TIMEOUT="banana") as process:
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 1
        assert "demo: specdec-exporter ended with exit code 64" in errors.decode()
