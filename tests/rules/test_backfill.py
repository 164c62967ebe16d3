"""Filling in the past misses no rule, and none reads what is not there yet."""

from __future__ import annotations

import yamltext
from backfill import recording_layers
from rules.conftest import RENDERED

RULES = RENDERED / "specdec.rules.yaml"
LAYERS = [[rule for group in layer for rule in group["rules"]] for layer in recording_layers(RULES)]


def test_every_recording_rule_is_in_one_layer() -> None:
    rules = [rule for group in yamltext.load(RULES.read_text())["groups"] for rule in group["rules"]]
    recorded = [rule["record"] for layer in LAYERS for rule in layer]

    assert sorted(recorded) == sorted(rule["record"] for rule in rules if "record" in rule)


def test_a_layer_reads_only_what_lies_below_it() -> None:
    every, below = {rule["record"] for layer in LAYERS for rule in layer}, set[str]()
    for layer in LAYERS:
        for rule in layer:
            foreign = {record for record in every - below - {rule["record"]} if record in rule["expr"]}
            assert not foreign, rule["record"]
        below |= {rule["record"] for rule in layer}


def test_only_what_an_expression_needs_is_recorded() -> None:
    wanted = LAYERS[-1][0]["record"]
    layers = recording_layers(RULES, [f"{wanted} > 1"])
    kept = {rule["record"] for layer in layers for group in layer for rule in group["rules"]}

    assert wanted in kept
    assert kept < {rule["record"] for layer in LAYERS for rule in layer}
