"""A real VictoriaMetrics as a process of its own, and how samples get into it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.fieldtools import tool, untidy
from support.processes import free_port, serving


@contextmanager
def victoria_metrics(data: Path) -> Iterator[str]:
    """An empty single-node VictoriaMetrics, which takes remote writes and answers queries; yield the base URL."""
    port = free_port()
    command = [
        tool("victoria-metrics"),
        f"-storageDataPath={data}",
        "-retentionPeriod=100y",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-memory.allowedBytes=256MB",
    ]
    with serving(data.name, command, port=port, ready="/health", directory=data.parent, environment=untidy()) as server:
        yield server.url


def import_samples(url: str, exposition: str) -> None:
    """Put samples (text exposition, timestamps in milliseconds) into a VictoriaMetrics."""
    with urllib.request.urlopen(url + "/api/v1/import/prometheus", exposition.encode(), timeout=60) as response:
        assert response.status == 204
    flush(url)


def flush(url: str) -> None:
    """Make all that a VictoriaMetrics has received visible to queries, and forget its cached answers."""
    for path in ("/internal/force_flush", "/internal/resetRollupResultCache"):
        with urllib.request.urlopen(url + path, timeout=60):
            pass
