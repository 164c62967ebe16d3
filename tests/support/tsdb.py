"""A real Prometheus as a process of its own, on a port that the kernel chose, and how such a database is asked."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.fieldtools import tool, untidy
from support.processes import free_port, serving

QUERY_SECONDS = 1800  # a range of a week may take minutes where other work has the cores
Vector = dict[tuple[tuple[str, str], ...], float]  # values by sorted labels


@contextmanager
def prometheus(data: Path, program: str = "prometheus", configuration: str = "{}\n", *options: str) -> Iterator[str]:
    """Serve the blocks in ``data``; without a ``configuration`` it scrapes nothing. Yield the base URL."""
    with serving(**prometheus_of(data, configuration, *options, program=program)) as server:
        yield server.url


def prometheus_of(data: Path, configuration: str, *options: str, program: str = "prometheus") -> dict[str, Any]:
    """What to call :func:`processes.serving` with for a Prometheus; its configuration and log lie beside ``data``."""
    config, port = data.with_suffix(".yml"), free_port()
    config.write_text(configuration)
    command = [
        tool(program),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--query.timeout={QUERY_SECONDS}s",
        f"--web.listen-address=127.0.0.1:{port}",
        *options,
    ]
    return {"name": data.name, "command": command, "port": port, "directory": data.parent, "environment": untidy()}


def ask(url: str, endpoint: str, **parameters: str) -> Any:
    """The data that either database's API answers with; AssertionError with its words where it complains."""
    return ask_for({}, url, endpoint, **parameters)


def ask_for(headers: Mapping[str, str], url: str, endpoint: str, **parameters: str) -> Any:
    """The same with headers, which may name a tenant."""
    body = urllib.parse.urlencode(parameters).encode()
    return _answer(urllib.request.Request(f"{url}/api/v1/{endpoint}", body, dict(headers)), parameters)


def rules(url: str, headers: Mapping[str, str] | None = None) -> Any:
    """The groups of a ruler's rules, each rule with its state."""
    return _answer(urllib.request.Request(f"{url}/api/v1/rules", headers=dict(headers or {})))["groups"]


def _answer(request: urllib.request.Request, parameters: Mapping[str, str] | None = None) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=QUERY_SECONDS) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{parameters}: {error.read().decode()}") from error
    assert not answer.get("warnings"), (answer["warnings"], parameters)
    return answer["data"]


def query(url: str, expression: str, at: float, headers: Mapping[str, str] | None = None) -> Vector:
    """The vector that an expression has at a time (seconds since the epoch)."""
    data = ask_for(headers or {}, url, "query", query=expression, time=f"{at:.3f}")
    if data["resultType"] == "scalar":
        return {(): float(data["result"][1])}
    return {tuple(sorted(each["metric"].items())): float(each["value"][1]) for each in data["result"]}
