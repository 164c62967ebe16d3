"""Prometheus' own promtool, typed: what it checks, what it answers, and where it found a fault."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

from support.fieldtools import ROOT, tool, untidy

REPOSITORY = ROOT
# Without a span promtool reads its input anew for every two hours of it.
_CREATE_BLOCKS = ("tsdb", "create-blocks-from", "--max-block-duration=162h")


class PromtoolError(AssertionError):
    """What promtool found wrong, with file and line where it says so."""


@dataclasses.dataclass(frozen=True, slots=True)
class Promtool:
    """One promtool binary. Every method raises :class:`PromtoolError` with promtool's words."""

    path: Path

    def test_rules(self, file: Path) -> None:
        """Run a file of rule unit tests."""
        self._run("test", "rules", str(file))

    def create_blocks(self, openmetrics: Path, blocks: Path) -> None:
        """Turn an OpenMetrics file with timestamps into TSDB blocks under ``blocks``."""
        self._run(*_CREATE_BLOCKS, "openmetrics", "--quiet", str(openmetrics), str(blocks))

    def record(self, rules: Path, url: str, blocks: Path, start: int, end: int) -> None:
        """Write what recording rules give between two times, by a Prometheus at ``url``, as blocks under ``blocks``.

        When a group is evaluated depends on the name of its file as it is given, so it is given without its folder.
        """
        where = (f"--start={start}", f"--end={end}", f"--url={url}", f"--output-dir={blocks.resolve()}")
        self._run(*_CREATE_BLOCKS, "rules", *where, rules.name, folder=rules.parent)

    def _run(self, *arguments: str, folder: Path | None = None) -> str:
        command = [str(self.path), *arguments]
        done = subprocess.run(command, cwd=folder, env=untidy(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise PromtoolError(f"promtool {' '.join(arguments[:2])}: {(done.stdout + done.stderr).strip()}")
        return done.stdout


def promtool(name: str = "promtool") -> Promtool:
    """Debian's promtool (2.42, the floor), or another that :func:`fieldtools.tool` knows."""
    return Promtool(Path(tool(name)))
