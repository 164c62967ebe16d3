"""All that people read of us, in one file to read aloud: help, alerts, HELP of metrics, reports, errors, the page.

``--update-golden`` writes tests/golden/sentences.txt anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import yaml

import metrictables
from specdec_exporter.commands.cli import cli
from specdec_exporter.serving.families.family import help_text
from support.fieldtools import ROOT

SOURCE = ROOT / "exporter" / "specdec_exporter"
RULES = ROOT / "rules" / "rendered" / "specdec.rules.yaml"
FEWEST_WORDS = 4
PARTS = ("found", "cause", "meaning", "action")  # of a fact in a data file
# What people never see: a table of patterns, HELP, which stands apart, and help, which click prints.
LEFT_OUT = re.compile(r"commands/|serving/families/|predictor/log/")
IN_SCRIPT = re.compile(r'"([^"\n]*)"|`([^`\n]*)`|>([^<>{}\n]+)<')


def helps(command: click.Command, path: str) -> Iterator[str]:
    """``--help`` of a command and of those below it."""
    settings = {**command.context_settings, "max_content_width": 10_000, "terminal_width": 10_000}
    context = click.Context(command, info_name=path, **settings)
    # Click keeps the option of a command's first context, so its names depend on the tests that ran before.
    yield re.sub(r"(-h, )?--help +Show", "-h, --help  Show", command.get_help(context))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from helps(below, f"{path} {name}")


def alerts() -> Iterator[str]:
    """Every text of every alert."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        reason = rule["labels"].get("reason", "")
        texts = (f"  {part}: {rule['annotations'][part]}" for part in ("summary", "description", "impact", "action"))
        yield "\n".join((f"{rule['alert']} {rule['labels']['severity']} {reason}".rstrip(), *texts))


def metrics() -> Iterator[str]:
    """HELP of every family."""
    for _, groups in metrictables.FAMILIES.values():
        for group in groups:
            yield from (f"{family.name}: {help_text(group, family, '300 s')}" for family in group.families)


def part_of(text: ast.expr) -> str:
    """A part of an f-string: words, or what is filled in, in braces."""
    if isinstance(text, ast.FormattedValue):
        return f"{{{ast.unparse(text.value)}}}"
    return str(text.value) if isinstance(text, ast.Constant) else ""


def said(file: Path) -> Iterator[str]:
    """String constants of a module, no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    silent |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(part_of, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def sentences() -> Iterator[str]:
    """By module, those of the data files and of the page too."""
    for file in sorted(SOURCE.rglob("*")):
        name = file.relative_to(SOURCE).as_posix()
        if LEFT_OUT.match(name):
            continue
        if file.suffix == ".py":
            texts = said(file)
        elif file.suffix == ".yaml":
            facts = yaml.safe_load(file.read_text(encoding="utf-8"))
            texts = (str(fact[part]) for fact in facts for part in PARTS if part in fact)
        elif file.suffix == ".html":
            texts = ("".join(found) for found in IN_SCRIPT.findall(file.read_text(encoding="utf-8")))
        else:
            continue
        lines = [" ".join(text.split()) for text in texts]
        if kept := [line for line in lines if len(re.findall(r"[A-Za-z]{2,}", line)) >= FEWEST_WORDS and " " in line]:
            yield "\n".join((f"{name}:", *(f"  {line}" for line in kept)))


def everything() -> str:
    """The whole file."""
    parts = {
        "Help": helps(cli, "specdec-exporter"),
        "Alerts": alerts(),
        "Metrics": metrics(),
        "Reports, errors and the page": sentences(),
    }
    return "\n\n".join(f"=== {title} ===\n\n" + "\n\n".join(texts) for title, texts in parts.items()) + "\n"


def test_what_people_read_was_read(golden: Callable[[str, str], None]) -> None:
    golden("sentences", everything())
