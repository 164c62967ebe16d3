"""Tables in Markdown pages, each between ``<!-- generated: NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def filled(page: str, tables: Mapping[str, str]) -> str:
    """Put each table between its markers. Raises ValueError for a table without its one place."""
    for name, text in tables.items():
        begin = f"<!-- generated: {name} -->\n"
        if page.count(begin) != 1:
            raise ValueError(f"expected one {begin.strip()}, found {page.count(begin)}")
        before, _, rest = page.partition(begin)
        page = before + begin + text + rest[rest.index("<!-- end -->") :]
    return page


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without the columns that are empty in every row."""
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    head, *body = zip(*columns, strict=True)
    lines = (head, ["---"] * len(head), *body)
    return "".join("".join(f"| {cell} " if cell else "| " for cell in cells) + "|\n" for cells in lines)
