"""Objects of Kubernetes, against the schemas of their kinds, which ``make tools`` fetches."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from support import yamltext
from support.fieldtools import schema_file

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "number": (int, float),
}
CHECKED = {"type", "properties", "required", "items", "enum", "pattern", "minLength", "minItems", "minimum", "maximum"}
# What a schema has besides: words for people, hints for the API server's merging, and rules in CEL (not run here).
ASIDE = {"description", "default", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
ASIDE |= {"x-kubernetes-map-type", "x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields"}
ASIDE |= {"additionalProperties"}


@functools.cache
def schema(kind: str, api_version: str) -> Any:
    """The schema of the specification of a kind."""
    group, _, version = api_version.partition("/")
    definition = yamltext.load(schema_file(f"{group}_{kind.lower()}s.yaml").read_text(encoding="utf-8"))
    (found,) = (one for one in definition["spec"]["versions"] if one["name"] == version)
    return found["schema"]["openAPIV3Schema"]["properties"]["spec"]


def refused(*objects: Any) -> list[str]:
    """What of their specifications the schemas of their kinds do not allow, as far as :func:`faults` knows these."""
    return [
        fault for one in objects for fault in faults(_checkable(schema(one["kind"], one["apiVersion"])), one["spec"])
    ]


def _checkable(schema: Any) -> Any:
    """A schema without what :func:`faults` does not know, so that it checks less."""
    if "x-kubernetes-int-or-string" in schema:
        return {}
    kept = {key: value for key, value in schema.items() if key in CHECKED | ASIDE}
    if "properties" in kept:
        kept["properties"] = {name: _checkable(value) for name, value in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _checkable(kept["items"])
    return kept


def faults(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """What of a value its structural schema does not allow; a field that it does not know would be dropped."""
    assert schema.keys() <= CHECKED | ASIDE, schema.keys() - CHECKED - ASIDE
    if "type" not in schema:
        return
    if not isinstance(value, TYPES[schema["type"]]):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if isinstance(value, dict) and "properties" in schema:
        yield from (f"{path}.{key} is missing" for key in schema.get("required", ()) if key not in value)
        for key, item in value.items():
            if key in schema["properties"]:
                yield from faults(schema["properties"][key], item, f"{path}.{key}")
            else:
                yield f"{path}.{key} does not exist"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{path} has too few items"
        for number, item in enumerate(value):
            yield from faults(schema.get("items", {}), item, f"{path}[{number}]")
    if isinstance(value, str):
        # RE2 takes a flag anywhere, Python at the start alone.
        pattern = schema.get("pattern", "")
        flags = re.IGNORECASE if "(?i)" in pattern else re.NOFLAG
        if len(value) < schema.get("minLength", 0) or not re.search(pattern.replace("(?i)", ""), value, flags):
            yield f"{path}: {value!r} has not the form {schema.get('pattern', '.+')}"
        if value not in schema.get("enum", [value]):
            yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of range"
