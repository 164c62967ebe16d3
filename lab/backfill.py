"""Recording rules over samples of the past, by Prometheus itself: what its ruler would have recorded.

The ruler works in real time, so promtool fills in the past. A rule does not see there what another has just recorded,
so the rules go layer by layer, at the times at which the ruler evaluates each group.

One difference remains: where a recorded series ends, the ruler marks the end and here nothing does, so its last value
stands for Prometheus' look-back of five minutes.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support import yamltext
from support.promtool import promtool
from support.rulelint import records
from support.tsdb import prometheus

Groups = list[dict[str, Any]]

# A group is evaluated at a second of its interval that follows from its name and its file's: the same name for every
# layer, or a rule would read what the one before it in its group recorded minutes ago; and the same in every run.
RULES_FILE = "specdec.rules.yaml"


def seconds(text: str) -> int:
    """Prometheus' durations of one unit, ``90s`` to ``7d``."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]


def recording_layers(rules: Path, expressions: Iterable[str] | None = None) -> list[Groups]:
    """The recording rules of a file as groups, split so that a layer reads raw series and the layers before it only.

    ``expressions``: without the rules that these do not need.
    """
    groups = yamltext.load(rules.read_text(encoding="utf-8"))["groups"]
    reads: dict[str, set[str]] = collections.defaultdict(set)
    for rule in (rule for group in groups for rule in group["rules"] if "record" in rule):
        reads[rule["record"]] |= records(rule["expr"]) - {rule["record"]}

    @cache
    def depth(record: str) -> int:
        return max((1 + depth(other) for other in reads[record]), default=0)

    wanted, found = set(reads) if expressions is None else set[str]().union(*map(records, expressions)), set[str]()
    while wanted:
        found |= wanted
        wanted = set[str]().union(*(reads[record] for record in wanted)) - found

    def layer(number: int) -> Groups:
        kept = [
            group | {"rules": [r for r in group["rules"] if r.get("record") in found and depth(r["record"]) == number]}
            for group in groups
        ]
        return [group for group in kept if group["rules"]]

    return [layer(number) for number in range(1 + max(map(depth, found), default=-1))]


def record(groups: Groups, data: Path, span: tuple[int, int], *, release: str = "") -> Path:
    """Add to the blocks in ``data`` what one layer records within ``span`` (from and until, seconds since the epoch).

    ``release``: how the names of the programs end, as for :func:`fieldtools.tool`. Returns the layer's file.

    Rules that read their own past run twice, because the first time there is none.
    """
    file = data.with_name(RULES_FILE)
    again = [{**group, "rules": [r for r in group["rules"] if r["record"] in records(r["expr"])]} for group in groups]
    for wanted in ([group for group in again if group["rules"]], groups):
        if wanted:
            file.write_text(yaml.safe_dump({"groups": wanted}))
            with prometheus(data, f"prometheus{release}") as url:
                promtool(f"promtool{release}").record(file, url, data, *span)
    return file
