"""README: what is installed by its command says what it shows. ``test_demo`` runs the demo. It is also short."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from deploy.test_demo import REST, entries, is_alike
from support.fieldtools import ROOT
from support.processes import beside, free_port, said

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN_URL = "http://127.0.0.1:8080"
PACKAGED = ("exporter", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")


def commands() -> list[tuple[str, str]]:
    """Every command of README with what it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    found = [re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:] for block in blocks]
    return [pair for parts in found for pair in zip(parts[::2], parts[1::2], strict=True)]


def shows(output: str, shown: str) -> list[str]:
    """What README shows and the output lacks; the lines come in their order, with others where README has dots."""
    said = iter(entries(output))
    return [line for line in entries(shown) if line != REST and not any(is_alike(one, line) for one in said)]


def test_readme_is_short() -> None:
    assert len(README.split()) <= 700


def test_readme_names_both_commands_of_a_fresh_machine() -> None:
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert {"demo", "test"} <= set(re.findall(r"\bmake ([a-z-]+)", README)) <= set(targets)


@pytest.mark.field
async def test_every_command_does_what_readme_shows(tmp_path: Path) -> None:
    demo, install, check = commands()
    assert demo[0].startswith("make demo ")  # by test_demo
    assert install == ("pip install .", "")
    source, environment = tmp_path / "source", tmp_path / "venv"
    for name in PACKAGED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    said(sys.executable, "-m", "venv", environment)
    said(environment / "bin/pip", "install", "--quiet", ".", directory=source, seconds=300)

    port = free_port()
    simulator = (
        *("env", f"PYTHONPATH={ROOT / 'deploy'}", sys.executable, "-m", "demo.simulator"),
        *(f"--listen-address=127.0.0.1:{port}", "--uptime-seconds=3600", "--load=4"),
    )
    async with beside("predictor", simulator, port=port, ready="/metrics", directory=tmp_path) as predictor:
        program, *arguments = check[0].replace(SHOWN_URL, predictor.url).split()
        output = said(environment / "bin" / program, *arguments)

    assert shows(output.replace(predictor.url, SHOWN_URL), check[1]) == []
