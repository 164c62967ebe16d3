"""The body of a statistics line: a list of ``Name: value`` fields. Pure.

A later release may add, drop or reorder fields. Any other text in such a line makes it unreadable, because another
process may have written into it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from specdec_exporter.predictor.log.message import UnreadableError

COUNT: Final = r"(\d{1,15})"
NUMBER: Final = r"(\d{1,15}(?:\.\d{1,9})?|[nN]a[nN])"
PERCENT: Final = NUMBER + "%"
# Fields of later releases. Their names begin with a capital letter; other words are the rest of a torn name. Names and
# values hold neither a colon nor a process, so that no line of another writer passes for a field.
_EXTRA_NAME: Final = re.compile(r"[A-Z][\w /().-]{0,60}", re.ASCII)
_ITEM: Final = r"[\w.+%=@/() -]{1,80}"
VALUE: Final = rf"(?!.*\w pid=\d){_ITEM}(?:,{_ITEM}){{0,200}},?"  # "1,234", "3 waiting, 2 running", a curve
_EXTRA_VALUE: Final = re.compile(VALUE, re.ASCII)
# After this separator, a field's name begins with a capital letter, an item of a list with a digit, a small letter or
# "NaN".
_SEPARATOR: Final = re.compile(r", (?=[A-Z])(?!NaN\b)", re.ASCII)

Fields = dict[str, str]
# By the printed name: the name of the figure, which may be printed under several, and the pattern of its value.
Known = Mapping[str, tuple[str, re.Pattern[str]]]


def known_fields(values: Mapping[str, str], other_names: Mapping[str, str]) -> Known:
    """Return the fields of a line. ``values``: patterns by name; ``other_names``: printed name -> name."""
    fields = {name: (name, re.compile(value, re.ASCII)) for name, value in values.items()}
    return fields | {printed: fields[name] for printed, name in other_names.items()}


def read_fields(body: str, known: Known, *, rename: Callable[[str], str] = str) -> Fields:
    """``"A: 1 x, B: 2"`` -> ``{"A": "1", "B": "2"}``: the number of each known field, without its unit.

    ``rename`` gets the names that are not known. Raises :class:`UnreadableError`.
    """
    fields: Fields = {}
    for piece in _SEPARATOR.split(body):
        printed, _, value = piece.partition(": ")
        field = known.get(printed) or known.get(rename(printed))
        if field is None:
            if _EXTRA_NAME.fullmatch(printed) and _EXTRA_VALUE.fullmatch(value):
                continue
        elif (match := field[1].fullmatch(value)) is not None:
            if field[0] in fields:
                raise UnreadableError(f"the field {field[0]!r} occurs twice")
            fields[field[0]] = match[1]
            continue
        raise UnreadableError(f"cannot read the field {piece[:60]!r}")
    return fields


def require(fields: Fields, *names: str) -> None:
    """Raise :class:`UnreadableError` if a field is missing: the line breaks off before it."""
    for name in names:
        if name not in fields:
            raise UnreadableError(f"the field {name!r} is missing")


def number(fields: Fields, name: str) -> float | None:
    """Return a field as a number; ``None`` where it is missing or nan."""
    found = float(fields.get(name, "nan"))
    return None if math.isnan(found) else found


def whole(fields: Fields, name: str) -> int | None:
    """Return a field as a whole number; ``None`` where it is missing."""
    return int(fields[name]) if name in fields else None


def ratio(fields: Fields, name: str) -> float | None:
    """Return a printed percentage as 0..1, rounded so that the division by 100 adds no digits."""
    return None if (percent := number(fields, name)) is None else round(percent / 100, 9)


def half_unit(printed: str) -> float:
    """Return half a unit of a number's last printed digit, ``"81.3"`` -> 0.05, and a little for binary fractions."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) + 1e-9
