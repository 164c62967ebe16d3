"""Where the examples of the documentation are recorded: a directory from the command line, and toy models meanwhile."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vllm import saturated
from vllm.checkpoints import write_checkpoints
from vllm.language import build_language
from vllm.server import Installation, named_installation


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where everything is."""

    installation: Installation
    models: Path
    directory: Path

    def file(self, name: str) -> Path:
        """The recording of this name."""
        return self.directory / f"{name}.yaml"


@contextlib.contextmanager
def place(page: str) -> Iterator[Place]:
    """The place for the example of this page of the documentation; its models are deleted afterwards."""
    parser = argparse.ArgumentParser(description=f"Record the example of {page}.")
    parser.add_argument("directory", type=Path, help="where the recordings go; must not have any yet")
    directory: Path = parser.parse_args().directory
    installation = named_installation(parser)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as models:
        write_checkpoints(Path(models), build_language(), target_layers=saturated.TARGET_LAYERS)
        yield Place(installation, Path(models), directory)
