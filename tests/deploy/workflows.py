"""The workflows of .github, read as data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from support.fieldtools import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def jobs(file: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    return found


def steps(file: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(file).values():
        yield from job.get("steps", [])


def scripts() -> Iterator[str]:
    """Every shell script of every workflow."""
    for file in WORKFLOWS:
        for step in steps(file):
            if "run" in step:
                yield step["run"]


def make_targets() -> set[str]:
    """The targets of the Makefile and of what it includes."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    included = re.findall(r"(?m)^include (\S+)$", makefile)
    texts = [makefile, *(path.read_text(encoding="utf-8") for pattern in included for path in ROOT.glob(pattern))]
    rules = (line for text in texts for line in re.findall(r"(?m)^([a-z][\w -]*):(?!=)", text))
    return {target for rule in rules for target in rule.split()}
