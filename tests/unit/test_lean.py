"""Lean imports, each in a Python of its own: what is not loaded, and that it is there as soon as somebody uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specdec_exporter.serving.lean import LOADED_WHEN_USED

_IMPORTS = """
import gc, mimetypes, ssl, sys
from pathlib import Path
mimetypes.knownfiles = [sys.argv[1]]
from specdec_exporter.serving.lean import lean_imports, load_when_used
load_when_used()
with lean_imports():
    import specdec_exporter.serving.serve
"""

USES = {
    "attr.validators": "instance_of(int)",
    "bz2": "compress(b'')",
    "idna": "encode('bücher.example')",
    "lzma": "compress(b'')",
    "msgspec.inspect": "type_info(int)",
}


@pytest.fixture
def types_file(tmp_path: Path) -> Path:
    path = tmp_path / "mime.types"
    path.write_text("application/x-of-this-system ofthissystem\n")
    return path


def _run(program: str, types_file: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _IMPORTS + program, str(types_file)], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_serving_loads_only_what_it_needs_and_tls_still_works(types_file: Path) -> None:
    _run(
        "assert not {'bcrypt', 'click', 'rich', 'yaml'} & set(sys.modules)\n"
        "assert 'libstdc++' not in Path('/proc/self/maps').read_text()\n"
        "assert not [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]\n"
        "context = ssl.create_default_context()\n"
        "assert type(context) is ssl.SSLContext and context.verify_mode is ssl.CERT_REQUIRED\n"
        "assert context.check_hostname\n",
        types_file,
    )


def test_the_systems_table_of_file_types_is_not_read_by_aiohttp(types_file: Path) -> None:
    _run(
        "from aiohttp.web_fileresponse import CONTENT_TYPES\n"
        "assert '.ofthissystem' not in CONTENT_TYPES.types_map[True]\n"
        "assert mimetypes.MimeTypes is type(CONTENT_TYPES) and mimetypes.knownfiles == [sys.argv[1]]\n",
        types_file,
    )


@pytest.mark.parametrize("name", sorted(LOADED_WHEN_USED))
def test_a_module_is_loaded_when_it_is_used(name: str, types_file: Path) -> None:
    _run(
        f"module = sys.modules[{name!r}]\n"
        "assert type(module).__name__ == '_LazyModule'\n"
        f"module.{USES[name]}\n"
        "assert type(module) is type(sys)\n",
        types_file,
    )
