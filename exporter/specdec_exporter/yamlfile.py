"""The reader of all YAML files that people write: strict, typed, and every error names file, line and key.

A file becomes a tree of nodes with their positions. :meth:`Node.read` turns a node into a value of a Python type; the
fields of a :class:`msgspec.Struct` are the schema of a mapping. A file is refused if it is too large, too long, too
deep, or has too many values when its aliases are expanded. Importing this module does not import PyYAML.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

import msgspec

from specdec_exporter.errors import SpecdecError
from specdec_exporter.formatting import plain

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1024 * 1024  # more than a ConfigMap can hold
MAX_LINES = 40_000  # blank lines too: PyYAML reads some 150,000 a second
MAX_VALUES = 20_000
MAX_DEPTH = 10

_AS_WRITTEN = object()
# Text as written, even if YAML reads a number: ``X-XSS-Protection: 0``.
AsWritten = Annotated[str, _AS_WRITTEN]

_TAG = "tag:yaml.org,2002:"
_SCALARS = ("str", "int", "float", "bool", "timestamp", "null", "merge", "value")
_KINDS = {"map": "a mapping", "seq": "a list", "null": "null", "str": "text", "merge": "<<", "value": "="}
_KINDS |= {"int": "a number", "float": "a number", "bool": "true or false", "timestamp": "a date"}
# Decimal only. YAML 1.1 also reads 010 as 8 and 1:30 as 90.
_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9](?:_?[0-9])*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_MAX_DIGITS = 400


def read_yaml(path: str | Path, error: type[SpecdecError]) -> Node:
    """Return the top node of a file with one document. Every fault raises ``error``, here and at the nodes."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
        raise error(plain(f"{path}: cannot be read: {reason}")) from cause
    return parse_yaml(content, str(path), error)


def parse_yaml(
    content: bytes, name: str, error: type[SpecdecError], *, lines: bool = True, levels: int = MAX_DEPTH
) -> Node:
    """Return the top node of ``content``, as :func:`read_yaml`.

    Errors call the file ``name``; ``lines`` tells whether they have line numbers. ``levels``: at most so many.
    """
    source = Source(name, error, lines)
    if len(content) > MAX_BYTES:
        source.refuse(None, f"expected at most {MAX_BYTES} bytes, found more")
    if content.count(b"\n") + content.count(b"\r") > MAX_LINES:
        source.refuse(None, f"expected at most {MAX_LINES} lines, found more")
    top = _compose(content, source, levels)
    return Node(source, "", None if top is None else _line(top), top)


def number_of(text: str) -> float | None:
    """Return ``text`` as a finite decimal number; ``None`` for any other text."""
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


class Source(NamedTuple):
    """The name of a file in errors, and the type of these errors."""

    name: str
    error: type[SpecdecError]
    lines: bool

    def refuse(self, line: int | None, words: str) -> NoReturn:
        """Raise the error about ``line``."""
        raise self.error(plain(f"{self.name}{f', line {line}' if line and self.lines else ''}: {words}"))


