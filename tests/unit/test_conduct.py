"""How all commands behave alike: mistakes, exit codes, output that cannot be written, progress."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from specdec_exporter.baseline.writing import write_baseline
from support import running
from support.builders import CAPTURES, FIXTURES
from support.processes import EXPORTER, child, exporter_ran, unset
from support.recordings import CURVE, recording

LOG = CAPTURES / "0.32.0-draft_model-k3" / "server.log"
RECORDINGS = FIXTURES / "recordings" / "gain"
BENCH = FIXTURES / "bench" / "0.11.2"
SIDES = (RECORDINGS / "plain.yaml", RECORDINGS / "k3.yaml")

# --- bad usage ---


def refusal(*arguments: str | Path, **variables: str) -> list[str]:
    """The lines on stderr of bad usage, which prints nothing else and ends with 64."""
    done = exporter_ran(*arguments, **variables)
    assert (done.returncode, done.stdout) == (64, ""), done
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("chek",), "No such command 'chek'. Did you mean 'check'? (see specdec-exporter --help)"),
        (
            ("baseline", "rcord"),
            "No such command 'rcord'. Did you mean 'record'? (see specdec-exporter baseline --help)",
        ),
        (("analyze", "--ouput=json"), "No such option '--ouput'. Did you mean '--output'?"),
        (("analyze", "--output=jsn"), "'jsn' is not one of 'text', 'json', 'jsonl': did you mean json?"),
        (("doctor", "--args", ""), "expected `vllm serve MODEL ...`, or arguments of it, found nothing"),
        (("doctor", "--args", " # vllm"), "expected `vllm serve MODEL ...`, or arguments of it, found nothing"),
        (("check", " "), "expected a URL such as http://127.0.0.1:8080, found ' '"),
        (("compare", SIDES[0], RECORDINGS / ".." / "gain" / "plain.yaml"), "plain.yaml twice (see"),
        (("compare", BENCH, BENCH), "0.11.2 twice (see"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_bad_usage_is_one_line_that_says_what_was_meant(arguments: tuple[str | Path, ...], words: str) -> None:
    (line,) = refusal(*arguments)
    assert line.startswith("specdec-exporter: ")
    assert words in line


def test_a_copy_of_a_recording_is_not_compared_with_it(tmp_path: Path) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_bytes(SIDES[1].read_bytes())
    (line,) = refusal("compare", *SIDES, copy)
    assert f"expected different files, found that {copy} is a copy of {SIDES[1]}" in line


# --- a configuration with several mistakes ---

MISTAKES = """
wndow: 5m
web: {telemetry_pth: /x}
log: {level: inof}
predictors:
  - {name: "", url: "ftp://h", timout: 5s, log_format: crl}
  - {name: b, timeout: soon, interval: 5ms}
