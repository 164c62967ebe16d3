"""``--config.check`` refuses what ``serve`` refuses, with the same words, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from specdec_exporter.commands import serve as command
from specdec_exporter.config import load_settings
from specdec_exporter.errors import SpecdecError
from specdec_exporter.serving import serve
from support.certificates import issue

GOOD = {
    "defaults": "",
    "no token yet": "--predictor.bearer-token-file=gone --predictor.url=https://h",
    "a whole web configuration": "--web.config.file=web.yml",
    "a port twice, chosen by the kernel": "--web.listen-address=127.0.0.1:0",
    "two kinds of addresses": "--web.listen-address=[::1]:0 --web.listen-address=127.0.0.1:0",
}
BAD = {
    "--config.file=gone.yml": "gone.yml: cannot be read",
    "--config.file=bomb.yml": "bomb.yml, line 1: expected no anchors and aliases",
    "--config.file=token.yml": "bearer_token_file or a user in the URL",
    "--baseline.file=web.yml": "web.yml",
    "--web.config.file=pair.yml": "does not belong",
    "--web.config.file=users.yml": "not a bcrypt hash",
    "--predictor.log-path=- --predictor.log-path=a.log": "stdin ('-') cannot be read together with files",
    "--predictor.cert-file=a.crt": "cert_file needs key_file",
    "--predictor.insecure-skip-verify --predictor.ca-file=ca.crt": "insecure_skip_verify excludes ca_file",
    "--web.listen-address=:9 --web.listen-address=127.0.0.1:9": "two of them have port 9",
    "--web.listen-address=[::1]:9 --web.listen-address=[::]:9": "two of them have port 9",
}
BOMB = "a0: &a0 {x: 1}\na1: [*a0, *a0]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with good and bad files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name in ("server", "other"):
        issue(name).write(tmp_path, name)
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}")
    (tmp_path / "pair.yml").write_text("tls_server_config: {cert_file: server.crt, key_file: other.key}")
    (tmp_path / "users.yml").write_text("basic_auth_users: {alice: wonderland}")
    (tmp_path / "token.yml").write_text("predictors: [{url: 'http://u:s3cret@h', bearer_token_file: t}]")
    (tmp_path / "bomb.yml").write_text(BOMB)
    return tmp_path


def outcome(run: Callable[[], object]) -> str:
    """The error of ``run``; empty if there is none."""
    try:
        run()
    except SpecdecError as error:
        return str(error)
    return ""


def checked(arguments: list[str]) -> str:
    return outcome(lambda: command.command.main([*arguments, "--config.check"], standalone_mode=False))


def served(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The error with which ``serve`` refuses to start; it stops as soon as it is ready."""

    def stopped() -> asyncio.Event:
        stop = asyncio.Event()
        stop.set()
        return stop

    monkeypatch.setattr(serve, "_stop_signal", stopped)
    monkeypatch.setattr(serve, "configure", lambda *_: None)  # it is for a process of its own
    if not any(each.startswith("--web.listen") for each in arguments):
        arguments = [*arguments, "--web.listen-address=127.0.0.1:0"]
    flags = dict(command.command.make_context("serve", list(arguments)).params)
    file = flags.pop("config_file")
    given = command.overrides({key: flags[key] for key in flags if key != "config_check"})
    return outcome(lambda: serve.run(load_settings(file, given), lambda: load_settings(file, given)))


@pytest.mark.parametrize("line", GOOD.values(), ids=GOOD)
@pytest.mark.usefixtures("folder")
def test_what_is_served_passes_the_check(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (checked(line.split()), served(line.split(), monkeypatch)) == ("", "")


@pytest.mark.parametrize(("line", "says"), BAD.items())
@pytest.mark.usefixtures("folder")
def test_what_is_refused_fails_the_check_with_the_same_words(
    line: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(line.split())
    assert says in found
    assert "s3cret" not in found
    assert served(line.split(), monkeypatch) == found


@pytest.mark.usefixtures("folder")
def test_the_check_may_run_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for flag, says in (
            ("--predictor.log-source=kubernetes", "works only inside a pod"),
            (f"--web.listen-address=127.0.0.1:{taken.getsockname()[1]}", "cannot listen on"),
        ):
            assert checked([flag]) == ""
            assert says in served([flag], monkeypatch)
