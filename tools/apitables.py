"""The table of ``docs/api.md``: every object of ``/api/v1/status``. ``make render`` writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from generated import filled, table
from specdec_exporter.state.status import Status

API = Path("docs") / "api.md"


def api_page(page: str) -> str:
    """Return the page with its table anew."""
    rows = [(shape.__name__, _keys(shape), _meaning(shape)) for shape in dict.fromkeys(shapes(Status))]
    return filled(page, {"status": table(("Object", "Keys", "Meaning"), rows)})


def shapes(shape: Any) -> Iterator[type[msgspec.Struct]]:
    """A shape and all that its keys hold, in their order."""
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        yield shape
        for held in get_type_hints(shape).values():
            yield from shapes(held)
    else:
        for part in get_args(shape):
            yield from shapes(part)


def _keys(shape: type[msgspec.Struct]) -> str:
    return ", ".join(f"`{key}`" for key in shape.__struct_encode_fields__)


def _meaning(shape: type[msgspec.Struct]) -> str:
    """The docstring's first paragraph in Markdown: ``x`` is `x`, roles of Sphinx are their names."""
    first = " ".join((inspect.getdoc(shape) or "").partition("\n\n")[0].split())
    return re.sub(r":\w+:`[~.]?([^`]+)`", r"`\1`", first).replace("``", "`")
