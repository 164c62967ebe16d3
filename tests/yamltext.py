"""YAML for tests, read in C: the rules, which many modules read, take 0.01 s instead of 0.2."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML can be built without libyaml


def load(text: str) -> Any:
    """What ``yaml.safe_load`` returns."""
    return yaml.load(text, _LOADER)


def load_all(text: str) -> list[Any]:
    """The documents of ``text``."""
    return list(yaml.load_all(text, _LOADER))
