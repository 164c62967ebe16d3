"""How all commands behave alike: mistakes, exit codes, output that cannot be written, progress."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.builders import CAPTURES, FIXTURES
from support.processes import EXPORTER, exporter_ran, unset

LOG = CAPTURES / "0.32.0-draft_model-k3" / "server.log"
RECORDINGS = FIXTURES / "recordings" / "gain"
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
        (("analyze", "--output=jsn"), "'jsn' is not one of 'text', 'jsonl': did you mean jsonl?"),
        (("doctor", "--args", ""), "expected `vllm serve MODEL ...`, or arguments of it, found nothing"),
        (("doctor", "--args", " # vllm"), "expected `vllm serve MODEL ...`, or arguments of it, found nothing"),
        (("check", " "), "expected a URL such as http://127.0.0.1:8080, found ' '"),
        (("compare", SIDES[0], RECORDINGS / ".." / "gain" / "plain.yaml"), "plain.yaml twice (see"),
        (("compare", RECORDINGS, RECORDINGS), "gain twice (see"),
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
        "web: {config_file: /nowhere/web.yaml}\n"
        "predictors: [{name: a, baseline: /nowhere/a.yaml}, {name: b, baseline: /nowhere/b.yaml, cert_file: b.crt}]"
    )
    done = exporter_ran(f"--config.file={file}", "--config.check")
    assert (done.returncode, done.stdout) == (1, "")
    reason = "cannot be read: No such file or directory"
    *files, tls = done.stderr.splitlines()
    assert files == [f"specdec-exporter: /nowhere/{name}.yaml: {reason}" for name in ("web", "a", "b")]
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
