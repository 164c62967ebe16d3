"""The unit and its settings are those of our command, and its sandbox allows what the exporter does."""

from __future__ import annotations

import configparser
import re
import sys
from pathlib import Path

import pytest

from deploy.cli import SERVE_VARIABLES, exporter
from fieldtools import ROOT, run, tool
from running import exporter as serving
from running import predictor

FOLDER = ROOT / "deploy" / "systemd"
UNIT = FOLDER / "specdec-exporter.service"
CAPTURE = ROOT / "tests/fixtures/captures/0.32.0-draft_model-k3"


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
    answer = exporter(*arguments, "--config.check", environment=active)

    assert program == "/usr/bin/specdec-exporter"
    assert active
    assert (answer.returncode, answer.stderr) == (0, "")


def test_positions_are_kept_where_the_unit_may_write() -> None:
    state = Path(settings()["SPECDEC_PREDICTOR_LOG_STATE"])
    assert [str(state.parent)] == [f"/var/lib/{name}" for name in values("StateDirectory")]


def test_the_unit_is_one() -> None:
    """Sections and keys; systemd's own judgement needs systemd."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    assert parser.sections() == ["Unit", "Service", "Install"]


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


def members(group: str) -> set[str]:
    """The system calls of one of systemd's groups, with those of the groups in it."""
    lines = [line.strip() for line in run("systemd-analyze", "syscall-filter", group).stdout.splitlines()[1:]]
    calls = {line for line in lines if re.fullmatch(r"\w+", line)}
    return calls.union(*(members(line) for line in lines if line.startswith("@")))


def allowed() -> set[str]:
    calls: set[str] = set()
    for value in values("SystemCallFilter"):
        named = set().union(*(members(group) for group in value.lstrip("~").split(" ")))
        calls = calls - named if value.startswith("~") else calls | named
    return calls


@pytest.mark.field
async def test_the_sandbox_allows_what_the_exporter_does(tmp_path: Path) -> None:
    """Traced from start to end: scrapes, the page, a log with positions, a reload. Nothing enforces the sandbox."""
    trace = tmp_path / "trace"
    state = tmp_path / "positions.json"
    tracer = (tool("strace"), "-D", "-f", "-qq", "-o", str(trace))
    async with predictor((CAPTURE / "metrics-2-p30.txt").read_bytes()) as vllm:
        log = (f"--predictor.log-path={CAPTURE}/server.log", "--predictor.log-from=start")
        arguments = (*log, f"--predictor.log-state={state}")
        program = (*tracer, sys.executable, "-m", "specdec_exporter")
        async with serving("--predictor.url=" + vllm.url, *arguments, program=program) as running:
            await running.until(lambda samples: any("log_windows_total" in name for name in samples))
            await running.get("/")
            await running.get("/api/v1/status")
            await running.reloaded("configuration loaded")
    traced = trace.read_text(encoding="utf-8")
    used = set(re.findall(r"(?m)^\d+ +(\w+)\(", traced))
    families = set(re.findall(r"socket\((AF_\w+)", traced))

    assert {"execve", "accept4", "openat", "rename"} <= used
    assert used - allowed() == set()
    assert families - set(values("RestrictAddressFamilies")[0].split(" ")) <= {"AF_NETLINK"}  # glibc does without
    assert not re.search(r"PROT_WRITE\|PROT_EXEC", traced)
