#!/usr/bin/env python3
"""Fail if a module of the package has over 400 lines, or a function a cyclomatic complexity of over 15 (by radon)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from radon.complexity import cc_visit

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 400
MOST_COMPLEX = 15


def findings(path: Path) -> Iterator[str]:
    """Say what of one module is too large."""
    source = path.read_text()
    name = path.relative_to(ROOT)
    if (lines := source.count("\n")) > MOST_LINES:
        yield f"{name}: {lines} lines, at most {MOST_LINES}"
    for block in cc_visit(source):
        functions = [block, *getattr(block, "methods", ()), *getattr(block, "closures", ())]
        for function in functions:
            if function.letter != "C" and function.complexity > MOST_COMPLEX:
                where, complexity = f"{name}:{function.lineno}", function.complexity
                yield f"{where}: {function.name} has complexity {complexity}, at most {MOST_COMPLEX}"


def main() -> int:
    """Print what is too large; return the exit code."""
    found = sorted({text for path in (ROOT / "exporter").rglob("*.py") for text in findings(path)})
    sys.stdout.writelines(f"{text}\n" for text in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
