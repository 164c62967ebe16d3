"""The unit and its settings are those of our command, and systemd understands them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.manifests import SERVE_VARIABLES
from support.fieldtools import ROOT, run
from support.processes import exporter_ran

FOLDER = ROOT / "deploy" / "systemd"
UNIT = FOLDER / "specdec-exporter.service"


def settings() -> dict[str, str]:
    """Every variable of the settings file, also those behind a #."""
    text = (FOLDER / "specdec-exporter.default").read_text(encoding="utf-8")
    return dict(re.findall(r"(?m)^#?(SPECDEC_\w+)=(.*)$", text))


def values(option: str) -> list[str]:
    return re.findall(rf"(?m)^{option}=(.*)$", UNIT.read_text(encoding="utf-8"))


def test_every_setting_is_a_variable_of_serve() -> None:
    assert settings()
    assert set(settings()) <= SERVE_VARIABLES


def test_what_is_set_from_the_start_is_a_configuration() -> None:
    text = (FOLDER / "specdec-exporter.default").read_text(encoding="utf-8")
    active = dict(re.findall(r"(?m)^(SPECDEC_\w+)=(.*)$", text))
    (command,) = values("ExecStart")

    program, *arguments = command.split(" ")
    answer = exporter_ran(*arguments, "--config.check", **active)

    assert program == "/usr/bin/specdec-exporter"
    assert active
    assert (answer.returncode, answer.stderr) == (0, "")


def test_memory_is_given_back_as_in_the_image() -> None:
    image = re.findall(r"MALLOC_\w+=\w+", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert values("Environment") == image != []


@pytest.mark.field
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    """The command is replaced by one that every machine has: this one may have none installed."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/usr/bin/specdec-exporter", "/bin/true"))

    found = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", copy)

    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.field
def test_systemd_finds_it_little_exposed() -> None:
    """Of 10. What is left: it uses the network, without a list of allowed addresses, and sees the file system."""
    found = run("systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", UNIT)
    assert found.returncode == 0, found.stdout