"""


def test_all_mistakes_of_flags_variables_and_file_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "specdec.yaml"
    file.write_text(MISTAKES)
    lines = refusal(
        f"--config.file={file}",
        "--config.check",
        "--window=soon",
        "--log.level=inof",
        SPECDEC_PREDICTOR_TIMEOUT="never",
    )
    assert [line.partition(" (env var:")[0] for line in lines[:3]] == [
        "specdec-exporter: Invalid value for '--window'",
        "specdec-exporter: Invalid value for '--log.level'",
        "specdec-exporter: Invalid value for '--predictor.timeout'",
    ]
    assert "'inof' is not one of 'debug', 'info', 'warn', 'error': did you mean info? (see" in lines[1]
    told = [line.removeprefix(f"specdec-exporter: {file}: ") for line in lines[3:]]
    places, meant = zip(*((line.partition(": ")[0], line.partition("did you mean ")[2]) for line in told), strict=True)
    assert dict(zip(places, meant, strict=True)) == {
        "wndow": "window?",
        "web.telemetry_pth": "telemetry_path?",
        "log.level": "info?",
        "predictors[0].timout": "timeout?",
        "predictors[0].log_format": "cri?",
        "predictors[0].name": "",
        "predictors[0].url": "",
        "predictors[1].timeout": "",
        "predictors[1].interval": "",
    }


def test_all_files_that_a_valid_configuration_names_and_that_cannot_be_read_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "specdec.yaml"
    file.write_text(
        "web: {config_file: /etc/nowhere/web.yaml}\n"
        "predictors:\n"
        "- {name: a, baseline: /etc/nowhere/a.yaml}\n"
        "- {name: b, baseline: /etc/nowhere/b.yaml, cert_file: b.crt}\n"
    )
    done = exporter_ran(f"--config.file={file}", "--config.check")
    assert (done.returncode, done.stdout) == (1, "")
    reason = "cannot be read: No such file or directory"
    *files, tls = done.stderr.splitlines()
    assert files == [f"specdec-exporter: /etc/nowhere/{name}.yaml: {reason}" for name in ("web", "a", "b")]
    assert "cert_file needs key_file" in tls


# --- output that cannot be written ---


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("completion", "bash"),
        ("--config.check",),
        ("analyze", LOG),
        ("analyze", "--output=jsonl", LOG),
        ("compare", *SIDES),
        ("compare", "--output=json", *SIDES),
        ("doctor", "--args=--port"),
        ("doctor", "--args=--port", "--output=json"),
        ("baseline", "show", SIDES[0]),
        ("baseline", "check", SIDES[0]),
    ],
    ids=lambda arguments: " ".join(Path(argument).name for argument in arguments),
)
def test_a_full_disk_is_told_in_one_line(arguments: tuple[str | Path, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*EXPORTER, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            env=unset(),
            timeout=60,
            check=False,
        )
    assert done.stderr == b"specdec-exporter: the output cannot be written: No space left on device\n"
    assert done.returncode == 1


# --- exit codes: 0 no warning, 2 a warning, 1 a failure ---

HEALTHY = CAPTURES / "0.33.0-driven" / "server.log"
OFF = CAPTURES / "0.32.0-baseline-nospec" / "server.log"
FAILED = FIXTURES / "starts" / "failed" / "0.32.0-draft-not-in-cache.log"
RESPONSES = FIXTURES / "responses" / "0.32.0-ngram-k5.jsonl"
COSTLY = "WARNING 11-20 22:09:19 [vllm.py:847] Dynamic speculative decoding is not supported with data parallelism"


def pages(*names: str) -> list[bytes]:
    """What a predictor answers, one page after the other."""
    return [(CAPTURES / "0.25.1-draft_model-k3" / name).read_bytes() for name in names]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: recordings without a flag, logs, configurations."""
    monkeypatch.chdir(tmp_path)
    for name, tpot in (("plain", 0.02), ("faster", 0.01), ("slower", 0.03)):
        curve = () if name == "plain" else CURVE
        write_baseline(f"{name}.yaml", recording(name, tpot=[tpot] * 1000, curve=curve, blocks=12))
    (tmp_path / "foreign.log").write_text("hello\n")
    (tmp_path / "costly.log").write_text(f"{HEALTHY.read_text()}{COSTLY}\n")
    (tmp_path / "bad.yaml").write_text("nmae: x")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"analyze {HEALTHY}", 0),
        (f"analyze {OFF}", 2),
        ("analyze foreign.log", 2),
        ("analyze costly.log", 2),
        (f"analyze {FAILED}", 1),
        ("analyze nowhere.log", 1),
        (f"analyze --responses {RESPONSES}", 0),
        ("analyze --responses foreign.log", 2),
        ("analyze --responses nowhere", 1),
        ("check http://127.0.0.1:1", 1),
        ("compare plain.yaml faster.yaml", 0),
        ("compare plain.yaml faster.yaml slower.yaml", 0),
        ("compare plain.yaml slower.yaml --fail-on-regression", 1),
        (f"compare {SIDES[0]} {SIDES[1]}", 2),
        (f"compare {SIDES[0]} {SIDES[1]} {RECORDINGS}/fast.yaml", 2),
        (f"compare {BENCH}/plain-c1.json {BENCH}/spec-k3-c1.json", 2),
        ("compare plain.yaml nowhere.yaml", 1),
        ("doctor --release=0.32.0 --args=--port=80", 0),
        ("doctor --args=--port=80", 2),
        ("doctor --manifest nowhere.yaml", 1),
        ("baseline show plain.yaml", 0),
        ("baseline show bad.yaml", 1),
        ("baseline check plain.yaml", 0),
        ("baseline check plain.yaml bad.yaml", 1),
        ("baseline record --predictor.url http://127.0.0.1:1 --duration 1", 1),
        ("serve --config.check", 0),
        ("serve --config.check --config.file bad.yaml", 1),
        ("healthcheck --web.listen-address 127.0.0.1:1", 1),
        ("completion bash", 0),
    ],
)
@pytest.mark.usefixtures("folder")
def test_every_command_ends_with_the_worst_that_it_found(command: str, code: int) -> None:
    done = exporter_ran(*command.split())
    assert done.returncode == code, done.stdout + done.stderr


