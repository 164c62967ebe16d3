"""docs/reliability.md: the tests and commands that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 20
    missing = [(file, test) for file, test in named if f"def {test}" not in (ROOT / file).read_text()]
    assert not missing


def test_every_named_command_exists() -> None:
    named = set(re.findall(r"`make ([\w-]+)", PAGE))
    makefiles = [ROOT / "Makefile", ROOT / "tests" / "vllm" / "vllm.mk"]
    targets = re.findall(r"^([\w-]+):", "".join(path.read_text() for path in makefiles), re.MULTILINE)
    assert "soak" in named
    assert named <= set(targets)


def test_each_fault_has_a_row_with_a_test() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| [^|]+ \| `tests/[^|]+` \|", PAGE, re.MULTILINE)
    assert set(map(int, rows)) == set(range(1, 18))
