"""Builds the image with buildah, on a base that is made once per recipe and kept outside of the checkout."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.fieldtools import ROOT, tool

RECIPE = Path(__file__).with_name("base.sh")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "specdec-exporter" / "image"
LABELS = {"VERSION": "1.2.3", "REVISION": "0" * 40, "CREATED": "2026-01-02T03:04:05Z"}
_CERTIFICATES = "/run/certificates.pem"  # not copied into the image, as all of /etc/ssl is


@dataclass(frozen=True)
class Image:
    """An image in a directory of the OCI layout."""

    layout: Path

    def _blob(self, digest: str) -> Path:
        return self.layout / "blobs" / digest.replace(":", "/")

    @property
    def digest(self) -> str:
        index = json.loads((self.layout / "index.json").read_bytes())
        return str(index["manifests"][0]["digest"])

    @property
    def manifest(self) -> Any:
        return json.loads(self._blob(self.digest).read_bytes())

    @property
    def config(self) -> Any:
        return json.loads(self._blob(self.manifest["config"]["digest"]).read_bytes())

    @property
    def compressed_bytes(self) -> int:
        return sum(layer["size"] for layer in self.manifest["layers"])

    def unpack(self, bundle: Path) -> Path:
        """Return the directory with the files of the image, a bundle of the OCI runtime specification."""
        _run(tool("umoci"), "unpack", "--image", f"{self.layout}:latest", bundle)
        return bundle


class Builder:
    """Builds images in a storage of its own."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._storage = CACHE / hashlib.sha256(RECIPE.read_bytes()).hexdigest()[:16]
        self._buildah = [tool("buildah"), "--storage-driver", "vfs", "--root", str(self._storage)]
        self._buildah += ["--runroot", str(work / "run")]
        self._environment = os.environ | {"BUILDAH_ISOLATION": "chroot"}  # runs without a daemon, also in a container
        self._base = os.environ.get("PYTHON_IMAGE") or self._standing_in()

    def build(self, name: str) -> Image:
        """Build the Dockerfile from scratch."""
        arguments = {"PYTHON_IMAGE": self._base} | LABELS
        options = [text for key, value in arguments.items() for text in ("--build-arg", f"{key}={value}")]
        options += ["--timestamp", "0", "--format", "docker", "--quiet", *self._pip_options()]
        image = self._ask("bud", *options, str(ROOT)).split()[-1]
        layout = self._work / name
        self._ask("push", "--quiet", image, f"oci:{layout}:latest")
        self._ask("rmi", image)
        return Image(layout)

    def _standing_in(self) -> str:
        name = "localhost/specdec-exporter-base"
        if not self._ask("images", "--quiet", "--filter", f"reference={name}"):
            archive = self._work / "base.tar"
            _run(RECIPE, archive)
            container = self._ask("from", "scratch")
            self._ask("add", "--quiet", container, str(archive), "/")
            self._ask("commit", "--quiet", "--rm", container, name)
            archive.unlink()
        return name

    def _pip_options(self) -> Iterator[str]:
        """Yield what lets the pip of the build reach what the pip of this machine reaches, if that is configured."""
        asked = _run(sys.executable, "-m", "pip", "config", "list").splitlines()
        settings = {line.partition("=")[0].rpartition(".")[2]: line.partition("=")[2].strip("'") for line in asked}
        if certificates := settings.get("cert"):
            yield f"--volume={certificates}:{_CERTIFICATES}:ro"
            settings["cert"] = _CERTIFICATES
        known: dict[str, str] = {
            key: settings[key] for key in ("index-url", "extra-index-url", "proxy", "cert") if key in settings
        }
        if known:
            configuration = configparser.RawConfigParser()
            configuration["global"] = known
            with (self._work / "pip.conf").open("w") as file:
                configuration.write(file)
            yield f"--volume={self._work / 'pip.conf'}:/etc/pip.conf:ro"

    def _ask(self, *arguments: str) -> str:
        return _run(*self._buildah, *arguments, environment=self._environment)

    @contextlib.contextmanager
    def tidy(self) -> Iterator[Builder]:
        """Remove what failed builds leave behind; the base stays."""
        try:
            yield self
        finally:
            self._ask("rm", "--all")


def _run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    """Return what a program prints. A failure shows what it said."""
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}: {ran.stderr or ran.stdout}"
    return ran.stdout.strip()
