"""The table of ``docs/references.md``, from ``references.yaml``. ``make render`` writes it."""

from __future__ import annotations

from pathlib import Path

from markdown import filled, table
from specdec_exporter.speculation.references import Reference, load_references

REFERENCES = Path("docs") / "references.md"
_COLUMNS = ("Method", "Target", "Drafter", "k", "Data", "Length", "By position", "Source")


def references_page(page: str) -> str:
    """Return the page with the table anew between its markers, by method, target, k and data."""
    rows = sorted(load_references(), key=_order)
    return filled(page, {"references": table(_COLUMNS, map(_row, rows))})


def _order(row: Reference) -> tuple[str, str, int, str]:
    return row.method, (row.target or "").lower(), row.num_speculative_tokens, row.data_set or ""


def _row(row: Reference) -> tuple[str, ...]:
    return (
        f"`{row.method}`",
        row.target or "-",
        row.drafter or "-",
        str(row.num_speculative_tokens),
        row.data_set or "-",
        f"{row.mean_acceptance_length:.2f}",
        " ".join(f"{rate:.2f}" for rate in row.per_position) or "-",
        f"[{_short(row.source)}]({row.source})",
    )


def _short(source: str) -> str:
    """``https://github.com/org/name/pull/7`` -> ``org/name#7``; of a file, the repository."""
    path = source.removeprefix("https://github.com/").partition("/blob/")[0]
    return path.replace("/pull/", "#").replace("/issues/", "#")
