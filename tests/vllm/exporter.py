"""The exporter under test as a child process, and a reader of expositions that is not ours."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from running import wait_until
from vllm.server import get

SERVICE_NAME: Final = "tiny-service"
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_COMMAND_SECONDS: Final = 60.0
_LISTENING: Final = re.compile(r"msg=listening address=127\.0\.0\.1:(\d+)")


class Exposition:
    """The samples of a ``/metrics`` body, read by the Python client's own parser."""

    def __init__(self, text: str) -> None:
        self._samples = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def select(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of the samples called ``name`` that carry ``labels``, in the body's order."""
        return [
            (found, value)
            for sample, found, value in self._samples
            if sample == name and labels.items() <= found.items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """The one such sample's value, ``None`` where there is none; ``ValueError`` where there are several."""
        found = self.select(name, **labels)
        if len(found) > 1:
            msg = f"{len(found)} samples of {name} where one was expected"
            raise ValueError(msg)
        return found[0][1] if found else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """The values of such samples by one of their labels; ``ValueError`` where two share its value."""
        found = self.select(name, **labels)
        values = {carried[label]: value for carried, value in found}
        if len(values) != len(found):
            msg = f"label {label} does not tell the samples of {name} apart"
            raise ValueError(msg)
        return values


@dataclasses.dataclass(frozen=True, slots=True)
class Exporter:
    """A running ``specdec-exporter serve``."""

    url: str

    def scrape(self) -> Exposition:
        """What ``/metrics`` says now; ``OSError`` unless it answers 200."""
        return Exposition(get(f"{self.url}/metrics").decode())

    def scrape_until(self, condition: Callable[[Exposition], bool], *, seconds: float = 10.0) -> Exposition:
        """Scrape until ``condition`` holds; after ``seconds``, return the last scrape all the same."""
        deadline = time.monotonic() + seconds
        while not condition(exposition := self.scrape()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return exposition

    def status(self) -> dict[str, Any]:
        """The only predictor of ``/api/v1/status``."""
        answer = json.loads(get(f"{self.url}/api/v1/status"))
        (predictor,) = answer["predictors"]
        status: dict[str, Any] = predictor
        return status


@contextlib.contextmanager
def serving(
    predictor_url: str, predictor_log: Path, *, own_log: Path, baseline: Path | None = None
) -> Iterator[Exporter]:
    """Run the exporter beside a predictor, on a port of its own choice; its log goes to ``own_log``."""
    pinned = [] if baseline is None else [f"--baseline.file={baseline}"]
    with own_log.open("wb") as log:
        process = subprocess.Popen(
            _command(
                "serve",
                "--web.listen-address=127.0.0.1:0",
                f"--predictor.url={predictor_url}",
                f"--predictor.log-path={predictor_log}",
                f"--predictor.name={SERVICE_NAME}",
                *pinned,
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(),
        )
    try:

        def listens() -> bool:
            assert process.poll() is None, f"the exporter ended: {own_log.read_text()}"
            return _LISTENING.search(own_log.read_text()) is not None

        wait_until(listens, seconds=_START_SECONDS, what="listening exporter")
        found = _LISTENING.search(own_log.read_text())
        assert found is not None
        yield Exporter(f"http://127.0.0.1:{found[1]}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        finally:
            process.kill()
            process.wait()


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run another command of the exporter to its end, whatever its exit code."""
    return subprocess.run(
        _command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS,
        env=_environment(),
        check=False,
    )


def _command(*arguments: str) -> Sequence[str]:
    return (sys.executable, "-m", "specdec_exporter", *arguments)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SPECDEC_")}
