"""The image: the same each time, small, with nothing that the exporter does not need."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from image.building import LABELS, Builder, Image
from image.pod import MIB, Container
from report import Transcript

SIZE_MIB = 25


def test_two_builds_have_one_digest(builder: Builder, image: Image, report: Transcript) -> None:
    second = builder.build("second").digest
    assert second == image.digest
    report.row("image", What="Digest of two builds", Measured=f"{image.digest[:19]}... and {second[:19]}...")


def test_it_is_small(image: Image, root: Path, report: Transcript) -> None:
    whole = sum(path.lstat().st_size for path in root.rglob("*"))
    report.row("image", What="Size, compressed", Measured=f"{image.compressed_bytes / MIB:.1f} MiB")
    report.row("image", What="Size, on disk", Measured=f"{whole / MIB:.0f} MiB")
    assert image.compressed_bytes <= SIZE_MIB * MIB


def test_it_holds_what_the_exporter_needs_and_no_tools(root: Path) -> None:
    programs = {path.name for path in root.rglob("*") if path.parent.name in ("bin", "sbin")}
    assert programs == {"python", "python3", "python3.11", "specdec-exporter"}
    packages = {path.name for path in root.rglob("python3.11/**/*")}
    assert {"rich", "aiohttp"} < packages
    assert not packages & {"pip", "setuptools", "ensurepip", "pygments", "test"}


def test_nobody_gains_rights_and_nothing_is_writable(root: Path) -> None:
    modes = {path: path.lstat().st_mode for path in root.rglob("*") if not path.is_symlink()}
    assert [path for path, mode in modes.items() if mode & (stat.S_ISUID | stat.S_ISGID)] == []
    assert {path.relative_to(root).as_posix() for path, mode in modes.items() if mode & stat.S_IWOTH} == {"tmp"}
    assert {path.lstat().st_uid for path in modes} == {0}


def test_every_module_has_bytecode_that_is_never_checked(root: Path) -> None:
    sources = [path for path in root.rglob("*.py") if "bin" not in path.parts]
    compiled = [path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc" for path in sources]
    assert len(sources) > 500
    assert [str(path) for path in compiled if not path.exists()] == []
    # PEP 552: 1 is by hash, without 2 it is not compared.
    assert {path.read_bytes()[4] for path in compiled} == {1}
    assert not [path for path in compiled if str(root).encode() in path.read_bytes()]


def test_scanners_find_the_packages_and_their_licences(root: Path) -> None:
    packages = {path.name: path.read_text() for path in (root / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "ca-certificates"} < set(packages)
    assert any(name.startswith("libssl") for name in packages)
    assert all(re.search(r"(?m)^Version: ", status) for status in packages.values())
    assert all((root / "usr/share/doc" / name / "copyright").exists() for name in packages)
    assert "VERSION_CODENAME=" in (root / "etc/os-release").read_text()


def test_its_labels_say_what_it_was_made_of(image: Image) -> None:
    found = image.config["config"]["Labels"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in found.items()}
    assert {key: labels[key.lower()] for key in LABELS} == LABELS
    assert labels["licenses"] == "Apache-2.0"
    assert labels["source"].startswith("https://")


IMPORT_ALL = """
import importlib, pkgutil, ssl, sys, specdec_exporter
for module in pkgutil.walk_packages(specdec_exporter.__path__, "specdec_exporter."):
    if not module.name.endswith(("__main__", "terminal.plot")):
        importlib.import_module(module.name)
import rich.progress
assert ssl.create_default_context().get_ca_certs() or ssl.get_default_verify_paths().capath, "no CA certificates"
assert __import__("pwd").getpwuid(65532).pw_name == "specdec"
"""


def test_every_module_can_be_imported(sidecar: Container) -> None:
    ran = sidecar.run("python", "-c", IMPORT_ALL)
    assert (ran.returncode, ran.stderr) == (0, "")


DANGLING = """
import os
for top in ("/etc", "/lib", "/lib64", "/opt", "/usr"):
    for directory, _, files in os.walk(top):
        for path in (os.path.join(directory, name) for name in files):
            os.path.exists(path) or print(path)
"""


def test_every_link_leads_somewhere_in_the_image(sidecar: Container) -> None:
    ran = sidecar.run("python", "-c", DANGLING)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
