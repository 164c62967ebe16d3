"""No regular expression takes more than linear time, whatever it meets.

Each pattern is attacked at each of its repetitions: text that leads there, then what repeats, thousands of times, then
something that fails. A linear pattern takes less than a millisecond for it; a quadratic one takes many seconds.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import specdec_exporter
from fuzz.run import Hang, no_hang
from specdec_exporter.predictor.engines.engine import ENGINES
from specdec_exporter.predictor.log import statistics
from specdec_exporter.predictor.versions import WARNINGS

# The parser of the standard library: its trees say where a pattern repeats.
PARSER: Any = importlib.import_module("re._parser")
COMPILER: Any = importlib.import_module("re._compiler")
LENGTH = 16 * 1024
HANG_SECONDS = 0.2  # of CPU: a hundred times what a linear pattern needs
MANY = 100  # a repetition with fewer is no attack
CHARACTERS = "0a A_,.:/=-\"'{[(\\%|\t\x01<"
ENDS = ("\0", "x\n", "")
USES = r"\b{}\.(search|sub|findall|finditer|split|match|fullmatch)\("
# Read only what another pattern has matched, or what ends as they do.
AFTER_A_CHECK = {
    "config._DURATION",
    "predictor.sources.kubelog._LINE",
}


def patterns() -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    """Name, pattern and how it is used, of all that the exporter compiles when it is imported."""
    for found in pkgutil.walk_packages(specdec_exporter.__path__, "specdec_exporter."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    uses = set(re.findall(USES.format(name), inspect.getsource(module)))
                    uses = {each if each in ("match", "fullmatch") else "search" for each in uses}
                    yield f"{found.name.removeprefix('specdec_exporter.')}.{name}", value, uses or {"match"}
    for fields in (statistics._SPEC_FIELDS, statistics._V0_FIELDS, statistics._STATS_FIELDS):
        yield from ((f"field {name}", pattern, {"fullmatch"}) for name, (_, pattern) in fields.items())
    yield from ((f"engine {code}", engine.line, {"match", "search"}) for code, engine in ENGINES.items())
    yield from ((f"warning {code}", warned.pattern, {"match"}) for code, warned in WARNINGS.items())


def parsed(pattern: re.Pattern[Any]) -> Any:
    text = pattern.pattern
    return PARSER.parse(text, pattern.flags & ~re.DEBUG if isinstance(text, str) else pattern.flags & ~re.UNICODE)


def members(tree: Any, node: Any) -> list[str]:
    """A few characters that one node of the tree takes."""
    single = COMPILER.compile(PARSER.SubPattern(tree.state, [node]))
    binary = isinstance(tree.state.str, bytes)
    return [each for each in CHARACTERS if single.fullmatch(each.encode() if binary else each)]


def walk(tree: Any, nodes: Any, before: str) -> Iterator[tuple[str, str | None]]:
    """Yield the text before each repetition with what repeats; at last an example of all nodes with ``None``."""
    for node in nodes:
        operation, value = node
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, body = value
            bodies = [text for text, pump in walk(tree, body, "") if pump is None]
            if len(body) == 1 and str(body[0][0]) in ("IN", "ANY", "NOT_LITERAL", "LITERAL", "CATEGORY"):
                bodies = members(tree, body[0])[:6] or bodies
            if most > MANY:
                yield from ((before, each) for each in bodies if each)
            yield from ((text, pump) for text, pump in walk(tree, body, before) if pump is not None)
            before += (bodies or [""])[0] * max(least, 1 if most > MANY else least)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            inner = value[-1] if name == "SUBPATTERN" else value
            last = before
            for text, pump in walk(tree, inner, before):
                if pump is None:
                    last = text
                else:
                    yield text, pump
            before = last
        elif name == "BRANCH":
            firsts = []
            for branch in value[1]:
                for text, pump in walk(tree, branch, before):
                    if pump is None:
                        firsts.append(text)
                    else:
                        yield text, pump
            before = firsts[0]
        elif name == "LITERAL":
            before += chr(value)
        elif name in ("IN", "ANY", "NOT_LITERAL"):
            before += (members(tree, node) or ["?"])[0]
    yield before, None


def attacks(pattern: re.Pattern[Any], uses: set[str]) -> Iterator[str]:
    tree = parsed(pattern)
    for before, pump in dict.fromkeys(walk(tree, tree, "")):
        text = pump or before
        if text:
            yield before + text * (LENGTH // len(text))
        if "search" in uses and before:
            whole = before + (pump or "") * 50
            yield whole * (LENGTH // len(whole))


PATTERNS = [each for each in patterns() if each[0] not in AFTER_A_CHECK]


@pytest.mark.parametrize(("pattern", "uses"), [each[1:] for each in PATTERNS], ids=[each[0] for each in PATTERNS])
def test_a_pattern_takes_linear_time(pattern: re.Pattern[Any], uses: set[str]) -> None:
    assert slowest_attack(pattern, uses) is None


def slowest_attack(pattern: re.Pattern[Any], uses: set[str]) -> str | None:
    """The beginning of an attack that takes too long."""
    for attack in attacks(pattern, uses):
        for end in ENDS:
            text: Any = attack + end
            if isinstance(pattern.pattern, bytes):
                text = text.encode("latin-1", "replace")
            try:
                with no_hang(HANG_SECONDS):
                    for use in uses:
                        getattr(pattern, use)(text)
            except Hang:
                return attack[:200]
    return None


@pytest.mark.parametrize("bad", ["(a+)+b", "x*x*y", r"\w+\s*=\s*\w+\s*\w*:", "(?:a|a)*c"])
def test_this_attack_finds_bad_patterns(bad: str) -> None:
    assert slowest_attack(re.compile(bad), {"fullmatch", "search"})


def test_all_patterns_are_seen() -> None:
    names = {name for name, _, _ in PATTERNS}
    assert len(names) > 80
    assert "engine vllm" in names
