"""The shell of docs/first-hour.md, by the numbers of its steps."""

from __future__ import annotations

import re

from support.fieldtools import ROOT

PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")


def blocks(heading: str, language: str = "sh") -> list[str]:
    """The code blocks under the heading that begins with ``heading``."""
    (text,) = re.findall(rf"^## {re.escape(heading)}.*?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
