"""Links in the documents lead to a file that is there, and to a heading in it. Pages are short enough to be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.fieldtools import ROOT

FOLDERS = ("docs", "deploy", "rules", "dashboards", "alertmanager", "tools", "tests", ".github")
WORDS, WORDS_OF_EVIDENCE, WORDS_OF_A_PAGE = 35_000, 12_000, 1_800
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))])


def prose(document: Path) -> str:
    """The text without its code blocks."""
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        path, _, anchor = link.partition("#")
        if path.startswith("https://"):
            continue
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def words(document: Path, *, by_hand: bool = False) -> int:
    """How many words a page has; ``by_hand``: without those that a command writes."""
    text = document.read_text(encoding="utf-8")
    if by_hand:
        text = re.sub(r"<!-- generated: .*?<!-- end -->", "", text, flags=re.DOTALL)
    return len(text.split())


def test_all_pages_together_are_short() -> None:
    assert sum(map(words, DOCUMENTS)) <= WORDS
    assert sum(words(page) for page in DOCUMENTS if page.parent.name == "evidence") <= WORDS_OF_EVIDENCE


def test_no_page_is_long() -> None:
    assert {str(page): count for page in DOCUMENTS if (count := words(page, by_hand=True)) > WORDS_OF_A_PAGE} == {}