def test_a_variable_that_nobody_reads_is_a_warning() -> None:
    assert exporter_ran("--config.check", SPECDEC_WINDOWS="5m").returncode == 2


@pytest.mark.parametrize(
    ("last", "code"), [("metrics-1-p90.txt", 0), ("metrics-0-before-any-request.txt", 2)], ids=["drafts", "no drafts"]
)
async def test_check_ends_with_its_worst_finding(last: str, code: int) -> None:
    async with running.predictor() as predictor:
        predictor.bodies, predictor.version = pages("metrics-0-before-any-request.txt", last), "0.25.1"
        done = await asyncio.to_thread(exporter_ran, "check", predictor.url, "--window=50ms")
    assert (done.returncode, "WARN: " in done.stdout) == (code, code == 2), done.stdout


async def test_remarks_on_a_recording_are_no_warnings(tmp_path: Path) -> None:
    async with running.predictor() as predictor:
        predictor.bodies = pages("metrics-0-before-any-request.txt", "metrics-1-p90.txt")
        flags = (f"--predictor.url={predictor.url}", "--duration=1", "-o", tmp_path / "new.yaml")
        done = await asyncio.to_thread(exporter_ran, "baseline", "record", *flags)
    assert (done.returncode, "  note: " in done.stderr) == (0, True), done.stderr


# --- where the output goes, and its form ---


@pytest.mark.parametrize(
    "command", [f"analyze {LOG}", "compare plain.yaml faster.yaml", "doctor --args=--port", "baseline show plain.yaml"]
)
def test_o_names_a_file_in_every_command(command: str, folder: Path) -> None:
    printed = exporter_ran(*command.split())
    written = exporter_ran(*command.split(), "-o", "report.txt")
    assert (folder / "report.txt").read_text(encoding="utf-8") == printed.stdout
    assert (written.returncode, written.stdout, written.stderr) == (printed.returncode, "", printed.stderr)
    as_json = exporter_ran(*command.split(), "--output=json", "-o", "report.json")
    assert (as_json.returncode, as_json.stdout) == (printed.returncode, "")
    json.loads((folder / "report.json").read_bytes())
    (line,) = refusal(*command.split(), "-o", "json")
    assert "-o names a file, --output a format: --output json" in line
    assert not (folder / "json").exists()
    done = exporter_ran(*command.split(), "-o", "nowhere/report.txt")
    assert (done.returncode, done.stderr) == (
        1,
        "specdec-exporter: nowhere/report.txt: cannot be written: No such file or directory\n",
    )


