"""What the Dockerfile names is there, and what it starts is the exporter. No image is built here."""

from __future__ import annotations

import json
import re
import tomllib

from deploy.containers import document
from support.fieldtools import ROOT
from support.processes import exporter_ran

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def instructions() -> list[tuple[str, str]]:
    """Name and arguments of each, in order; continued lines joined, comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text)).splitlines()
    pairs = (line.strip().partition(" ") for line in lines if line.strip())
    return [(name, arguments.strip()) for name, _, arguments in pairs]


def last(name: str) -> str:
    return [arguments for known, arguments in instructions() if known == name][-1]


def test_everything_is_installed_by_its_hash_and_nothing_is_fetched_to_build() -> None:
    commands = [each for name, run in instructions() if name == "RUN" for each in run.split("&&") if "/pip " in each]

    by_hash = ["--require-hashes -r requirements-build.lock", "--require-hashes -r requirements.lock"]
    offline = ["wheel --no-deps --no-build-isolation", "install --no-deps /wheel/*.whl"]
    assert len(commands) == len(by_hash + offline)
    assert [how for how, command in zip(by_hash + offline, commands, strict=True) if how not in command] == []


def test_the_base_is_pinned_by_digest_and_new_enough() -> None:
    base = next(arguments for name, arguments in instructions() if name == "ARG")
    found = re.fullmatch(r"PYTHON_IMAGE=python:(\d+)\.(\d+)\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)

    assert found is not None
    minimum = PROJECT["requires-python"].removeprefix(">=").split(".")
    assert (int(found[1]), int(found[2])) >= tuple(map(int, minimum))
    assert [arguments.split()[0] for name, arguments in instructions() if name == "FROM"] == [
        "${PYTHON_IMAGE}",
        "scratch",
    ]


def test_it_runs_as_a_user_that_kubernetes_can_tell_from_root() -> None:
    user, group = map(int, last("USER").split(":"))

    assert user > 0
    assert group > 0
    options = document()["volumes"]["simulator-log"]["driver_opts"]["o"]
    assert f"uid={user},gid={group}" in options


def test_the_entry_point_is_the_command_and_its_default_is_to_serve() -> None:
    assert json.loads(last("ENTRYPOINT"))[0] in PROJECT["scripts"]
    assert "CMD" not in dict(instructions())
    assert exporter_ran("--config.check").returncode == 0


def test_the_health_check_is_a_command_that_says_no_while_nothing_serves() -> None:
    command = json.loads(last("HEALTHCHECK").partition("CMD ")[2])

    answer = exporter_ran(*command[1:], SPECDEC_WEB_LISTEN_ADDRESS="127.0.0.1:1")

    assert command[0] in PROJECT["scripts"]
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "127.0.0.1:1" in answer.stderr
