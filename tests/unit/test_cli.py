"""The command line as a user meets it: processes with their output, their errors and their exit codes."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from specdec_exporter import __version__
from specdec_exporter.commands import cli
from specdec_exporter.commands.cli import main
from support.builders import CAPTURES
from support.loglines import HEADER, SPEC
from support.processes import EXPORTER, child, ran

COMMANDS = ["analyze", "baseline", "check", "compare", "completion", "doctor", "healthcheck", "serve"]
LOG = CAPTURES / "0.32.0-draft_model-k3" / "server.log"
SCRIPT = (str(Path(sys.executable).parent / "specdec-exporter"),)
SECONDS = 60


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what would configure the exporter or its colours."""
    cleared = re.compile(r"SPECDEC_|NO_COLOR|FORCE_COLOR|TTY_")
    return {name: value for name, value in os.environ.items() if not cleared.match(name)} | variables


class Run:
    """One run of a command to its end."""

    def __init__(
        self,
        *arguments: str,
        program: tuple[str, ...] = EXPORTER,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        done = ran(*program, *arguments, environment=environment(**variables))
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def is_refused(self, words: str) -> bool:
        """Bad usage: exit code 64, and nothing but one line that says why."""
        return (self.code, self.out) == (64, "") and self._complains(words)

    def failed(self, words: str) -> bool:
        """Exit code 1, and nothing but one line that says why."""
        return (self.code, self.out) == (1, "") and self._complains(words)

    def _complains(self, words: str) -> bool:
        return bool(re.fullmatch(rf"specdec-exporter: .*{re.escape(words)}.*\n", self.err))


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port of a plain HTTP server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is ours, so that nobody listens on it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


# --- help, version, which command ---


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command_and_cuts_no_sentence(flag: str) -> None:
    run = Run(flag)
    assert (run.code, run.err) == (0, "")
    listed = run.out.partition("Commands:")[2]
    assert re.findall(r"^  (\w+)  +\w", listed, re.MULTILINE) == COMMANDS
    assert "..." not in listed
    codes = "Exit codes of all commands: 0 no warning, 2 a warning (WARN), 1 a failure (FAIL), 64 bad usage."
    assert codes in " ".join(run.out.split())


@pytest.mark.parametrize("program", [EXPORTER, SCRIPT], ids=["module", "script"])
@pytest.mark.parametrize("arguments", [("--version",), ("serve", "--version")], ids=" ".join)
def test_the_version_is_told(program: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    run = Run(*arguments, program=program)
    assert (run.code, run.out, run.err) == (0, f"specdec-exporter, version {__version__}\n", "")


@pytest.mark.parametrize(
    ("variables", "served", "where"),
    [
        ({}, "http://127.0.0.1:8080", "127.0.0.1:0;"),
        ({"SPECDEC_PREDICTOR_URL": "http://user:s3cret@vllm:8000"}, "http://vllm:8000", "127.0.0.1:0;"),
        ({"SPECDEC_WEB_LISTEN_ADDRESS": ":0"}, "http://127.0.0.1:8080", ":0, every interface;"),
    ],
    ids=["bare", "elsewhere", "everywhere"],
)
def test_without_a_command_it_serves_and_its_first_line_says_what_where_and_what_else_there_is(
    variables: dict[str, str], served: str, where: str
) -> None:
    with child(*EXPORTER, env=environment(**{"SPECDEC_WEB_LISTEN_ADDRESS": "127.0.0.1:0"} | variables)) as serve:
        assert serve.stderr is not None
        first = serve.stderr.readline().decode()
        assert f'msg="begins to serve metrics and a status page of {served} on {where}' in first
        assert "other commands and flags: specdec-exporter --help" in first
        assert any(b"msg=ready" in line for line in iter(serve.stderr.readline, b""))
        serve.terminate()
        assert serve.wait(SECONDS) == 0


def test_flags_without_a_command_are_those_of_serve(tmp_path: Path) -> None:
    file = tmp_path / "specdec.yaml"
    file.write_text("predictors: [{name: a}, {name: b}]")
    for command in ((), ("serve",)):
        run = Run(*command, "--config.file", str(file), "--config.check")
        assert (run.code, run.out, run.err) == (0, f"{file}: 2 predictor(s), valid\n", "")


@pytest.mark.parametrize(
    ("arguments", "spared"),
    [
        ("--version", "aiohttp asyncio msgspec rich yaml"),
        ("analyze --output=jsonl /dev/null", "aiohttp rich"),
        ("healthcheck", "aiohttp rich prometheus_client"),
        ("serve --config.check", "bcrypt rich specdec_exporter.commands.doctor"),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: str, spared: str) -> None:
    program = (
        "import atexit, sys; from specdec_exporter.commands.cli import main;"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        f"sys.argv[1:] = {arguments.split()}; main()"
    )
    imported = set(ran(sys.executable, "-c", program).stderr.split())
    assert "specdec_exporter.commands" in imported
    assert not imported & set(spared.split())


# --- what is wrong ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nonsense",), "--nonsense"),
        (("nonsense",), "'nonsense'"),
        (("--window", "soon"), "expected a duration such as 30s, 5m or 1h30m, found 'soon'"),
        (("--web.listen-address=nowhere",), "expected a listen address such as :10409 or [::1]:10409, found 'nowhere'"),
        (("--predictor.url=ftp://127.0.0.1",), "expected a URL such as http://127.0.0.1:8080"),
        (("--log.level", "loud"), "'loud' is not one of"),
        (("check",), "URL"),
        (("completion",), "'{bash|zsh|fish}'. Choose from: bash, zsh, fish"),
        (("baseline",), "Missing command"),
        (("doctor", "ftp://h"), "expected a URL such as http://127.0.0.1:8080"),
        (("doctor", "/etc/predictor.yaml"), "found '/etc/predictor.yaml'"),
        (("analyze", "--output", "xml", str(LOG)), "'xml' is not one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_usage_exits_64_with_one_clear_line(arguments: tuple[str, ...], words: str) -> None:
    run = Run(*arguments)
    assert run.is_refused(words), run.err


def test_a_bad_variable_is_named() -> None:
    run = Run("--config.check", variables={"SPECDEC_WINDOW": "soon"})
    assert run.is_refused("SPECDEC_WINDOW"), run.err


def test_a_variable_that_nobody_reads_is_told() -> None:
    """Also in the log of a server. Kubernetes' own variables of a Service with our name are none of ours."""
    of_a_service = {
        "SPECDEC_EXPORTER_SERVICE_HOST": "10.0.0.1",
        "SPECDEC_EXPORTER_SERVICE_PORT_HTTP": "10409",
        "SPECDEC_PORT": "tcp://10.0.0.1:10409",
        "SPECDEC_EXPORTER_PORT_10409_TCP_ADDR": "10.0.0.1",
    }
    others = {"SPECDEC_PREDICTR_URL": "x", "SPECDEC_WINDOW": "5m", "SPECDEC_TRACEBACK": ""}
    run = Run("--config.check", variables=of_a_service | others)
    assert run.code == 2
    told = "SPECDEC_PREDICTR_URL means nothing here: did you mean SPECDEC_PREDICTOR_URL?"
    assert run.err == f"specdec-exporter: {told}\n"
    variables = environment(**others, SPECDEC_WEB_LISTEN_ADDRESS="127.0.0.1:0")
    with child(*EXPORTER, env=variables) as serve:
        assert serve.stderr is not None
        assert b"begins to serve" in serve.stderr.readline()
        assert told.encode() in serve.stderr.readline()


@pytest.mark.parametrize("command", ["check", "baseline record --predictor.url", "baseline record --prometheus"])
def test_tls_that_is_not_there_is_told_with_the_commands_own_flag(command: str) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        pass

    with serving(Handler) as port:
        selected = ["--selector={a='b'}"] if command.endswith("prometheus") else []
        run = Run(*command.split(), f"https://127.0.0.1:{port}", *selected)
    told = " ".join((run.out + run.err).split())
    assert (run.code, "_ssl" in told, "[SSL" in told) == (1, False, False)
    assert "nothing speaks TLS there, or none that fits; the URL of plain HTTP begins with http://" in told
    assert ("give --config.file: a file with this URL, its ca_file or server_name." in told) == (not selected)


# --- completion ---


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_the_script_that_completes(shell: str) -> None:
    run = Run("completion", shell)
    assert (run.code, run.err) == (0, "")
    assert "_SPECDEC_EXPORTER_COMPLETE" in run.out
    assert "specdec-exporter" in run.out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("specdec-exporter ch", ["check"]),
        ("specdec-exporter ", COMMANDS),
        ("specdec-exporter --predictor.u", ["--predictor.url"]),
        ("specdec-exporter compare --pa", ["--paired"]),
        ("specdec-exporter baseline sh", ["show"]),
    ],
)
def test_commands_and_flags_are_completed_and_nothing_is_served(typed: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_SPECDEC_EXPORTER_COMPLETE": "bash_complete"}
    run = Run(program=SCRIPT, variables=words)
    assert (run.code, run.out.split()) == (0, [f"plain,{each}" for each in offered])


@pytest.mark.parametrize("shown", [False, True])
def test_an_error_of_our_own_is_one_line_unless_its_place_is_asked_for(
    shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(sys, "argv", ["specdec-exporter", "check"])
    monkeypatch.setattr(cli.cli, "main", fail)
    monkeypatch.setenv("SPECDEC_TRACEBACK", "1" if shown else "")
    with pytest.raises(ZeroDivisionError if shown else SystemExit) as caught:
        main()
    if not shown:
        assert caught.value.args == (1,)
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "ZeroDivisionError: by nothing" in err


# --- healthcheck ---


@pytest.mark.parametrize(("status", "code"), [(200, 0), (401, 0), (503, 1)])
def test_a_health_check_follows_the_answer(status: int, code: int) -> None:
    paths: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    with serving(Handler) as port:
        run = Run("healthcheck", variables={"SPECDEC_WEB_LISTEN_ADDRESS": f"127.0.0.1:{port}"})
    assert paths == ["/-/healthy"]
    assert (run.code, run.out) == (code, "")
    assert run.err == "" if code == 0 else run.failed("answered 503")


def test_a_health_check_without_an_answer_fails_with_one_line(closed_port: int) -> None:
    assert Run("healthcheck", f"--web.listen-address=127.0.0.1:{closed_port}").failed("refused")
    assert Run("healthcheck", "--web.listen-address=nowhere").is_refused("expected a listen address")
    assert Run("healthcheck", variables={"SPECDEC_WEB_LISTEN_ADDRESS": f"http://127.0.0.1:{closed_port}"}).failed(
        "refused"
    )


# --- analyze ---

# What vLLM itself printed, read the plain way.
ACCEPTED, DRAFTED = (
    sum(map(int, re.findall(rf"SpecDecoding metrics: .*?{word}: (\d+) tokens,", LOG.read_text())))
    for word in ("Accepted", "Drafted")
)


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color"}], ids=str)
def test_a_report_through_a_pipe_is_plain_text_with_the_logs_own_totals(variables: dict[str, str]) -> None:
    run = Run("analyze", str(LOG), variables=variables)
    assert (run.code, run.err) == (2, "")
    assert "\x1b" not in run.out
    assert re.search(rf"^ *Draft tokens +{DRAFTED:,}$", run.out, re.MULTILINE)
    assert re.search(rf"^ *Accepted tokens +{ACCEPTED:,}$", run.out, re.MULTILINE)
    assert re.search(rf"^ *Acceptance rate +{ACCEPTED / DRAFTED:.1%}", run.out, re.MULTILINE)
    assert "method draft_model" in run.out
    assert "Verdict: watch" in run.out


def test_a_caller_without_stderr_gets_the_report() -> None:
    run = Run("analyze", str(LOG), program=("sh", "-c", 'exec "$@" 2>&-', "sh", *EXPORTER))
    assert (run.code, "Verdict: watch" in run.out) == (2, True)


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, output: str) -> None:
    big = tmp_path / "server.log"  # its lines as JSON are more than a pipe holds
    big.write_bytes(LOG.read_bytes() * 100)
    with child(*EXPORTER, "analyze", f"--output={output}", big) as analyze:
        assert analyze.stdout is not None
        assert analyze.stderr is not None
        analyze.stdout.close()
        assert analyze.stderr.read() == b""
        assert analyze.wait(SECONDS) == 0


def test_json_lines_of_a_stream_come_while_it_goes_on() -> None:
    with child(*EXPORTER, "analyze", "--output=jsonl", "-", stdin=subprocess.PIPE) as analyze:
        assert analyze.stdin is not None
        assert analyze.stdout is not None
        for second in range(3):
            line = f"{HEADER}{SPEC}\n".replace(":52 ", f":5{second} ")
            analyze.stdin.write(line.encode())
            analyze.stdin.flush()
            assert json.loads(analyze.stdout.readline())["timestamp"] == f"11-20 21:44:5{second}"
        analyze.stdin.close()
        assert analyze.stdout.read() == b""
        assert analyze.wait(SECONDS) == 2  # too few drafts


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_ctrl_c_prints_what_was_seen_so_far(output: str, tmp_path: Path) -> None:
    marker = tmp_path / "fifo"
    os.mkfifo(marker)
    log = CAPTURES / "0.25.1-ngram-k5" / "server.log"
    with child(*EXPORTER, "analyze", f"--output={output}", log, marker) as analyze:
        writer = os.open(marker, os.O_WRONLY)  # waits until the first file has been read and this one is opened
        try:
            analyze.send_signal(signal.SIGINT)
            out, err = analyze.communicate(timeout=SECONDS)
        finally:
            os.close(writer)
    assert analyze.returncode == 2  # by what was read
    assert err == b""
    assert b"380" in out
