"""The reader of all YAML files that people write: plain data, or a checked value, or one error line of our own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn, TypeVar, get_args, get_origin

import msgspec
import msgspec.inspect
import yaml

from specdec_exporter.errors import SpecdecError
from specdec_exporter.formatting import did_you_mean, plain

MAX_BYTES = 1024 * 1024  # more than a ConfigMap can hold
MAX_LINES = 40_000  # blank lines too: PyYAML reads some 150,000 a second
MAX_VALUES = 20_000
MAX_LEVELS = 10
MAX_MISTAKES = 20

_TAG = "tag:yaml.org,2002:"
# Decimal only. YAML 1.1 also reads 010 as 8 and 1:30 as 90.
_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_MAX_DIGITS = 400
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_WORDS = {"object": "a mapping", "array": "a list", "null": "nothing", "str": "text", "bool": "true or false"}
_WORDS |= {"int": "a whole number", "float": "a number"}
_LIMITS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}

T = TypeVar("T")


def read_yaml(path: str | Path, error: type[SpecdecError]) -> Any:
    """Return the data of a file with one document, as :func:`parse_yaml`."""
    return parse_yaml(read_bytes(path, error), str(path), error)


def read_bytes(path: str | Path, error: type[SpecdecError], most: int = MAX_BYTES) -> bytes:
    """Return the content of a file, or a byte more than ``most`` of it."""
    try:
        with Path(path).open("rb") as file:
            return file.read(most + 1)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
        raise error(plain(f"{path}: cannot be read: {reason}")) from cause


def parse_yaml(content: bytes, name: str, error: type[SpecdecError], *, levels: int = MAX_LEVELS) -> Any:
    """Return dicts, lists, text, numbers, booleans or ``None``.

    Keys are text as written, dates are text, and numbers are decimal and finite.
    Raises ``error`` with ``name`` and line for anything that is not YAML, and for tags, anchors, aliases, repeated
    keys, control characters other than line breaks, more than ``levels`` levels, and too many bytes, lines or values.
    """
    if len(content) > MAX_BYTES:
        raise error(plain(f"{name}: expected at most {MAX_BYTES} bytes, found more"))
    if content.count(b"\n") + content.count(b"\r") > MAX_LINES:
        raise error(plain(f"{name}: expected at most {MAX_LINES} lines, found more"))
    try:
        return _loader(content, levels).get_single_data()
    except yaml.reader.ReaderError as cause:
        line = content.count(b"\n", 0, cause.position) + 1
        raise error(plain(f"{name}, line {line}: is not YAML: {cause.reason}")) from cause
    except yaml.MarkedYAMLError as cause:
        mark = cause.problem_mark or cause.context_mark
        place = f"{name}, line {mark.line + 1}" if mark else name
        words = ", ".join(filter(None, (cause.context, cause.problem)))
        raise error(plain(f"{place}: {words if isinstance(cause, _Refused) else f'is not YAML: {words}'}")) from cause
    except (ValueError, OverflowError) as cause:
        raise error(plain(f"{name}: is not YAML: a number or an escaped character is too large")) from cause


def convert(data: Any, kind: type[T], name: str, error: type[SpecdecError]) -> T:
    """Return ``data`` as a ``kind``: a :class:`msgspec.Struct` whose fields are the schema of a mapping.

    Nothing at all counts as an empty mapping. A type that msgspec does not know is called with the value. ``error``
    has a line for each mistake, at most ``MAX_MISTAKES``: the file, the key, the expected and the found.
    """
    data = {} if data is None else data
    try:
        return _checked(data, kind)
    except msgspec.ValidationError as cause:
        raise error(*(plain(f"{name}: {mistake}") for mistake in _first_mistakes(data, kind, ""))) from cause


def _checked(data: Any, kind: type[T]) -> T:
    return msgspec.convert(data, kind, strict=True, dec_hook=lambda made, value: made(value))


def number_of(text: str) -> float | None:
    """Return ``text`` as a finite decimal number; ``None`` for any other text."""
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


# --- YAML, without its surprises -------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """PyYAML's loader in Python: that in C is faster, but it words errors differently and is not always installed."""

    # Without dates, numbers and merged keys: dates stay text, numbers are read below, ``<<`` is a key like others.
    yaml_implicit_resolvers = {  # noqa: RUF012  PyYAML's own way
        first: [each for each in found if each[0] in (f"{_TAG}bool", f"{_TAG}null")]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    levels = MAX_LEVELS
    level = 0
    values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None):
            _refuse("expected no anchors and aliases", f"{event.anchor}", event.start_mark)
        if getattr(event, "tag", None):
            _refuse("expected no tags", event.tag, event.start_mark)
        self.level += 1
        self.values += 1
        if self.level > self.levels:
            _refuse(f"expected at most {self.levels} levels", "more", event.start_mark)
        if self.values > MAX_VALUES:
            _refuse(f"expected at most {MAX_VALUES} values", "more", event.start_mark)
        node = super().compose_node(parent, index)
        self.level -= 1
        return node

    def mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                _refuse("expected a word as the key", "a mapping or a list", key.start_mark)
            name = self.text(key)
            if name in found:
                _refuse(f"{name}: expected every key once", "it a second time", key.start_mark)
            found[name] = self.construct_object(value, deep=True)
        return found

    def text(self, node: yaml.ScalarNode) -> str:
        value: str = node.value
        if _CONTROL.search(value):
            _refuse("expected printable text", "a control character", node.start_mark)
        return value

    def number(self, node: yaml.ScalarNode) -> float | str:
        number = number_of(node.value)
        if number is None:
            return self.text(node)
        return int(node.value) if node.value.lstrip("+-").isdigit() else number


