"""A YAML document read node by node, so that whatever is wrong in it is named by file, line and key.

Tags, anchors and aliases, deep and huge documents are refused before anything is built.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from specdec_exporter.errors import BaselineError

if TYPE_CHECKING:
    import yaml

_MAX_EVENTS = 4_000
_MAX_DEPTH = 6
MAX_TEXT = 4096
# No leading zeros: to YAML 1.1 they are octal.
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)
# A clock that was not set is in this year.
_UNSET_CLOCK = 1970
_TAG = "tag:yaml.org,2002:"
_T = TypeVar("_T")


def parse_document(content: bytes, path: str) -> Node:
    """The top node of the one document in ``content``; ``path`` is its name in errors. Raises BaselineError."""
    return Node(path, "", _compose(content, path))


def as_utc(moment: datetime) -> str:
    """``moment`` as RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def number_of(text: str) -> float | None:
    """The finite number that ``text`` is, if it is one; no NaN, no infinity, no hexadecimal."""
    if len(text) > MAX_TEXT or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


class Node(NamedTuple):
    """A node of the YAML document, with where it stands. ``yaml`` is ``None`` for an optional key that is not there."""

    path: str
    key: str
    yaml: yaml.Node | None
    name: str = ""  # the last part of the key, as written

    def fail(self, expected: str, found: str) -> NoReturn:
        """Raise the error about what stands here."""
        line = f", line {_line(self.yaml)}" if self.yaml else ""
        found = found if len(found) <= 80 else f"{found[:77]}..."
        raise BaselineError(f"{self.path}{line}: {self.key or 'top level'}: expected {expected}, found {found}")

    @property
    def given(self) -> bool:
        """Whether anything but null stands here."""
        return self.yaml is not None and self.yaml.tag != f"{_TAG}null"

    def optional(self, read: Callable[[Node], _T]) -> _T | None:
        """What ``read`` makes of the node, ``None`` where nothing is given."""
        return read(self) if self.given else None

    def mapping(self, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> dict[str, Node]:
        """Every key of ``required`` and ``optional``; those that are not there, or all of a null, are not given."""
        found = {node.name: node for node in self.entries()} if self.given else {}
        for node in found.values():
            if node.name not in required and node.name not in optional:
                node.fail(f"one of the keys {', '.join((*required, *optional))}", "this unknown key")
        for name in required:
            if name not in found:
                self.fail(f"the key {name}", "none")
        return {
            name: found.get(name, Node(self.path, self._below(name), None, name)) for name in (*required, *optional)
        }

    def entries(self) -> list[Node]:
        """The values of a mapping, in order, under their keys as written."""
        pairs = self._expect("map", "a mapping", list)
        nodes: list[Node] = []
        names: set[str] = set()
        for key, value in pairs:
            name = key.value if isinstance(key.value, str) else "?"
            node = Node(self.path, self._below(name), value, name)
            if name in names:
                Node(self.path, self._below(name), key).fail("every key once", "it a second time")
            names.add(name)
            nodes.append(node)
        return nodes

    def items(self) -> list[Node]:
        """The values of a sequence; none of what is not given."""
        if not self.given:
            return []
        values = self._expect("seq", "a list", list)
        return [Node(self.path, f"{self.key}[{index}]", value) for index, value in enumerate(values)]

    def text(self) -> str:
        """One line of text. What YAML takes for a number or a date has to stand in quotes."""
        value = self._expect("str", "text in quotes", str)
        if not 0 < len(value) <= MAX_TEXT or not value.isprintable() or not value.strip():
            self.fail(f"1 to {MAX_TEXT} printable characters on one line", repr(value))
        return value

    def timestamp(self) -> str:
        """A time in RFC 3339, in quotes or not, as :func:`as_utc` writes it."""
        value = self._scalar()
        moment = None
        with contextlib.suppress(ValueError, OverflowError):
            if _TIMESTAMP.fullmatch(value):
                moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
        if moment is None or moment.year <= _UNSET_CLOCK:
            self.fail("a time such as 2026-01-31T12:00:00Z", repr(value))
        return as_utc(moment)

    def boolean(self) -> bool:
        """``true`` or ``false``, none of YAML 1.1's other words."""
        value = self._scalar()
        if value not in ("true", "false") or not self._plain:
            self.fail("true or false", repr(value))
        return value == "true"

    def number(self) -> float:
        """A finite number that is not negative."""
        text = self._scalar()
        value = number_of(text) if self._plain else None
        if value is None or value < 0:
            self.fail("a finite number of at least 0", repr(text))
        return value

    def whole_number(self) -> int:
        """A whole number above 0."""
        value = self.number()
        if not value.is_integer() or not 0 < value < 2**31:
            self.fail("a whole number above 0", f"{value:g}")
        return int(value)

    def _below(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name

    def _scalar(self) -> str:
        if self.yaml is None or not isinstance(self.yaml.value, str):
            self.fail("a single value", _kind(self.yaml))
        value: str = self.yaml.value
        return value

    @property
    def _plain(self) -> bool:
        """Whether a scalar stands without quotes."""
        return getattr(self.yaml, "style", None) is None

    def _expect(self, tag: str, words: str, kind: type[_T]) -> _T:
        if self.yaml is None or self.yaml.tag != _TAG + tag or not isinstance(self.yaml.value, kind):
            self.fail(words, _kind(self.yaml))
        return self.yaml.value


def _line(node: yaml.Node | yaml.Event) -> int:
    return node.start_mark.line + 1 if node.start_mark else 1


def _kind(node: yaml.Node | None) -> str:
    """What a node is, in words."""
    if node is None:
        return "nothing"
    if isinstance(node.value, str):
        return "null" if node.tag == f"{_TAG}null" else repr(node.value)
    return "a mapping" if getattr(node, "id", "") == "mapping" else "a list"


def _compose(content: bytes, path: str) -> yaml.Node:
    """The document's nodes, after a look at its events for what must not be built."""
    import yaml  # noqa: PLC0415  only where there is a baseline: memory is budgeted

    depth = 0
    try:
        for number, event in enumerate(yaml.parse(content, Loader=yaml.SafeLoader)):
            line = f"{path}, line {_line(event)}"
            if number > _MAX_EVENTS:
                raise BaselineError(f"{line}: expected a baseline, found far too many values for one")
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise BaselineError(f"{line}: expected a baseline without anchors and aliases, found one")
            if tag := getattr(event, "tag", None):
                raise BaselineError(f"{line}: expected a baseline without tags, found {tag!r}")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise BaselineError(f"{line}: expected at most {_MAX_DEPTH} levels, found more")
        node = yaml.compose(content, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise BaselineError(f"{path}: is not YAML: {' '.join(str(error).split())[:300]}") from error
    if node is None:
        raise BaselineError(f"{path}: expected a baseline, found an empty file")
    return node
