#!/usr/bin/env python3
"""Makes the root of the image: a Python, the exporter's environment and the libraries that they load, and nothing else.

The Dockerfile runs it in its build stage: ``root.py DESTINATION ENVIRONMENT``. What is left out is listed here, and
``make test-image`` runs every command with what is left.
"""

from __future__ import annotations

import compileall
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from py_compile import PycInvalidationMode

STDLIB = Path(sysconfig.get_path("stdlib"))
# Of the standard library: nobody needs a window, a terminal's editing, a database or an installer.
UNUSED_MODULES = """
    curses dbm distutils ensurepip idlelib lib2to3 pydoc_data sqlite3 test tests tkinter turtle.py turtledemo venv
    config-* site-packages dist-packages _ctypes_test* _curses* _dbm* _gdbm* _sqlite3* _test* _tkinter* _xx* nis.*
    ossaudiodev* readline* xx*
"""
# Of the environment. rich imports the first three to colour code and to draw Markdown, which no command does. Only
# frozenlist's C needs the C++ library, and frozenlist works without it.
UNUSED_PACKAGES = "pygments* markdown_it* mdurl* _frozenlist.*"
# What Python's threads load by name, so that no file says it needs it: glibc ends them with it.
LOADED_BY_NAME = ("libgcc_s.so.1",)
FILES_OF_THE_BASE = ("etc/nsswitch.conf", "etc/os-release", "etc/ssl", "usr/lib/ssl", "usr/share/ca-certificates")
PASSWD = "root:x:0:0:root:/:/nonexistent\nspecdec:x:65532:65532:specdec-exporter:/:/nonexistent\n"  # noqa: S105
GROUP = "root:x:0:\nspecdec:x:65532:\n"


def main(destination: Path, environment: Path) -> None:
    """Fill ``destination`` with what runs ``environment/bin/specdec-exporter``."""
    below = _Below(destination)
    below.tree(STDLIB, "__pycache__", *UNUSED_MODULES.split())
    below.tree(environment, "__pycache__", *UNUSED_PACKAGES.split())
    for program in below.place(environment / "bin").iterdir():
        if not (program.name.startswith("python") or program.name == "specdec-exporter"):
            program.unlink()
    below.links((environment / "bin" / "python").readlink())
    libraries = sorted(set(_libraries(destination)))
    for library in libraries:
        below.file(library)
    for path in FILES_OF_THE_BASE:
        source = Path("/", path)
        (below.tree if source.is_dir() else below.file)(source)
    _packages(below, [*libraries, Path("/usr/sbin/update-ca-certificates")])
    (destination / "etc" / "passwd").write_text(PASSWD)
    (destination / "etc" / "group").write_text(GROUP)
    (destination / "tmp").mkdir()
    (destination / "tmp").chmod(0o1777)
    # By hash and never checked: times differ between builds. `stripdir`: tracebacks name the paths of the image.
    compileall.compile_dir(
        destination, quiet=1, stripdir=str(destination), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )


class _Below:
    """Copies files to the same place below another root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, path: Path) -> Path:
        place = self.root / path.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def file(self, path: Path) -> None:
        shutil.copy2(path, self.place(path))

    def tree(self, path: Path, *left_out: str) -> None:
        shutil.copytree(path, self.place(path), symlinks=True, ignore=shutil.ignore_patterns(*left_out))

    def links(self, path: Path) -> None:
        """Copy a program, and the symbolic links on the way to it."""
        while path.is_symlink():
            self.place(path).symlink_to(path.readlink())
            path = path.parent / path.readlink()
        self.file(path)


def _libraries(root: Path) -> Iterator[Path]:
    """Yield the shared libraries that files below ``root`` need."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path)]
    # Asked of the originals: `ldd` looks beside them.
    said = _output("ldd", *(str(Path("/") / path.relative_to(root)) for path in files))
    yield from map(Path, re.findall(r"(?m)^\t(?:\S+ => )?(/\S+) \(0x", said))
    known = _output("ldconfig", "-p")
    for name in LOADED_BY_NAME:
        yield Path(re.findall(rf"(?m)^\t{re.escape(name)} .* => (\S+)$", known)[0])


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _packages(below: _Below, files: Iterable[Path]) -> None:
    """Copy the licences of the packages that ``files`` are from, and what scanners for vulnerabilities look up."""
    # A library of /usr/lib is also found in /lib, and the package's list knows one of the two.
    patterns = [f"*{str(file).removeprefix('/usr')}" for file in files]
    said = subprocess.run(["dpkg-query", "--search", *patterns], capture_output=True, text=True, check=False).stdout  # noqa: S603, S607
    for package in sorted(set(re.findall(r"(?m)^([^:\s]+)(?::\S+)?: ", said))):
        status = below.place(Path("/var/lib/dpkg/status.d", package))
        status.write_text(_output("dpkg-query", "--status", package))
        copyright_file = Path("/usr/share/doc", package, "copyright")
        if copyright_file.exists():
            below.file(copyright_file)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
