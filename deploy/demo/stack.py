"""Exporter, Prometheus with the rule pack, Alertmanager with the pack's routes: as anywhere, only faster.

The rules and routes are the pack's own, with the windows and waits of config.libsonnet.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import yaml

from demo import pack
from demo.processes import ProcessError, Server, free_port, running

_TEMPLATES = Path(__file__).parents[2] / "alertmanager" / "templates"
_WEBHOOK = "http://127.0.0.1:9/"  # the receiver's address in config.libsonnet


@contextlib.asynccontextmanager
async def exporter(config: str, directory: Path) -> AsyncIterator[Server]:
    """Run ``specdec-exporter serve`` with a configuration file of this text."""
    port = free_port()
    file = directory / "exporter.yml"
    file.write_text(config)
    command = (
        *(sys.executable, "-m", "specdec_exporter", "serve"),
        f"--config.file={file}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    async with running("specdec-exporter", command, port=port, ready="/-/ready", directory=directory) as server:
        yield server


@contextlib.asynccontextmanager
async def alertmanager(webhook_url: str, directory: Path) -> AsyncIterator[Server]:
    """Run Alertmanager with the pack's routes. All of them lead to ``webhook_url``."""
    port = free_port()
    config = directory / "alertmanager.yml"
    config.write_text((await pack.text("alertmanager")).replace(_WEBHOOK, f"{webhook_url}/"))
    shutil.copytree(_TEMPLATES, directory / "templates")
    (directory / "secrets").mkdir()
    (directory / "secrets" / "webhook-token").write_text("nobody asks for it")
    command = (
        "prometheus-alertmanager",
        f"--config.file={config}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    async with running("alertmanager", command, port=port, ready="/-/ready", directory=directory) as server:
        yield server


@contextlib.asynccontextmanager
async def prometheus(
    targets: Mapping[str, Server], alerts_to: Server, directory: Path, pack_config: Path = pack.CONFIG
) -> AsyncIterator[Server]:
    """Run Prometheus with the pack's rules, scraping ``targets`` (exporters by their pods' names) every second."""
    port = free_port()
    config = directory / "prometheus.yml"
    rules = directory / "specdec.rules.yml"
    rules.write_text(await pack.text("rules", pack_config))
    config.write_text(yaml.safe_dump(_configuration(rules, targets, alerts_to)))
    command = (
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    async with running("prometheus", command, port=port, ready="/-/ready", directory=directory) as server:
        yield server


async def alerts_page(server: Server) -> str:
    """Return the address of Prometheus's alerts, for a browser. Raises :class:`ProcessError` when no page answers.

    Debian's build lacks the web application and serves the pages of old instead; without its templates, JSON remains.
    """
    async with aiohttp.ClientSession() as session:
        for path in ("/alerts", "/classic/alerts", "/api/v1/alerts"):
            async with session.get(server.url + path) as response:
                if response.ok:
                    return server.url + path
    raise ProcessError(f"{server.name} shows its alerts nowhere; its log is {server.log}")


def _configuration(rules: Path, targets: Mapping[str, Server], alerts_to: Server) -> dict[str, object]:
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [_address(alerts_to)]}]}]},
        "scrape_configs": [
            {
                "job_name": "specdec-exporter",
                "static_configs": [
                    {"targets": [_address(server)], "labels": {"namespace": "demo", "pod": pod}}
                    for pod, server in targets.items()
                ],
            }
        ],
    }


def _address(server: Server) -> str:
    return server.url.removeprefix("http://")
