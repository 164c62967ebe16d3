#!/usr/bin/env python3
"""Print the section of CHANGELOG.md about one release: the text of its announcement.

``tools/release/notes.py v0.1.0`` fails if there is no such section, if it is empty or still called unreleased, or if
the package has another version.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def notes(changelog: str, version: str) -> str:
    """The section of ``version`` without its heading; ``ValueError`` says what is wrong with it."""
    sections: list[tuple[str, str, str]] = re.findall(r"^## (\S+) *(.*)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    found = [(date, text.strip()) for name, date, text in sections if name == version]
    if not found:
        raise ValueError(f"has no section {version}")
    if len(found) > 1:
        raise ValueError(f"has {len(found)} sections {version}")
    date, text = found[0]
    if not re.fullmatch(r"\(\d{4}-\d\d-\d\d\)", date):
        raise ValueError(f"needs the day of the release as '## {version} (YYYY-MM-DD)', not {date or 'nothing'!r}")
    if not text:
        raise ValueError(f"says nothing about {version}")
    return text + "\n"


def main(arguments: list[str]) -> int:
    """Print the notes of the tag in ``arguments``; 1 and one line on stderr if there are none."""
    tag = arguments[0] if len(arguments) == 1 else ""
    package = (ROOT / "exporter/specdec_exporter/__init__.py").read_text(encoding="utf-8")
    if f'__version__ = "{tag.removeprefix("v")}"\n' not in package or not tag.startswith("v"):
        sys.stderr.write(f"notes.py: the tag {tag!r} is not v and the version of the package\n")
        return 1
    try:
        sys.stdout.write(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), tag.removeprefix("v")))
    except ValueError as error:
        sys.stderr.write(f"notes.py: CHANGELOG.md {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
