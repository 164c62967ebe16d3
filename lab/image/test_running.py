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

from image.conftest import PREDICTOR
from image.pod import Container, Pod
from report import Transcript
from support.certificates import issue
from support.fieldtools import ROOT
from support.processes import wait_until

MEMORY_MIB = 64  # what the manifest requests; the limit is 128
HEALTH_CHECK = ("specdec-exporter", "healthcheck")  # as in the Dockerfile
EXPORTER = "http://127.0.0.1:10409"
CAPTURES = ROOT / "tests" / "fixtures"


def test_it_serves_the_predictor_and_its_log_within_its_memory(
    pod: Pod, sidecar: Container, report: Transcript
) -> None:
    def is_read() -> bool:
        metrics = sidecar.get(f"{EXPORTER}/metrics")
        up = re.search(r'(?m)^specdec_up\{inference_service="chat".*\} 1(\.0)?$', metrics)
        read = re.search(r"(?m)^specdec_log_reader_bytes_total\{.*\} [1-9]", metrics)
        return bool(up and read)

    wait_until(is_read, seconds=60, what="metrics and log of the predictor")
    report.row("image", What="Memory while it serves", Measured=f"{sidecar.memory_mib:.1f} MiB")
    assert sidecar.memory_mib <= MEMORY_MIB


@pytest.mark.parametrize(
    "command",
    [("healthcheck",), ("check", EXPORTER), ("check", PREDICTOR, "--predictor.log-path=/volume/vllm.log")],
    ids=" ".join,
)
def test_a_command_beside_it_stays_within_the_limit(
    sidecar: Container, command: Sequence[str], report: Transcript
) -> None:
    sidecar.forget_peak()
    began = time.monotonic()
    ran = sidecar.run("specdec-exporter", *command)
    report.row(
        "image",
        What=f"Peak beside `{' '.join(command)}`",
        Measured=f"{sidecar.peak_mib:.1f} MiB, {time.monotonic() - began:.2f} s",
    )
    assert (ran.returncode in (0, 2), ran.stderr) == (True, "")


@pytest.fixture(scope="module")
def tls(folder: Path) -> str:
    """A web configuration with a certificate and a password; its path in the container."""
    issue("localhost").write(folder, "tls")
    (folder / "tls.key").chmod(0o644)
    password = bcrypt.hashpw(b"wonderland", bcrypt.gensalt(4)).decode()
    (folder / "web.yaml").write_text(
        f"tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\nbasic_auth_users:\n  alice: {password}\n"
    )
    return "/volume/web.yaml"


@pytest.mark.parametrize("where", [":10409", ":9001", "[::1]:9002"])
def test_its_health_check_finds_it_by_the_variables_of_the_exporter(
    pod: Pod, folder: Path, tls: str, where: str
) -> None:
    variables = {"SPECDEC_WEB_LISTEN_ADDRESS": where, "SPECDEC_WEB_CONFIG_FILE": tls}
    with pod.container(ready="msg=ready", mounts={Path("/volume"): folder}, variables=variables) as container:
        healthy = container.run(*HEALTH_CHECK)
        assert (healthy.returncode, healthy.stdout, healthy.stderr) == (0, "", "")


def test_its_health_check_says_no_if_it_hangs(pod: Pod) -> None:
    with pod.container(ready="msg=ready") as container:
        container.runc("kill", container.name, "STOP")
        asked = container.run(*HEALTH_CHECK)
        assert (asked.returncode, "timed out" in asked.stderr) == (1, True)


def test_a_log_can_be_analysed(sidecar: Container, folder: Path) -> None:
    shutil.copy(CAPTURES / "captures/0.32.0-ngram-k5/server.log", folder / "server.log")
    ran = sidecar.run("specdec-exporter", "analyze", "/volume/server.log", "--output=jsonl")
    assert ran.returncode in (0, 2), ran.stderr
    assert {json.loads(line)["kind"] for line in ran.stdout.splitlines()} >= {"spec_decoding", "engine_config"}
    assert "Acceptance" in sidecar.run("specdec-exporter", "analyze", "/volume/server.log").stdout


def test_recordings_can_be_made_and_compared(sidecar: Container, folder: Path) -> None:
    context = ["--hardware=1x A", "--request-parameters=same", "--command=vllm serve"]
    for name in ("one", "two"):
        url, to = f"--predictor.url={PREDICTOR}", f"--output=/volume/{name}.yaml"
        made = sidecar.run("specdec-exporter", "baseline", "record", url, "--duration=2s", to, *context)
        assert made.returncode in (0, 2), made.stderr
        assert sidecar.run("specdec-exporter", "baseline", "show", f"/volume/{name}.yaml").returncode == 0
    for command in (("compare",), ("baseline", "check")):
        ran = sidecar.run("specdec-exporter", *command, "/volume/one.yaml", "/volume/two.yaml")
        assert ran.returncode in (0, 1, 2)
        assert ran.stdout
        assert "internal error" not in ran.stderr


def test_it_stops_at_once_when_told_to(pod: Pod, report: Transcript) -> None:
    began = time.monotonic()
    with pod.container(ready="msg=ready") as container:
        report.row("image", What="Start, until ready", Measured=f"{time.monotonic() - began:.1f} s")
        began = time.monotonic()
        code = container.stop()
        report.row("image", What="SIGTERM to the end", Measured=f"{time.monotonic() - began:.1f} s")
        assert (code, "msg=stopped" in container.said) == (0, True)
