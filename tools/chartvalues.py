"""The chart's values as a schema and as the table in its README, both from values.yaml and its comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from markdown import filled, table

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_KEY = re.compile(r"^( *)([A-Za-z]\w*):")
_LONG = 60


def schema(values: str) -> str:
    """Return values.schema.json: JSON Schema, draft 7, of what values.yaml has, and nothing besides."""
    properties = _properties(yaml.safe_load(values), comments(values), ())
    # Helm hands `global` to every chart that is part of another.
    whole = {"$schema": "http://json-schema.org/draft-07/schema#"} | _closed(
        properties | {"global": {"type": "object"}}
    )
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def readme(page: str, values: str) -> str:
    """Return the README with the table anew."""
    rows = [
        (f"`{'.'.join(path)}`", _default(value), comment)
        for path, value, comment, _ in leaves(yaml.safe_load(values), comments(values), ())
    ]
    return filled(page, {"values": table(("Value", "Default", "Meaning"), rows)})


def leaves(values: Any, comments: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, str, Any]]:
    """Yield each value that a person sets: its path, default, documentation and what its schema says besides."""
    for key, value in values.items():
        path = (*above, key)
        comment, extra = comments.get(path, ("", {}))
        if isinstance(value, dict) and value and not extra:
            yield from leaves(value, comments, path)
        elif not comment:
            raise ValueError(f"{'.'.join(path)} in values.yaml has no comment")
        else:
            yield path, value, comment, extra


def comments(text: str) -> dict[tuple[str, ...], tuple[str, Any]]:
    """The comment above each key, by path, and its ``@schema``."""
    found: dict[tuple[str, ...], tuple[str, Any]] = {}
    path: list[str] = []
    words: list[str] = []
    extra: Any = {}
    for line in text.splitlines():
        if (comment := line.lstrip()).startswith("# @schema "):
            extra = yaml.safe_load(comment.removeprefix("# @schema "))
        elif comment.startswith("# "):
            words.append(comment.removeprefix("# "))
        else:
            if key := _KEY.match(line):
                path = [*path[: len(key[1]) // 2], key[2]]
                found[tuple(path)] = (" ".join(words), extra)
            words, extra = [], {}
    return found


def _properties(values: Any, comments: Any, above: tuple[str, ...]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for path, value, comment, extra in leaves(values, comments, above):
        place = properties
        for key in path[:-1]:
            place = place.setdefault(key, _closed({}))["properties"]
        kind = _TYPES[type(value)]
        bound = {"minimum": 0} if kind in {"integer", "number"} else {}
        place[path[-1]] = (
            {"type": kind, "description": comment}
            | bound
            | {key: said for key, said in extra.items() if key != "whole"}
        )
    return properties


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _default(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return "see `values.yaml`" if len(text) > _LONG else f"`{text}`" if text else "empty"
