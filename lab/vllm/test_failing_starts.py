"""What the log says of a real server's start, on the release under test: why it failed, and what it was asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, StartFailure
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.log.start import Start
from specdec_exporter.predictor.versions import parse_release
from vllm.failing import DRAFT, FAILING, FailingStart, prepare
from vllm.server import Installation, Server, ServerError


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("unknown-key", "unknown_key"),
        pytest.param("missing-weights", "weights_missing", marks=pytest.mark.nightly),
        pytest.param("port-in-use", "port_in_use", marks=pytest.mark.nightly),
    ],
)
def test_a_start_that_fails_says_why(name: str, cause: str, installation: Installation, tmp_path: Path) -> None:
    server, taken = prepare(FAILING[name], installation, tmp_path)
    with taken, pytest.raises(ServerError, match="ended with status"):
        server.start()
    assert [event.failure for event in events(server) if isinstance(event, StartFailure)] == [cause]


@pytest.mark.parametrize("adaptive", [True, False])
def test_adaptive_verification_is_read_by_its_value(adaptive: bool, installation: Installation, tmp_path: Path) -> None:
    """Only the line of arguments has it. vLLM prints that before its runner for CPUs refuses the key."""
    if (parse_release(installation.release()) or (0, 0, 0)) < (0, 28, 0):
        pytest.skip("vLLM has enable_adaptive_verification since 0.28.0")
    asked = FailingStart({**DRAFT, "enable_adaptive_verification": adaptive})
    server, taken = prepare(asked, installation, tmp_path)
    refused = pytest.raises(ServerError, match="does not support: adaptive draft verification")
    with taken, refused if adaptive else contextlib.nullcontext():
        server.start()
    server.stop()
    start = Start()
    for event in events(server):
        start = start.after(event)
    assert start.deployment.adaptive_verification is adaptive


def events(server: Server) -> Iterator[Event]:
    """What its log says."""
    log = server.log().encode()
    scanner = LogScanner(ReaderCounters())
    yield from scanner.scan(bytearray(log), log.rfind(b"\n") + 1)
    yield from scanner.finish()