class Node(NamedTuple):
    """A value in the file. ``key`` is its path, ``line`` the line of its key; ``yaml`` is ``None`` if it is missing."""

    source: Source
    key: str
    line: int | None
    yaml: yaml.Node | None

    @property
    def given(self) -> bool:
        """Whether the value exists and is not null."""
        return self.yaml is not None and self.yaml.tag != f"{_TAG}null"

    # --- Errors ---

    def refuse(self, words: str) -> NoReturn:
        """Raise the error ``words`` about this value."""
        self.source.refuse(self.line, f"{self.key or 'top level'}: {words}")

    def fail(self, expected: str, found: str) -> NoReturn:
        """Raise the error that this value is not as expected."""
        self.refuse(f"expected {expected}, found {found if len(found) <= 80 else f'{found[:77]}...'}")

    def blame(self, error: Exception) -> NoReturn:
        """Raise ``error`` again with file and line. Its text may begin with a key below this node, and a colon."""
        node = self
        for name in re.findall(r"[^.\[\]]+", str(error).partition(": ")[0]):
            if name not in (below := node._children()):
                break
            node = below[name]
        if node is self:
            self.refuse(str(error))
        self.source.refuse(node.line, self._below(str(error)))

    # --- Mappings and lists: null is an empty one ---

    def entries(self) -> dict[str, Node]:
        """Return the values of a mapping by their keys as written, with those that ``<<`` merges into it."""
        found: dict[str, Node] = {}
        merged: list[Node] = []
        for key, value in self._values("map"):
            if not isinstance(key.value, str) or _has_control(key.value):
                Node(self.source, self.key, _line(key), key).fail("a word as the key", _kind(key))
            node = Node(self.source, self._below(key.value), _line(key), value)
            if key.tag == f"{_TAG}merge":
                merged += node._replace(key=self.key).items() if node._is("seq") else [node._replace(key=self.key)]
            elif key.value in found:
                node.fail("every key once", "it a second time")
            else:
                found[key.value] = node
        for node in merged:
            found = {**node.entries(), **found}
        return found

    def mapping(self, required: Iterable[str] = (), optional: Iterable[str] = ()) -> dict[str, Node]:
        """Return the values of a mapping that has these keys and no other. What is missing has no ``yaml``."""
        found = self.entries()
        names = (*required, *optional)
        for name, node in found.items():
            if name not in names:
                node.refuse(f"unknown key, expected one of {', '.join(names)}")
        for name in required:
            if name not in found:
                self.fail(f"the key {name}", "none")
        return {name: found.get(name) or Node(self.source, self._below(name), self.line, None) for name in names}

    def items(self) -> list[Node]:
        """Return the values of a list."""
        values = enumerate(self._values("seq"))
        return [Node(self.source, f"{self.key}[{index}]", _line(value), value) for index, value in values]

    # --- Single values ---

    def written(self) -> str:
        """Return a single value as written. Control characters and half surrogates are refused."""
        if self.yaml is None or not self._is(*_SCALARS) or not isinstance(value := self.yaml.value, str):
            self.fail("a single value", _kind(self.yaml))
        if _has_control(value):
            self.refuse("contains a line break or another control character")
        return value

    def block(self) -> str | None:
        """Return a single value as written, which may have several lines; ``None`` for anything else."""
        value = self.yaml.value if self.yaml is not None and self._is(*_SCALARS) else None
        return value if isinstance(value, str) and self.given else None

    @property
    def kind(self) -> str:
        """``"map"``, ``"seq"`` or the type of a single value, as YAML names it."""
        return "null" if self.yaml is None else self.yaml.tag.removeprefix(_TAG)

    def text(self) -> str:
        """Return text. Text that YAML reads as a number or a date needs quotes."""
        if not self._is("str"):
            self.fail("text in quotes" if self.given and self._is(*_SCALARS) else "text", _kind(self.yaml))
        return self.written()

    def boolean(self) -> bool:
        """Return ``true`` or ``false``."""
        value = self.written()
        if not self._is("bool"):
            self.fail("true or false", repr(value))
        return value.lower() in ("true", "yes", "on")

    def number(self) -> float:
        """Return a finite number, written without quotes."""
        value = self.written()
        plain_number = self._is("int", "float", "str") and getattr(self.yaml, "style", "") is None
        number = number_of(value) if plain_number else None
        if number is None:
            self.fail("a finite number", repr(value))
        return number

    def whole_number(self) -> int:
        """Return a whole number of at most 64 bits."""
        value = self.number()
        if not value.is_integer() or abs(value) >= 2**63:
            self.fail("a whole number", repr(self.written()))
        digits = self.written().replace("_", "")
        return int(digits) if digits.lstrip("+-").isdigit() else int(value)

    # --- Types ---

    def read(self, kind: Any) -> Any:
        """Return the value as a ``kind``: a Struct, ``tuple[X, ...]``, ``dict[str, X]``, a Literal or a plain type.

        ``X | None`` accepts null; ``str | float`` is text as written. ``Annotated[X, check]`` is the result of
        ``check`` for an ``X``; if ``X`` is ``float``, ``check`` gets the text, which may have a unit. :class:`Node`
        leaves the value unread.
        """
        origin, arguments = get_origin(kind), get_args(kind)
        if kind is Node:
            return self
        if origin is Annotated:
            return self._checked(*arguments)
        if origin in (Union, UnionType):
            return self._one_of(arguments)
        if origin is Literal:
            if (value := self.written()) not in arguments:
                self.fail(f"one of {', '.join(arguments)}", repr(value))
            return value
        if origin is tuple:
            return tuple(node.read(arguments[0]) for node in self.items())
        if origin is dict:
            return {name: node.read(arguments[1]) for name, node in self.entries().items()}
        if issubclass(kind, msgspec.Struct):
            return self._made(kind, self.fields(kind))
        return {str: self.text, bool: self.boolean, int: self.whole_number, float: self.number}[kind]()

    def fields(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        """Return the values of a mapping by the names of the fields of ``kind``."""
        fields = msgspec.structs.fields(kind)
        tag = kind.__struct_config__.tag_field
        required = [field.encode_name for field in fields if field.required]
        optional = [field.encode_name for field in fields if not field.required]
        nodes = self.mapping([tag, *required] if tag else required, optional)
        given = ((field, nodes[field.encode_name]) for field in fields)
        return {field.name: node.read(field.type) for field, node in given if node.yaml is not None}

    def _made(self, kind: type[msgspec.Struct], values: dict[str, Any]) -> Any:
        try:
            return kind(**values)
        except (ValueError, SpecdecError) as error:
            self.blame(error)

    def _checked(self, kind: Any, check: Any) -> Any:
        if check is _AS_WRITTEN:
            return self.written()
        value = self.written() if kind is float else self.read(kind)
        try:
            return check(value)
        except (ValueError, SpecdecError) as error:
            self.refuse(str(error))

    def _one_of(self, kinds: tuple[Any, ...]) -> Any:
        structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
        if NoneType in kinds and not self.given and not structs:
            return None
        if len(structs) > 1:
            return self.read(self._tagged(structs))
        if {str, float} <= set(kinds):
            return self.written()
        lists = [kind for kind in kinds if get_origin(kind) is tuple]
        single = [kind for kind in kinds if kind is not NoneType and kind not in lists]
        return self.read((lists if lists and self._is("seq") else single)[0])

    def _tagged(self, kinds: list[type[msgspec.Struct]]) -> type[msgspec.Struct]:
        """Return the struct whose tag the mapping names."""
        tag = str(kinds[0].__struct_config__.tag_field)
        by_tag = {kind.__struct_config__.tag: kind for kind in kinds}
        if tag not in (found := self.entries()):
            self.fail(f"the key {tag}", "none")
        return by_tag[found[tag].read(Literal[tuple(by_tag)])]

    # --- Parts ---

    def _below(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name

    def _is(self, *tags: str) -> bool:
        return self.yaml is not None and self.yaml.tag.removeprefix(_TAG) in tags

    def _children(self) -> dict[str, Node]:
        if self._is("seq"):
            return {str(index): node for index, node in enumerate(self.items())}
        return self.entries() if self._is("map") else {}

    def _values(self, tag: str) -> list[Any]:
        if not self.given:
            return []
        if self.yaml is None or not self._is(tag) or not isinstance(self.yaml.value, list):
            self.fail(_KINDS[tag], _kind(self.yaml))
        return self.yaml.value


def _line(node: yaml.Node | yaml.Event) -> int | None:
    return node.start_mark.line + 1 if node.start_mark else None


def _has_control(text: str) -> bool:
    """Whether ``text`` has a control character, a line break or half of a surrogate pair."""
    ranges = ("\x00", "\x1f"), ("\x7f", "\x9f"), ("\u2028", "\u2029"), ("\ud800", "\udfff")
    return not text.isprintable() and any(low <= each <= high for each in text for low, high in ranges)


def _kind(node: yaml.Node | None) -> str:
    """Name the kind of a node. Never shows its value, which may be a secret."""
    return _KINDS[node.tag.removeprefix(_TAG) if node else "null"]


def _compose(content: bytes, source: Source, levels: int) -> yaml.Node | None:
    """Return the top node of the one document in ``content``."""
    import yaml  # noqa: PLC0415  only where there is a file: memory is budgeted

    class Composer(yaml.SafeLoader):
        """Counts the values; an alias counts all values of its anchor.

        PyYAML's parser in C is faster, but it words errors differently and is not always installed.
        """

        depth = 0
        values = 0

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
            self.depth += 1
            if self.depth > levels:
                source.refuse(_line(event), f"expected at most {levels} levels, found more")
            if tag := getattr(event, "tag", None):
                source.refuse(_line(event), f"expected no tags, found {tag}")
            before = self.values
            self.values += 1
            node = super().compose_node(parent, index)
            if isinstance(event, yaml.AliasEvent):
                self.values += sizes.get(node, MAX_VALUES)  # an incomplete node would contain itself
            else:
                sizes[node] = self.values - before
            if self.values > MAX_VALUES:
                source.refuse(_line(event), f"expected at most {MAX_VALUES} values, found more")
            self.depth -= 1
            return node

    sizes: dict[yaml.Node | None, int] = {}
    try:
        return Composer(content).get_single_node()
    except yaml.reader.ReaderError as error:
        source.refuse(content.count(b"\n", 0, error.position) + 1, f"is not YAML: {error.reason}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(filter(None, (error.context, error.problem)))
        source.refuse(mark.line + 1 if mark else None, f"is not YAML: {words}")
    except (ValueError, OverflowError):
        source.refuse(None, "is not YAML: a number or an escaped character is too large")
