"""The image is built once, and all tests run it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from image.building import Builder, Image
from image.pod import Container, Pod, environment, remember
from report import EVIDENCE, Transcript, measured_by
from support.fieldtools import ROOT

PREDICTOR = "http://127.0.0.1:8080"


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
    """A volume that every container may write to."""
    folder = tmp_path_factory.mktemp("volume")
    folder.chmod(0o777)
    return folder


@pytest.fixture(scope="session")
def pod(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Pod:
    return Pod(bundle, tmp_path_factory.mktemp("pod"))


@pytest.fixture(scope="session")
def sidecar(pod: Pod, folder: Path) -> Iterator[Container]:
    """The exporter as the manifest runs it, beside a simulated predictor in the same network."""
    remember(pod.bundle)
    variables = environment() | {"SPECDEC_PREDICTOR_LOG_PATH": "/volume/vllm.log"}
    simulate = (
        "-m",
        "demo.simulator",
        f"--listen-address={urlsplit(PREDICTOR).netloc}",
        f"--log-path={folder}/vllm.log",
    )
    with (
        pod.container(ready="msg=ready", mounts={Path("/volume"): folder}, variables=variables) as container,
        subprocess.Popen(container.beside(*simulate), cwd=ROOT / "deploy", stderr=subprocess.DEVNULL) as predictor,
    ):
        try:
            yield container
        finally:
            predictor.terminate()


@pytest.fixture(scope="session")
def report() -> Iterator[Transcript]:
    """The numbers of the image, printed and, with ``SPECDEC_IMAGE_RECORD=1``, written into docs/evidence/image.md."""
    seen = Transcript()
    yield seen
    seen.show()
    if os.environ.get("SPECDEC_IMAGE_RECORD"):
        seen.write(EVIDENCE / "image.md", measured_by("make test-image RECORD=1"))
