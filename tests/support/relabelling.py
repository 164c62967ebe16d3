"""Relabelling as Prometheus does it, as far as the pack's rules go, to split a scenario's series among shards."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

Rule = Mapping[str, Any]  # of relabel_configs


def relabelled(labels: Mapping[str, str], rules: Iterable[Rule]) -> dict[str, str] | None:
    """The labels after all rules, those that begin with ``__tmp`` too; None where a rule drops the series."""
    found = dict(labels)
    for rule in rules:
        text = ";".join(found.get(name, "") for name in rule["source_labels"])
        match = re.fullmatch(rule.get("regex", "(.*)"), text)
        action = rule.get("action", "replace")
        if action == "hashmod":
            found[rule["target_label"]] = str(hashed(text) % rule["modulus"])
        elif action == "keep" and match is None:
            return None
        elif action == "replace" and match is not None:
            found[rule["target_label"]] = match.expand(rule.get("replacement", "$1").replace("$", "\\"))
    return found


def hashed(text: str) -> int:
    """Prometheus' hash: the lower 8 bytes of MD5."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[8:], "big")


def of_shard(rules: Iterable[Rule], number: int, shards: int) -> list[dict[str, Any]]:
    """The rendered rules as shard ``number`` has them, from 0."""
    *before, last = ({**rule, **({"modulus": shards} if "modulus" in rule else {})} for rule in rules)
    return [*before, {**last, "regex": str(number)}]
