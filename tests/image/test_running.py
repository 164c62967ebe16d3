"""The image as the manifest runs it: scraped, asked for its health in each way, every command, and stopped."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import bcrypt
import pytest

from certificates import issue
from fieldtools import ROOT
from image.conftest import PREDICTOR
from image.pod import Container, Pod, forget
from image.report import Report
from running import wait_until

MEMORY_MIB = 28  # with the log read through the Kubernetes API, as the manifest has it; the limit is 128
HEALTH_CHECK = ("specdec-exporter", "healthcheck")  # as in the Dockerfile
EXPORTER = "http://127.0.0.1:10409"
CAPTURES = ROOT / "tests" / "fixtures"


def test_it_serves_the_predictor_and_its_log_within_its_memory(pod: Pod, sidecar: Container, report: Report) -> None:
    def is_read() -> bool:
        metrics = sidecar.get(f"{EXPORTER}/metrics")
        up = re.search(r'(?m)^specdec_up\{inference_service="chat".*\} 1(\.0)?$', metrics)
        read = re.search(r"(?m)^specdec_log_reader_bytes_total\{.*\} [1-9]", metrics)
        return bool(up and read)

    wait_until(is_read, seconds=60, what="metrics and log of the predictor")
    report.add("Memory while it serves", f"{sidecar.memory_mib:.1f} MiB")
    assert sidecar.memory_mib <= MEMORY_MIB


@pytest.mark.parametrize(
    "command",
    [("healthcheck",), ("check", EXPORTER), ("check", PREDICTOR, "--predictor.log-path=/volume/vllm.log")],
    ids=" ".join,
)
def test_a_command_beside_it_stays_within_the_limit(sidecar: Container, command: Sequence[str], report: Report) -> None:
    sidecar.forget_peak()
    began = time.monotonic()
    ran = sidecar.run("specdec-exporter", *command)
    report.add(f"Peak beside `{' '.join(command)}`", f"{sidecar.peak_mib:.1f} MiB, {time.monotonic() - began:.2f} s")
    assert (ran.returncode in (0, 2), ran.stderr) == (True, "")


@pytest.fixture(scope="module")
def web(folder: Path) -> Path:
    """Web configurations, and a configuration file with an address."""
    authority = issue("authority")
    authority.write(folder, "ca")
    issue("localhost", authority).write(folder, "tls")
    (folder / "tls.key").chmod(0o644)
    tls = "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"
    demand = "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n"
    user = f"basic_auth_users:\n  alice: {bcrypt.hashpw(b'wonderland', bcrypt.gensalt(4)).decode()}\n"
    texts = {"tls": tls, "demand": tls + demand, "demand12": f"{tls}{demand}  max_version: TLS12\n", "user": tls + user}
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "config.yaml").write_text("web:\n  listen_addresses: ['127.0.0.1:9007']\npredictors:\n  - name: chat\n")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--web.listen-address=:9001"],
        ["--web.listen-address=[::1]:9002"],
        ["--web.listen-address=127.0.0.1:9003", "--web.listen-address=127.0.0.2:9004"],
        ["--web.listen-address=127.0.0.1:0"],
        ["SPECDEC_WEB_LISTEN_ADDRESS=:9005"],
        ["SPECDEC_WEB_LISTEN_ADDRESS=:9005", "--web.listen-address=:9006"],
        ["--config.file=/volume/config.yaml"],
        ["--web.config.file=/volume/tls.yaml"],
        ["SPECDEC_WEB_CONFIG_FILE=/volume/user.yaml", "--web.listen-address=:9008"],
        ["--web.config.file=/volume/demand.yaml"],
        ["--web.config.file=/volume/demand12.yaml", "--web.listen-address=[::]:9009"],
    ],
    ids=lambda given: " ".join(given).replace("/", "\\") or "by default",
)
def test_its_health_check_finds_it_however_its_address_is_set(pod: Pod, web: Path, arguments: list[str]) -> None:
    variables = dict(text.split("=", 1) for text in arguments if not text.startswith("-"))
    flags = [text for text in arguments if text.startswith("-")]
    with pod.elsewhere().container(
        *flags, ready="msg=ready", mounts={Path("/volume"): web}, variables=variables
    ) as container:
        healthy = container.run(*HEALTH_CHECK)
        assert (healthy.returncode, healthy.stdout, healthy.stderr) == (0, "", "")


def test_its_health_check_says_no_if_it_hangs(pod: Pod, folder: Path) -> None:
    with pod.elsewhere().container("--web.listen-address=:9001", ready="msg=ready") as container:
        container.runc("kill", container.name, "STOP")
        asked = container.run(*HEALTH_CHECK)
        assert (asked.returncode, asked.stderr) == (1, "specdec-exporter: http://127.0.0.1:9001/-/healthy: timed out\n")


def test_a_log_can_be_analysed(sidecar: Container, folder: Path) -> None:
    shutil.copy(CAPTURES / "captures/0.32.0-ngram-k5/server.log", folder / "server.log")
    ran = sidecar.run("specdec-exporter", "analyze", "/volume/server.log", "--output=jsonl")
    assert ran.returncode == 0, ran.stderr
    assert {json.loads(line)["kind"] for line in ran.stdout.splitlines()} >= {"spec_decoding", "engine_config"}
    assert "Acceptance" in sidecar.run("specdec-exporter", "analyze", "/volume/server.log").stdout


def test_recordings_can_be_made_compared_and_tuned(sidecar: Container, folder: Path) -> None:
    context = ["--hardware=1x A", "--request-parameters=same", "--command=vllm serve"]
    for name in ("one", "two"):
        url, to = f"--predictor.url={PREDICTOR}", f"--output=/volume/{name}.yaml"
        made = sidecar.run("specdec-exporter", "baseline", "record", url, "--duration=2s", to, *context)
        assert made.returncode in (0, 2), made.stderr
        assert sidecar.run("specdec-exporter", "baseline", "show", f"/volume/{name}.yaml").returncode == 0
    for command in (("compare",), ("tune",), ("baseline", "check")):
        ran = sidecar.run("specdec-exporter", *command, "/volume/one.yaml", "/volume/two.yaml")
        assert ran.returncode in (0, 1, 2)
        assert ran.stdout
        assert "internal error" not in ran.stderr


@pytest.mark.parametrize(
    ("variable", "said"), [("TMPDIR=/", "run this elsewhere"), ("TMPDIR=/volume", "expected a shell, found: ")]
)
def test_a_command_that_needs_a_shell_says_so(sidecar: Container, variable: str, said: str) -> None:
    flags = ["--k=0,3", "--method=ngram", "--restart-command=true", "--directory=/volume/sweep", "--duration=1s"]
    command = ("specdec-exporter", "tune", *flags, f"--predictor.url={PREDICTOR}")
    ran = sidecar.runc("exec", "--env", variable, sidecar.name, *command)
    assert (ran.returncode, "internal error" in ran.stderr) == (1, False)
    assert said in ran.stderr.splitlines()[-1]


def test_a_manifest_can_be_judged(sidecar: Container, folder: Path) -> None:
    shutil.copy(CAPTURES / "manifests/eagle3.yaml", folder / "eagle3.yaml")
    ran = sidecar.run("specdec-exporter", "doctor", "--manifest=/volume/eagle3.yaml", "--release=0.32.0")
    assert ran.returncode in (0, 1, 2)
    assert "0.32.0" in ran.stdout


def test_it_stops_at_once_when_told_to(pod: Pod, folder: Path, report: Report) -> None:
    forget(pod.bundle)
    began = time.monotonic()
    with pod.elsewhere().container(ready="msg=ready", mounts={Path("/volume"): folder}) as container:
        report.add("Start, until ready", f"{time.monotonic() - began:.1f} s")
        report.add(
            "Memory with the files that it has read, where none was in memory", f"{container.memory_mib:.1f} MiB"
        )
        began = time.monotonic()
        code = container.stop()
        report.add("SIGTERM to the end", f"{time.monotonic() - began:.1f} s")
        assert (code, "msg=stopped" in container.said) == (0, True)
