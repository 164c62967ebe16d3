"""Real servers that do not start: the log says why, on the release under test."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import StartFailure
from specdec_exporter.predictor.log.scan import LogScanner
from vllm.failing import FAILING, prepare
from vllm.server import Installation, ServerError


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
    log = server.log().encode()
    scanner = LogScanner(ReaderCounters(), kinds=frozenset({StartFailure}))
    events = [*scanner.scan(bytearray(log), log.rfind(b"\n") + 1), *scanner.finish()]
    assert [event.failure for event in events if isinstance(event, StartFailure)] == [cause]
