"""The image is built once, and all tests run it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldtools import ROOT
from image.building import Builder, Image
from image.kubernetesapi import ApiServer
from image.pod import Container, Pod, environment, remember
from image.report import Report

PREDICTOR = "http://127.0.0.1:8080"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FIELDS = {"metadata.name": "chat-0"}


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    if os.geteuid():
        pytest.exit("these tests need root, for buildah and runc", returncode=pytest.ExitCode.USAGE_ERROR)
    with Builder(tmp_path_factory.mktemp("build")).tidy() as builder:
        yield builder


@pytest.fixture(scope="session")
def image(builder: Builder) -> Image:
    return builder.build("first")


@pytest.fixture(scope="session")
def bundle(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image.unpack(tmp_path_factory.mktemp("bundle") / "image")


@pytest.fixture(scope="session")
def root(bundle: Path) -> Path:
    """The file system of the image."""
    return bundle / "rootfs"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume that all containers of the pod may write to."""
    folder = tmp_path_factory.mktemp("volume")
    folder.chmod(0o777)
    return folder


@pytest.fixture(scope="session")
def pod(bundle: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """A pod whose predictor is simulated by the Python of the same image."""
    pod = Pod(bundle, tmp_path_factory.mktemp("pod"))
    arguments = ("-m", "demo.simulator", "--listen-address=127.0.0.1:8080", "--log-path=/volume/vllm.log")
    with pod.container(
        *arguments,
        "--uptime-seconds=600",
        ready="http://127.0.0.1:8080",
        program="python",
        mounts={Path("/volume"): folder, Path("/srv/demo"): ROOT / "deploy" / "demo"},
        variables={"PYTHONPATH": "/srv"},
    ) as predictor:
        pod.network = f"/proc/{predictor.pid}/ns/net"
        yield pod


@pytest.fixture(scope="session")
def api(pod: Pod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """What the pod's service account asks for the predictor's log."""
    with ApiServer.running(pod.network or "", tmp_path_factory.mktemp("account")) as server:
        yield server


@pytest.fixture(scope="session")
def sidecar(pod: Pod, api: ApiServer, folder: Path) -> Iterator[Container]:
    """The exporter exactly as the manifest runs it."""
    remember(pod.bundle)
    variables = environment(FIELDS) | api.variables
    mounts = {SERVICE_ACCOUNT: api.account, Path("/volume"): folder}
    with pod.container(ready="msg=ready", mounts=mounts, variables=variables) as container:
        yield container


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    report = Report()
    yield report
    report.write()
