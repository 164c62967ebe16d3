"""Compiles the fast lane of the log scanner into the wheel; where that cannot be done, the wheel is pure Python."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension

PACKAGE = "specdec_exporter/predictor/log"
MODULE = f"{PACKAGE.replace('/', '.')}._fastline"
SOURCE = f"exporter/{PACKAGE}/_fastline.c"


class FastLine(BuildHookInterface):  # type: ignore[misc]  # hatchling is there only while a wheel is built
    """Hatchling finds it by its base class."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile: for an editable installation beside the source, else into a folder that is thrown away."""
        self._folder = tempfile.TemporaryDirectory()
        compiled = _compile(Path(self.root), Path(self._folder.name), in_place=version == "editable")
        if compiled is not None:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            if version != "editable":
                build_data["force_include"][str(compiled)] = f"{PACKAGE}/{compiled.name}"

    def finalize(self, *_: object) -> None:
        """The wheel is written: throw the folder away."""
        self._folder.cleanup()


def _compile(root: Path, folder: Path, *, in_place: bool) -> Path | None:
    """Return the compiled module; ``None``, after a warning of setuptools', where there is no compiler."""
    # Contracted to fused operations, figures would differ in their last bit from what Python makes of them.
    flags = ["-std=c11", "-O3", "-ffp-contract=off"]
    extension = Extension(MODULE, [str(root / SOURCE)], extra_compile_args=flags, optional=True)
    distribution = Distribution({"ext_modules": [extension]})
    command = distribution.get_command_obj("build_ext")
    command.build_lib = str(root / "exporter" if in_place else folder / "lib")
    command.build_temp = str(folder / "objects")
    command.ensure_finalized()
    (output,) = map(Path, command.get_outputs())
    output.unlink(missing_ok=True)  # of an earlier compilation, which this one may fail to replace
    command.run()
    return output if output.exists() else None
