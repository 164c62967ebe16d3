"""docs/guides.md has every row of the three guides, and what is left out has a reason."""

from __future__ import annotations

from collections import Counter

import guidetables


def test_every_row_of_the_guides_is_there_once() -> None:
    ids = [row.id for rows in guidetables.load_guides().values() for row in rows]

    assert ids == [f"A{n}" for n in range(1, 64)] + [f"B{n}" for n in range(1, 45)] + ["D1"] + [
        f"C{n}" for n in range(1, 31)
    ]


def test_at_most_ten_rows_do_not_work_and_say_why() -> None:
    rows = [row for rows in guidetables.load_guides().values() for row in rows]
    counted = Counter(row.status for row in rows)

    assert len(rows) == 138
    assert counted["partly"] + counted["missing"] <= 10
    assert all(row.reason for row in rows if row.status != "works")
