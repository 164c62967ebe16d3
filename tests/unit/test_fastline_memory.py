"""The compiled lane stays inside its buffers and has no undefined behaviour: its tests again, under the sanitizers."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from fieldtools import ROOT
from specdec_exporter.predictor.log import fastline

SOURCE = Path(fastline.__file__).with_name("_fastline.c")
# The tests, with another build of the module in its place.
RUN = """
import importlib.util, sys
import pytest, specdec_exporter.predictor as package
spec = importlib.util.spec_from_file_location(f"{package.__name__}._fastline", sys.argv[1])
package._fastline = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package._fastline)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def test_the_sanitizers_find_nothing(tmp_path: Path) -> None:
    module = tmp_path / f"_fastline{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    flags = ["-std=c11", "-g", "-O1", "-ffp-contract=off", "-fPIC", "-shared"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["cc", *flags, *sanitizers, include, SOURCE, "-o", module], check=True)
    library = subprocess.run(["cc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    # Python frees little at its end, and with its own allocator a buffer's end would go unnoticed.
    environment = {"LD_PRELOAD": library.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    tests = ["tests/unit/test_fastline.py", "tests/unit/test_scan.py"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, module, *tests],
        check=False,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
