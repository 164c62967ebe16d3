"""The exporter under test as a child process, and a reader of expositions that is not ours."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from support.processes import EXPORTER, free_port
from support.processes import serving as started
from vllm.server import get

SERVICE_NAME: Final = "tiny-service"


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
    """Run the exporter beside a predictor; its log goes to ``own_log``."""
    port = free_port()
    command = (
        *(*EXPORTER, "serve", f"--web.listen-address=127.0.0.1:{port}"),
        *(f"--predictor.url={predictor_url}", f"--predictor.log-path={predictor_log}"),
        f"--predictor.name={SERVICE_NAME}",
        *(() if baseline is None else (f"--baseline.file={baseline}",)),
    )
    with started(own_log.stem, command, port=port, directory=own_log.parent) as server:
        yield Exporter(server.url)
