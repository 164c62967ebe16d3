"""What is read without click is what click reads; what is not plain is left to click."""

from __future__ import annotations

import os
import subprocess
import sys
from unittest import mock

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specdec_exporter.commands.serve import command
from specdec_exporter.commands.serveflags import FLAGS, plain_flags

WORDS = ["debug", "json", "cri", "end", "kubernetes", "DEBUG", "chat", "1", "true", "é", "5s", "5", "0s", "1h30m"]
PLACES = [":10409", "[::1]:1", "h:1", "/m", "/var/log/*.log", "http://u:p@h/x", "http://127.0.0.1:8080"]
ODD = ["", "-", "--", "-h", "=", "a b", " a ", "127.0.0.1:0 :2", "--window", "--config.check"]
VALUES = st.sampled_from(WORDS + PLACES + ODD)
SWITCHES = ["--help", "--version", "--config.check", "--web.enable-lifecycle"]
NAMES = st.sampled_from([*(flag.name for flag in FLAGS), "--config.check", "--help", "--version", "--no-such", "-h"])
ARGUMENTS = st.lists(
    st.one_of(
        st.tuples(NAMES, VALUES).map(lambda pair: ["=".join(pair)]),
        st.tuples(NAMES, VALUES).map(list),
        st.tuples(NAMES).map(list),
        st.tuples(VALUES).map(list),
    ),
    max_size=4,
).map(lambda parts: [argument for part in parts for argument in part])
ENVIRONMENT = st.dictionaries(st.sampled_from([flag.variable for flag in FLAGS]), VALUES, max_size=3)
DEPLOYED = {
    "SPECDEC_PREDICTOR_URL": "http://127.0.0.1:8080",
    "SPECDEC_PREDICTOR_NAME": "chat",
    "SPECDEC_PREDICTOR_LOG_PATH": "/var/log/vllm/*.log /var/log/other.log",
}


@given(arguments=ARGUMENTS, environment=ENVIRONMENT)
@example(arguments=[], environment=DEPLOYED)
@example(arguments=["--window", "5m", "--window=6m", "--predictor.log-path", "-"], environment=DEPLOYED)
def test_what_is_read_without_click_is_what_click_reads(arguments: list[str], environment: dict[str, str]) -> None:
    plain = plain_flags(arguments, environment)
    if plain is not None:
        others = {name: value for name, value in os.environ.items() if not name.startswith("SPECDEC_")}
        with mock.patch.dict(os.environ, others | environment, clear=True):
            context = command.make_context("serve", list(arguments))
        assert {**plain, "config_check": False} == context.params


@pytest.mark.parametrize("arguments", [[], ["--predictor.url=http://h:1", "--web.listen-address", ":1"]])
def test_usual_command_lines_are_plain(arguments: list[str]) -> None:
    assert plain_flags(arguments, {}) is not None
    assert plain_flags(arguments, DEPLOYED) is not None


@pytest.mark.parametrize(
    "arguments",
    [*SWITCHES, "--window", "--window --help", "--window=long", "--log.level=loud", "--no-such-flag=1", "more"],
)
def test_what_is_not_plain_is_left_to_click(arguments: str) -> None:
    assert plain_flags(arguments.split(), {}) is None


def test_every_flag_is_known_to_click_under_the_same_names() -> None:
    options = {max(option.opts, key=len): option for option in command.params if isinstance(option, click.Option)}
    for flag in FLAGS:
        assert (options[flag.name].name, options[flag.name].envvar) == (flag.key, flag.variable)


def test_a_plain_command_line_is_read_without_click() -> None:
    program = "import sys; sys.modules['click'] = None; from specdec_exporter.commands.main import main; main()"
    for argument, said in (("--config.file=/no/such/file", "/no/such/file"), ("--help", "internal error")):
        run = subprocess.run([sys.executable, "-c", program, argument], check=False, capture_output=True, text=True)
        assert run.returncode == 1
        assert said in run.stderr