async def test_the_json_of_a_log_has_the_keys_of_a_check() -> None:
    async with running.predictor() as predictor:
        predictor.status = 404
        flags = (f"--predictor.log-path={LOG}", "--output=json")
        done = await asyncio.to_thread(exporter_ran, "check", predictor.url, *flags, PYTHONHASHSEED="0")
    checked = json.loads(done.stdout)
    done = exporter_ran("analyze", LOG, "--output=json", PYTHONHASHSEED="0")  # the seed orders sets
    analysed = json.loads(done.stdout)
    assert list(analysed) == list(checked)
    assert (analysed["status"], analysed["level"], done.returncode) == (None, "WARN", 2)
    assert analysed["log"] == checked["log"]
    assert analysed["verdict"] == analysed["log"]["verdict"]
    assert analysed["basis"] == analysed["log"]["judged"]["figures"]
    assert {"level", "subject", "found", "action"} == set(analysed["findings"][0])


def test_the_json_of_a_log_with_responses_is_an_object_for_each() -> None:
    done = exporter_ran("analyze", LOG, "--responses", RESPONSES, "--output=json")
    log, requests = map(json.loads, done.stdout.splitlines())
    assert (log["level"], requests["kind"]) == ("WARN", "responses")


# --- progress: on a terminal only ---


def on_a_terminal(*arguments: str | Path) -> tuple[str, str]:
    """What a command writes to stdout, a file, and to stderr, a terminal."""
    ours, theirs = pty.openpty()
    command = [*EXPORTER, *map(str, arguments)]
    with tempfile.TemporaryFile() as out, os.fdopen(ours, "rb", buffering=0) as terminal:
        with child(*command, stdout=out, stderr=theirs, env=unset(TERM="xterm", PYTHONHASHSEED="0")):
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: the command has ended
                while part := terminal.read(4096):
                    shown += part
        out.seek(0)
        return out.read().decode(), shown.decode()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"analyze {LOG}", r"Reading .*29\.5/29\.5 kB"),
        (f"analyze {LOG} --output=json", r"Reading .*29\.5/29\.5 kB"),
        (f"analyze {LOG} --output=jsonl", r"Reading .*29\.5/29\.5 kB"),
        (f"analyze --responses {RESPONSES}", r"Reading .* kB"),
        (f"compare {SIDES[0]} {SIDES[1]}", "Comparing 2 files"),
        (f"compare {FIXTURES}/bench/aiperf-0.13.0 {BENCH}/plain-c1.json", "Comparing 2 files"),
        ("doctor --args=--port=80", "Examining"),
        (
            "baseline record --prometheus http://127.0.0.1:1 --selector {a='b'}",
            "Asking http://127.0.0.1:1 for",
        ),
    ],
)
def test_a_command_that_may_take_long_shows_on_a_terminal_that_it_works(command: str, words: str) -> None:
    out, shown = on_a_terminal(*command.split())
    assert re.search(words, shown, re.DOTALL)
    piped = exporter_ran(*command.split(), PYTHONHASHSEED="0")
    assert out == piped.stdout
    assert not re.search("Reading|Comparing|Examining|Asking", piped.stderr)


async def test_a_recording_shows_its_time_on_a_terminal() -> None:
    async with running.predictor() as predictor:
        predictor.bodies = pages("metrics-0-before-any-request.txt", "metrics-1-p90.txt", "metrics-2-p60.txt")
        flags = ("baseline", "record", "--predictor.url", predictor.url, "--duration=1")
        _, shown = await asyncio.to_thread(on_a_terminal, *flags)
        predictor.requests = 0
        piped = await asyncio.to_thread(exporter_ran, *flags)
    assert f"Recording {predictor.url} for 1 s; Ctrl-C ends it early and keeps the data" in shown
    assert re.search(r"\d+%", shown)
    assert piped.returncode == 0
    assert all(line.startswith("  note: ") for line in piped.stderr.splitlines())
