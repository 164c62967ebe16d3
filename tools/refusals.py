"""List what the configuration of vLLM refuses about speculation, and compare it with ``tools/refusals.yaml``.

Give releases, which are downloaded with pip, or folders that hold an unpacked wheel or source::

    python tools/refusals.py 0.31.0 0.32.0 0.33.0
    python tools/refusals.py --list unpacked/

A refusal is a ``raise``, a name that is put on a list of what is unsupported, or a bound of a field. Its text
identifies it; ``{}`` stands for a value. It is known if ``doctor`` explains it (``failures.yaml``), or if the list has
it under a reason why no fact does; there, ``*`` ends the beginning of a text.

Exit code 1: a release has a refusal that is not known (``new``), or the list has one that no release has (``gone``).
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec.yaml

from specdec_exporter.predictor.facts.failures import known_cause

WAIVED = Path(__file__).with_suffix(".yaml")
# File -> whether all of it is about speculation.
FILES = {"vllm/config/speculative.py": True, "vllm/config/vllm.py": False}
_SPECULATION = re.compile(
    r"specul|\bspec(_config)?\b|adaptive|draft|dspark|dflash|eagle|\bmtp\b|async_sched_incompat", re.IGNORECASE
)
_LISTS = frozenset({"unsupported.append", "blockers.append"})
_BOUNDS = frozenset({"gt", "ge", "lt", "le"})


class Refusal(NamedTuple):
    """A refusal: where it stands, its text, and the conditions that lead there, in words of the source."""

    place: str
    text: str
    conditions: tuple[str, ...]


def read_reasons() -> dict[str, list[str]]:
    """Return the refusals that are on the list, by their reasons."""
    return msgspec.yaml.decode(WAIVED.read_bytes(), type=dict[str, list[str]])


def refusals(folder: Path) -> list[Refusal]:
    """Return the refusals of the release in ``folder``, in the order of its source; each text once."""
    found: dict[str, Refusal] = {}
    for name, all_of_it in FILES.items():
        for refusal in _of_statements(ast.parse((folder / name).read_bytes()).body, name, ()):
            if all_of_it or any(map(_SPECULATION.search, (refusal.text, *refusal.conditions))):
                found.setdefault(refusal.text, refusal)
    return list(found.values())


def _of_statements(body: Sequence[ast.stmt], place: str, conditions: tuple[str, ...]) -> Iterator[Refusal]:
    for statement in body:
        if (text := _text(statement)) is not None:
            yield Refusal(f"{place}:{statement.lineno}", text, conditions)
        if isinstance(statement, ast.If):
            test = ast.unparse(statement.test)
            yield from _of_statements(statement.body, place, (*conditions, test))
            yield from _of_statements(statement.orelse, place, (*conditions, f"not ({test})"))
            if isinstance(statement.body[-1], ast.Return):
                conditions = (*conditions, f"not ({test})")
            continue
        is_function = isinstance(statement, ast.FunctionDef)
        for block in ("body", "orelse", "finalbody"):
            yield from _of_statements(getattr(statement, block, ()), place, () if is_function else conditions)
        for inner in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _of_statements(inner.body, place, conditions)


def _text(statement: ast.stmt) -> str | None:
    """Return the text of a refusal; ``None`` for another statement."""
    match statement:
        case ast.Raise(exc=ast.Call(args=[message, *_])):
            return _words(message)
        case ast.Raise(exc=ast.expr() as error):
            return ast.unparse(error)
        case ast.Expr(value=ast.Call(func=called, args=[feature])) if ast.unparse(called) in _LISTS:
            return f"unsupported: {_words(feature)}"
        case ast.AnnAssign(target=field, value=ast.Call(func=ast.Name(id="Field"), keywords=given)):
            bounds = [f"{each.arg}={ast.unparse(each.value)}" for each in given if each.arg in _BOUNDS]
            return f"field {ast.unparse(field)}: {', '.join(bounds)}" if bounds else None
    return None


def _words(message: ast.expr) -> str:
    if isinstance(message, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in message.values)  # type: ignore[misc]
    return message.value if isinstance(message, ast.Constant) else ast.unparse(message)  # type: ignore[return-value]


def known(refusal: Refusal, waived: Iterable[str]) -> str | None:
    """Return what knows a refusal: the code of a failed start, or a text of the list; ``None`` if nothing does."""
    text = refusal.text
    listed = (each for each in waived if text == each or (each.endswith("*") and text.startswith(each[:-1])))
    return known_cause(text.replace("{}", "1")) or next(listed, None)


def unpacked(release: str, folder: Path) -> Path:
    """Return the folder of a release: ``release`` itself if it is one, else a download, unpacked into ``folder``."""
    if Path(release).is_dir():
        return Path(release)
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "download", *options, f"vllm=={release}"], check=True)  # noqa: S603
    wheel = next(folder.glob(f"vllm-{release}-*.whl"))
    with zipfile.ZipFile(wheel) as files:
        for name in FILES:
            files.extract(name, folder / release)
    wheel.unlink()
    return folder / release


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("releases", nargs="+", help="releases such as 0.33.0, or folders")
    parser.add_argument("--list", action="store_true", help="print all refusals, not only new ones")
    given = parser.parse_args(arguments)
    waived = [text for texts in read_reasons().values() for text in texts]
    lines: list[str] = []
    met: set[str | None] = set()
    for release in given.releases:
        with tempfile.TemporaryDirectory() as folder:
            found = {each: known(each, waived) for each in refusals(unpacked(release, Path(folder)))}
        met.update(found.values())
        explained = sum(by is not None and by not in waived for by in found.values())
        new = [each for each, by in found.items() if by is None]
        lines.append(f"{release}: {len(found)} refusals, {explained} explained by doctor, {len(new)} new")
        for each in found if given.list else new:
            lines.append(f"  {'new ' if each in new else ''}{each.place}: {each.text}")
            lines += [f"      if {condition}" for condition in each.conditions]
    gone = [text for text in waived if text not in met]
    lines += [f"gone: {text}" for text in gone]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return int(bool(gone) or None in met)


if __name__ == "__main__":
    sys.exit(main())
