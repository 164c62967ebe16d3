"""One row for every figure: what, how much, its budget, and whether that holds."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

HEADER = ("what", "measured", "budget", "holds")


class BenchError(Exception):
    """The figures would mean nothing: a reader found something else than what is there, or did not get on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A figure in words. ``holds`` is ``None`` where there is no budget."""

    what: str
    measured: str
    budget: str = ""
    holds: bool | None = None


def figure(
    what: str,
    values: Sequence[float],
    unit: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Row:
    """Return the median of ``values`` with its spread, against at most one bound."""
    middle = statistics.median(values)
    measured = f"{_number(middle)} {unit}"
    if len(values) > 1:
        measured += f" ({_number(min(values))} to {_number(max(values))}, {len(values)} runs)"
    if at_least is not None:
        return Row(what, measured, f"at least {at_least:g} {unit}", middle >= at_least)
    if at_most is not None:
        return Row(what, measured, f"at most {at_most:g} {unit}", middle <= at_most)
    return Row(what, measured)


def _number(value: float) -> str:
    """Three digits that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def show(sections: Mapping[str, Sequence[Row]]) -> None:
    """Print one table, rows under their headings."""
    shown = table(*HEADER, names=len(HEADER))
    for title, rows in sections.items():
        shown.add_row()
        shown.add_row(Text(title, style="bold"))
        for row in rows:
            holds = {None: "", True: "yes", False: "NO"}[row.holds]
            cells = map(Text, (row.what, row.measured, row.budget, holds))
            shown.add_row(*cells, style="red" if row.holds is False else None)
    show_table(shown)


def missed(rows: Iterable[Row]) -> int:
    """Print the last line, and return the exit code: 1 if a budget is missed."""
    names = [row.what for row in rows if row.holds is False]
    print(f"\nMissed, {len(names)}: {'; '.join(names)}." if names else "\nAll of it holds.")
    return 1 if names else 0


def table(*columns: str, names: int = 2) -> Table:
    """A table as aligned text; all columns but the first ``names`` are numbers."""
    found = Table(box=None, pad_edge=False, title_justify="left", title_style="")
    for number, column in enumerate(columns):
        found.add_column(column, justify="left" if number < names else "right", no_wrap=True)
    return found


def show_table(some: Table) -> None:
    """Print a table, not wrapped."""
    Console(width=200).print(some)


def percent(share: float) -> str:
    """A share of 0 to 1 with the digits that mean something."""
    return f"{100 * share:.2g} %" if share < 0.9 else f"{100 * share:.3g} %"


def counted(found: int, number: int) -> str:
    """How many of a number; of none, also the upper end of the 95 % interval of the share, by the rule of three."""
    return f"{found} of {number}" + (f", below {percent(3.0 / number)}" if not found and number > 3 else "")
