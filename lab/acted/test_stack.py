"""The stack of compose.yaml without containers: its commands and files, at other addresses, scraped every second."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from acted.asking import until
from deploy import containers
from support.fieldtools import ROOT, tool
from support.processes import EXPORTER, Server, beside, free_port, ran

# Of each service: its server, and what asks it for its health. Debian's promtool cannot ask.
PROGRAMS = {"prometheus": ("prometheus3", "promtool3"), "alertmanager": ("alertmanager-current", "amtool-current")}
SIMULATOR = ("env", f"PYTHONPATH={ROOT / 'deploy'}", sys.executable, "-m", "demo.simulator")

pytestmark = pytest.mark.field


def check_health(service: str, server: Server) -> subprocess.CompletedProcess[str]:
    """The service's health check, asking this server."""
    _, program, *arguments = containers.services()[service]["healthcheck"]["test"]
    asked = [re.sub(r"http://127\.0\.0\.1:\d+", server.url, argument) for argument in arguments]
    command = (sys.executable,) if program == "python" else (tool(PROGRAMS[service][1]),)
    return ran(*command, *asked)


async def test_the_exporter_is_scraped_and_the_rules_and_alertmanager_are_loaded(tmp_path: Path) -> None:
    ports = {service: free_port() for service in ("simulator", "exporter", "prometheus", "alertmanager")}
    roots = {service: containers.filesystem(service, tmp_path / service) for service in ports}
    async with contextlib.AsyncExitStack() as stack:

        async def start(service: str, program: tuple[str, ...], arguments: list[str], ready: str) -> Server:
            command = (*program, *arguments)
            return await stack.enter_async_context(
                beside(service, command, port=ports[service], ready=ready, directory=tmp_path)
            )

        address = f"127.0.0.1:{ports['simulator']}"
        arguments = containers.command("simulator", roots["simulator"], {"--listen-address": address})
        simulator = await start("simulator", SIMULATOR, arguments, "/health")
        given = containers.environment("exporter")
        log = roots["simulator"] / Path(given["SPECDEC_PREDICTOR_LOG_PATH"].lstrip("/"))
        arguments = [
            f"--predictor.url=http://{address}",
            f"--predictor.name={given['SPECDEC_PREDICTOR_NAME']}",
            f"--predictor.log-path={log}",
            f"--web.listen-address=127.0.0.1:{ports['exporter']}",
        ]
        await start("exporter", EXPORTER, arguments, "/-/ready")
        listen = f"--web.listen-address=127.0.0.1:{ports['alertmanager']}"
        arguments = [*containers.command("alertmanager", roots["alertmanager"], {}), listen]
        alertmanager = await start("alertmanager", (tool(PROGRAMS["alertmanager"][0]),), arguments, "/-/ready")

        (config,) = (mount for mount in containers.mounts("prometheus") if mount.source == "./prometheus.yaml")
        place = roots["prometheus"] / config.target.lstrip("/")
        text = place.read_text(encoding="utf-8").replace("scrape_interval: 15s", "scrape_interval: 1s")
        for name in ("exporter", "prometheus", "alertmanager"):
            host = "localhost" if name == "prometheus" else name
            text = re.sub(rf"\[{host}:\d+\]", f"['127.0.0.1:{ports[name]}']", text)
        place.unlink()
        place.write_text(text, encoding="utf-8")
        listen = f"--web.listen-address=127.0.0.1:{ports['prometheus']}"
        arguments = [*containers.command("prometheus", roots["prometheus"], {}), listen]
        prometheus = await start("prometheus", (tool(PROGRAMS["prometheus"][0]),), arguments, "/-/ready")

        checks = {"simulator": simulator, "alertmanager": alertmanager, "prometheus": prometheus}
        for service, server in checks.items():
            answer = check_health(service, server)
            assert answer.returncode == 0, (service, answer.stdout, answer.stderr)
        targets = await until(
            prometheus.url,
            "/api/v1/targets",
            lambda data: [one["health"] for one in data["activeTargets"]] == ["up", "up"],
        )
        found = await until(prometheus.url, "/api/v1/query?query=specdec_up", lambda data: data["result"])
        rules = await until(prometheus.url, "/api/v1/rules", lambda data: data["groups"])
        managers = await until(prometheus.url, "/api/v1/alertmanagers", lambda data: data["activeAlertmanagers"])

    assert {one["labels"]["job"] for one in targets["activeTargets"]} == {"specdec-exporter", "prometheus"}
    (sample,) = found["result"]
    assert (sample["metric"]["inference_service"], sample["value"][1]) == ("chat", "1")
    assert any(rule["name"] == "SpecDecodeAcceptanceLow" for group in rules["groups"] for rule in group["rules"])
    assert urlsplit(managers["activeAlertmanagers"][0]["url"]).netloc == urlsplit(alertmanager.url).netloc