_Loader.add_implicit_resolver(f"{_TAG}float", _NUMBER, list("-+.0123456789"))
_Loader.add_constructor(f"{_TAG}float", _Loader.number)
_Loader.add_constructor(f"{_TAG}map", _Loader.mapping)
_Loader.add_constructor(f"{_TAG}str", _Loader.text)


def _loader(content: bytes, levels: int) -> _Loader:
    loader = _Loader(content)
    loader.levels = levels
    return loader


class _Refused(yaml.MarkedYAMLError):
    """YAML, but not what we read."""


def _refuse(expected: str, found: str, mark: yaml.Mark) -> NoReturn:
    raise _Refused(problem=f"{expected}, found {found}", problem_mark=mark)


# --- Mistakes in our words: msgspec names only the first -------------------------------------------------------------

_MISSING = re.compile(r"Object missing required field `(.*)`")


def _first_mistakes(data: Any, kind: Any, above: str) -> list[str]:
    return list(islice(_mistakes(data, kind, above), MAX_MISTAKES))


def _mistakes(data: Any, kind: Any, above: str) -> Iterator[str]:
    """Yield the mistakes of ``data`` at the path ``above``: those of its parts, then those of the right parts together.

    Each has its key first: ``predictors[0].name: expected text, found a number``.
    """
    wrong = set()
    for key, mistakes in _parts(data, kind, above):
        yield from mistakes
        if mistakes:
            wrong.add(key)
    if wrong and isinstance(data, list):
        return
    try:
        _checked({key: value for key, value in data.items() if key not in wrong} if wrong else data, kind)
    except msgspec.ValidationError as cause:
        missing = _MISSING.fullmatch(str(cause))
        if missing is None or missing[1] not in wrong:
            ours = cause.__cause__.args if isinstance(cause.__cause__, SpecdecError) else ()
            yield from (_told(words, kind, above) for words in (ours if len(ours) > 1 else [str(cause)]))


def _parts(data: Any, kind: Any, above: str) -> Iterator[tuple[Any, list[str]]]:
    """Yield the keys of a mapping, or the indexes of a list, each with the mistakes below it."""
    kinds = [choice for choice in get_args(kind) if choice is not NoneType] if NoneType in get_args(kind) else [kind]
    if isinstance(data, list) and get_origin(kinds[0]) is tuple:
        for index, value in enumerate(data):
            yield index, _first_mistakes(value, get_args(kinds[0])[0], f"{above}[{index}]")
    if isinstance(data, dict) and isinstance(kinds[0], type) and issubclass(kinds[0], msgspec.Struct):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kinds[0])}
        for key, value in data.items():
            if key in fields:
                yield key, _first_mistakes(value, fields[key], _below(above, key))
            elif kinds[0].__struct_config__.forbid_unknown_fields:
                yield key, [_told(f"Object contains unknown field `{key}`", kinds[0], above)]


def _told(words: str, kind: Any, above: str) -> str:
    """Return an error of msgspec, about data at the path ``above`` that should be of this ``kind``."""
    words, _, inside = words.partition(" - at `$")
    inside = inside.removesuffix("`").removeprefix(".")
    path = _below(above, inside)
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", words, re.DOTALL):
        choices = _choices(kind, inside)
        expected = f"expected one of {', '.join(choices)}{did_you_mean(unknown[1], choices)}"
        return f"{_below(path, unknown[1])}: unknown key, {expected}"
    if missing := _MISSING.fullmatch(words):
        return f"{path or 'top level'}: expected the key {missing[1]}, found none"
    if wrong := re.fullmatch(r"Expected `(.*?)`, got `(.*?)`", words):
        expected = " or ".join(_WORDS.get(each, each) for each in wrong[1].split(" | ") if each != "null")
        quotes = " in quotes" if expected == "text" and wrong[2] in ("int", "float", "bool") else ""
        found = "a number" if wrong[2] in ("int", "float") else _WORDS.get(wrong[2], wrong[2])
        return f"{path or 'top level'}: expected {expected}{quotes}, found {found}"
    if limit := re.fullmatch(r"Expected `(int|float)` (>=|<=|>|<) (.*)", words):
        return f"{path}: expected {_WORDS[limit[1]]} {_LIMITS[limit[2]]} {float(limit[3]):g}"
    if choice := re.fullmatch(r"Invalid enum value (.*)", words, re.DOTALL):
        choices = _choices(kind, inside)
        near = did_you_mean(choice[1].strip("'"), choices)
        return f"{path}: expected one of {', '.join(choices)}, found {choice[1]}{near}"
    # An error of ours, which begins with a key below the path.
    return _below(path, words) if re.match(r"[\w.+\[\]-]+: ", words) else f"{path or 'top level'}: {words}"


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key and not key.startswith("[") else f"{path}{key}"


def _choices(kind: Any, path: str) -> list[str]:
    """Return what is allowed at ``path`` of a ``kind``: keys of a mapping, or values."""
    info: Any = msgspec.inspect.type_info(kind)
    found: list[Any] = list(getattr(info, "types", [info]))
    for part in re.findall(r"\.{3}|[^.\[\]]+", path):
        found = [below for each in found for below in _inside(each, part)]
    structs = [each for each in found if isinstance(each, msgspec.inspect.StructType)]
    literals = [each for each in found if isinstance(each, msgspec.inspect.LiteralType)]
    keys = [field.encode_name for each in structs for field in each.fields]
    return keys or [str(value) for each in literals for value in each.values]


def _inside(kind: Any, part: str) -> list[Any]:
    """Return the types of ``part`` in a type of msgspec.inspect; a union is each of its types."""
    found: Any = getattr(kind, "item_type", None) or getattr(kind, "value_type", None)
    for field in getattr(kind, "fields", ()):
        if field.encode_name == part:
            found = field.type
    return list(getattr(found, "types", [found]))
