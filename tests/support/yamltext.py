"""YAML for tests, read in C: the rules, which many modules read, take 0.01 s instead of 0.2."""

from __future__ import annotations

from typing import Any

import yaml


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # can be built without libyaml
    """YAML 1.1 has a type for a lone ``=``, which matchers and custom resource definitions mean as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag != "tag:yaml.org,2002:value"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def load(text: str) -> Any:
    """What ``yaml.safe_load`` returns; a lone ``=`` is text."""
    return yaml.load(text, _Loader)


def load_all(text: str) -> list[Any]:
    """The documents of ``text``."""
    return list(yaml.load_all(text, _Loader))
