"""``tune`` as an operator meets it: recordings in turn beside servers that really restart, and each failure."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import click
import pytest
from click.testing import CliRunner, Result
from specdec_exporter.simulator.settings import SimulatorSettings

from recordings import CURVE, recording
from specdec_exporter.baseline import restart
from specdec_exporter.baseline.file import Context, read_baseline, write_baseline
from specdec_exporter.commands import cli
from specdec_exporter.errors import SpecdecError

IN_TIME_SECONDS = 60.0
MODEL = SimulatorSettings().model
METHOD = ("--method=eagle3", "--draft-model=org/head")
# Simulated seconds per second: requests finish soon. The load of both sides is larger by this factor.
SPEED = 20
RESTART = """
import os, pathlib, signal, socket, subprocess, sys, time

folder, port, load = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
pid = folder / "pid"
if pid.exists():
    os.kill(int(pid.read_text()), signal.SIGKILL)
    while not socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.01)
config, k = os.environ["SPECDEC_SPECULATIVE_CONFIG"], os.environ["SPECDEC_NUM_SPECULATIVE_TOKENS"]
with (folder / "asked").open("a") as asked:
    asked.write(config + "\\n")
method = ["--method=eagle3", "--draft-model=org/head", "--k=" + k] if config else ["--method=none"]
log = folder / "vllm.log"
server = subprocess.Popen(
    [sys.executable, "-m", "specdec_exporter", "simulate", f"--listen-address=127.0.0.1:{port}", f"--log-path={log}",
     f"--load={load}", "--speed=SPEED", *method]
)
pid.write_text(str(server.pid))
""".replace("SPEED", str(SPEED))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "_POLL_SECONDS", 0.05)


class Server:
    """A simulated predictor that a command restarts; the command leaves it running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "restart.py").write_text(RESTART)
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = str(folder / "vllm.log")

    def restart(self, load: str = "8") -> str:
        script = str(self.folder / "restart.py")
        return shlex.join([sys.executable, script, str(self.folder), str(self.port), load])

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    def stop(self) -> None:
        pid = self.folder / "pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    running = Server(folder)
    yield running
    running.stop()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with recordings of k = 0 and k = 3."""
    folder = tmp_path / "kept"
    folder.mkdir()
    facts: dict[str, Any] = {"context": Context(model=MODEL), "model_name": MODEL}
    write_baseline(str(folder / "k0.yaml"), recording("k0", tpot=[0.02] * 300, **facts))
    write_baseline(str(folder / "k3.yaml"), recording("k3", tpot=[0.01] * 300, curve=CURVE, **facts))
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.cli, ["tune", *arguments], standalone_mode=False)


def usage(*arguments: str) -> str:
    """What bad usage is told."""
    result = CliRunner().invoke(cli.cli, ["tune", *arguments])
    assert result.exit_code == 2, result.output
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())


def failure(*arguments: str) -> str:
    """What an error says."""
    result = run(*arguments)
    assert isinstance(result.exception, SpecdecError), (result.exception, result.output)
    return str(result.exception)


# --- In turn ----------------------------------------------------------------------------------------------------------


def test_a_command_restarts_the_server_for_each_k(server: Server, tmp_path: Path) -> None:
    folder, plot = tmp_path / "recordings", tmp_path / "plot.svg"
    arguments = (
        "--k=0,1,3", *METHOD, f"--directory={folder}", f"--predictor.url={server.url}",
        f"--predictor.log-path={server.log}", f"--restart-command={server.restart()}", "--command=vllm serve org/model",
        "--warm-up=100ms", "--duration=1s", f"--plot={plot}", "--output=json",
    )  # fmt: skip
    result = run(*arguments)
    assert result.return_value == 0, (result.exception, result.output)
    configs = [{"method": "eagle3", "model": "org/head", "num_speculative_tokens": k} for k in (1, 3)]
    assert server.asked[0] == ""
    assert [json.loads(each) for each in server.asked[1:]] == configs
    recorded = {k: read_baseline(str(folder / f"k{k}.yaml")) for k in (0, 1, 3)}
    assert {k: (each.method, each.num_speculative_tokens) for k, each in recorded.items()} == {
        0: (None, None),
        1: ("eagle3", 1),
        3: ("eagle3", 3),
    }
    assert recorded[0].context.command == "vllm serve org/model"
    assert recorded[3].context.command == f"vllm serve org/model --speculative-config '{server.asked[2]}'"
    settings = json.loads(result.stdout)["settings"]
    assert [setting["num_speculative_tokens"] for setting in settings] == [1, 3]
    assert all(setting["whole"]["speedup"]["value"] > 1 for setting in settings)
    assert "<!-- eagle3, k = 3 -->" in plot.read_text()
    assert "The predictor still runs with k = 3." in result.stderr

    again = run(*arguments)
    assert again.return_value == 0
    assert again.stdout == result.stdout
    assert len(server.asked) == 3
    assert f"{folder}/k3.yaml: it is there already" in again.stderr


async def test_an_operator_restarts_the_server_and_presses_enter(server: Server, kept: Path) -> None:
    (kept / "k3.yaml").unlink()
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "specdec_exporter", "tune", "--k=0,3", *METHOD, f"--directory={kept}",
        f"--predictor.url={server.url}", "--warm-up=100ms", "--duration=1s",
        stdin=theirs, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(theirs)
    assert process.stderr is not None
    async with asyncio.timeout(IN_TIME_SECONDS):
        told = (await process.stderr.readuntil(b"Press Enter")).decode()
        found = re.search(r"^  --speculative-config (.*)$", told, re.MULTILINE)
        assert found is not None, told
        (config,) = shlex.split(found[1])
        assert json.loads(config) == {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}
        variables = {"SPECDEC_SPECULATIVE_CONFIG": config, "SPECDEC_NUM_SPECULATIVE_TOKENS": "3"}
        command = await asyncio.create_subprocess_shell(server.restart(), env={**os.environ, **variables})
        assert await command.wait() == 0
        os.write(ours, b"\n")
        output, rest = await process.communicate()
    os.close(ours)
    assert process.returncode == 0, rest.decode()
    assert "k3.yaml: " in rest.decode()
    assert b"eagle3" in output
    assert read_baseline(str(kept / "k3.yaml")).method == "eagle3"  # without a log, as asked


def test_an_operator_who_leaves_the_prompt_ends_it(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"\x04")
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with pytest.raises(click.Abort):
            cli.cli.main(
                ["tune", "--k=0,6", *METHOD, f"--directory={kept}", "--predictor.url=127.0.0.1:9"],
                standalone_mode=False,
            )
    os.close(ours)


# --- What goes wrong --------------------------------------------------------------------------------------------------


def turn(server: Server, kept: Path, command: str, *more: str) -> tuple[str, ...]:
    return (
        "--k=6", str(kept / "k0.yaml"), *METHOD, f"--directory={kept}", f"--predictor.url={server.url}",
        f"--restart-command={command}", "--restart-timeout=1s", "--warm-up=100ms", "--duration=1s", *more,
    )  # fmt: skip


def test_a_restart_command_that_fails_is_shown_with_its_last_lines(server: Server, kept: Path) -> None:
    said = failure(*turn(server, kept, "seq 100; echo no such unit >&2; exit 5"))
    assert said.startswith("recording with k = 6: the restart command failed with exit code 5; its last lines:\n  92\n")
    assert said.endswith("\n  100\n  no such unit")
    assert "it printed nothing" in failure(*turn(server, kept, "false"))


def test_a_restart_command_that_does_not_end_is_ended_with_its_children(
    server: Server, kept: Path, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    reading = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    said = failure(*turn(server, kept, f"exec 3>{alive}; (trap '' TERM; sleep 600) & sleep 600"))
    assert "has not ended within 1 s: it must start the predictor in the background; it printed nothing" in said
    no_writers = select.poll()
    no_writers.register(reading, 0)
    assert no_writers.poll(IN_TIME_SECONDS * 1000) == [(reading, select.POLLHUP)]
    os.close(reading)


def test_a_server_that_does_not_come_back_is_an_error(server: Server, kept: Path) -> None:
    said = failure(*turn(server, kept, "true"))
    assert said.startswith("recording with k = 6: the predictor has not come back within 1 s: it does not answer: GET ")


def test_a_server_with_another_k_is_an_error(server: Server, kept: Path) -> None:
    command = f"SPECDEC_NUM_SPECULATIVE_TOKENS=2 {server.restart()}"
    assert "the predictor runs with k = 2: restart it with k = 6" in failure(
        *turn(server, kept, command, "--restart-timeout=30s")
    )


async def test_an_interrupted_recording_is_kept_and_recorded_again(server: Server, kept: Path) -> None:
    arguments = turn(server, kept, server.restart(), "--restart-timeout=30s", "--duration=10m")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "specdec_exporter", "tune", *arguments, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(IN_TIME_SECONDS), aiohttp.ClientSession() as session:
        await process.stderr.readuntil(b"Recording http")
        enough = await finished(session, server) + 100
        while await finished(session, server) < enough:
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
    assert process.returncode == 1
    flat = " ".join(said.decode().split())
    assert "the same command goes on with k = 6." in flat
    assert re.search(r"recording with k = 6: the recording ended after \d+ s of 600 s$", flat), flat
    assert read_baseline(str(kept / "k6.yaml")).interrupted
    again = await asyncio.to_thread(run, *turn(server, kept, "false"))
    assert f"{kept}/k6.yaml: it was interrupted, so it is recorded again" in again.stderr
    assert "Recording 1 of 1: with k = 6" in again.stderr


async def finished(session: aiohttp.ClientSession, server: Server) -> float:
    async with session.get(f"{server.url}/metrics") as response:
        found = re.findall(r"^vllm:request_success_total\{.*\} (.*)$", await response.text(), re.MULTILINE)
    return sum(map(float, found))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give FILEs of `baseline record`, or --k or --temperatures to record now"),
        (("--duration=1m",), "flags for recording need --k or --temperatures"),
        (("--k=0,3", *METHOD), "recording needs --directory"),
        (("--k=0,3", "--directory=x"), "--k needs --method (and --draft-model), or --speculative-config"),
        (("--k=1,3", "--directory=x", *METHOD), "nothing to compare with: add 0 to --k, or a FILE recorded without"),
        (("--k=0,x",), "expected numbers of draft tokens such as 0,1,3, found '0,x'"),
        (("--k=0,3,3",), "expected each k once, found '0,3,3'"),
        (
            ("--k=0,3", "--directory=x", "--method=ngram", '--speculative-config={"method":"ngram"}'),
            "excludes --method",
        ),
        (
            ("--k=0", "--directory=x", '--command=vllm serve x -sc \'{"method":"ngram"}\''),
            "--command: leave out --speculative-config, which differs by k",
        ),
        (("--speculative-config=[]",), "expected a JSON object: "),
        (('--speculative-config={"model":"org/head"}',), 'expected a "method" in it'),
    ],
)
def test_what_does_not_go_together_is_bad_usage(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in usage(*arguments)


def test_without_a_terminal_somebody_must_be_named_before_anything_starts(kept: Path) -> None:
    said = usage("--k=0,3,6", *METHOD, f"--directory={kept}")
    assert "this is not a terminal: give --restart-command" in said
    assert "Recording" not in said


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("k3.yaml", ("--method=ngram",), "expected the method ngram, found eagle3: choose another --directory"),
        ("k0.yaml", METHOD, "expected a recording without speculation, found one with k = 3: choose another"),
        ("k2.yaml", METHOD, "expected a recording with k = 2, found one with k = 3: choose another"),
    ],
)
def test_a_recording_of_something_else_is_not_taken(
    name: str, arguments: tuple[str, ...], said: str, kept: Path
) -> None:
    (kept / "k0.yaml").rename(kept / "plain.yaml")
    (kept / "k3.yaml").rename(kept / name)
    assert f"{name}: {said}" in failure(
        f"--k=0,{name[1]}" if name != "k0.yaml" else "--k=0", *arguments, f"--directory={kept}"
    )


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    said = failure("--k=0", f"--directory={tmp_path}/no/such", "--restart-command=true")
    assert said == f"{tmp_path}/no/such: expected a directory that can be made: No such file or directory"


# --- Temperatures -----------------------------------------------------------------------------------------------------

SEND = """
import json, os, sys, urllib.request

temperature = float(os.environ["SPECDEC_TEMPERATURE"])
with open(sys.argv[2], "a") as asked:
    asked.write(f"{temperature}\\n")
body = json.dumps({"prompt": "hello", "max_tokens": 40, "ignore_eos": True, "temperature": temperature}).encode()
while True:
    request = urllib.request.Request(sys.argv[1] + "/v1/completions", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request).read()
"""


def test_a_command_sends_the_requests_at_each_temperature(server: Server, tmp_path: Path) -> None:
    """The simulator answers nothing but what the load command asks."""
    folder, asked = tmp_path / "recordings", tmp_path / "temperatures"
    (tmp_path / "send.py").write_text(SEND)
    arguments = (
        "--k=0,3", "--temperatures=0,0.8", *METHOD, f"--directory={folder}", f"--predictor.url={server.url}",
        f"--predictor.log-path={server.log}", f"--restart-command={server.restart(load='0')}",
        f"--load-command={shlex.join([sys.executable, str(tmp_path / 'send.py'), server.url, str(asked)])}",
        "--request-parameters=chat", "--warm-up=10ms", "--duration=600ms", "--output=json",
    )  # fmt: skip
    result = run(*arguments)
    assert result.return_value == 0, (result.exception, result.output)
    assert len(server.asked) == 2, "one restart for each k"
    assert asked.read_text().split() == ["0.0", "0.8"] * 2
    names = ["k0-t0", "k0-t0.8", "k3-t0", "k3-t0.8"]
    recorded = [read_baseline(str(folder / f"{name}.yaml")) for name in names]
    assert [each.context.request_parameters for each in recorded] == [
        "chat, temperature 0",
        "chat, temperature 0.8",
    ] * 2
    rows = json.loads(result.stdout)["rows"]
    assert [(row["baseline"], row["candidate"], row["temperature"]) for row in rows] == [
        ("k0-t0", "k3-t0", 0.0),
        ("k0-t0.8", "k3-t0.8", 0.8),
    ]
    again = run(*arguments)
    assert again.stdout == result.stdout
    assert len(server.asked) == 2
    # Without --k the predictor is recorded as it runs.
    bare = run(
        "--temperatures=1", str(folder / "k0-t0.yaml"), f"--directory={folder}", f"--predictor.url={server.url}",
        f"--load-command={shlex.join([sys.executable, str(tmp_path / 'send.py'), server.url, str(asked)])}",
        "--method=eagle3", "--request-parameters=chat", "--warm-up=10ms", "--duration=600ms", "--output=json",
    )  # fmt: skip
    assert bare.return_value == 0, (bare.exception, bare.output)
    assert [row["candidate"] for row in json.loads(bare.stdout)["rows"]] == ["t1"]
    failed = failure(
        "--temperatures=0.5", f"--directory={folder}", f"--predictor.url={server.url}", "--warm-up=10ms",
        "--load-command=echo no such host; exit 3",
    )  # fmt: skip
    assert failed == (
        "recording as it runs, temperature 0.5: the load command failed with exit code 3; its last lines:\n"
        "  no such host"
    )
    assert not (folder / "t0.5.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--temperatures=0,1",), "recording needs --directory"),
        (("--temperatures=0,1", "--directory=x"), "--temperatures needs --load-command"),
        (("--temperatures=0,hot",), "expected temperatures such as 0,0.4,0.8,1, found '0,hot'"),
        (("--temperatures=1,1.0",), "expected each temperature once, found '1,1.0'"),
        (
            ("--temperatures=0", "--load-command=x", "--directory=x", "--request-parameters=temperature 0"),
            "leave out the temperature",
        ),
        (
            ("--temperatures=0", "--load-command=x", "--directory=x", "--restart-command=x"),
            "--restart-command needs --k",
        ),
        (("--load-command=x",), "flags for recording need --k or --temperatures"),
    ],
)
def test_what_a_sweep_of_temperatures_needs(arguments: tuple[str, ...], said: str) -> None:
    assert said in usage(*arguments)


def test_a_recording_of_another_temperature_is_not_taken(kept: Path) -> None:
    facts: dict[str, Any] = {"context": Context(model=MODEL, request_parameters="temperature 1")}
    write_baseline(str(kept / "t0.5.yaml"), recording("t0.5", tpot=[0.01] * 300, curve=CURVE, **facts))
    said = failure("--temperatures=0.5", "--load-command=true", f"--directory={kept}")
    assert "t0.5.yaml: expected a recording at temperature 0.5, found 1: choose another --directory" in said
