"""Shell scripts, as far as container commands use them: words, quotes, variables, ``if``, ``eval``. Pure.

Nothing is run. A variable that is not known, a ``$(command)`` and a ``{{template}}`` stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from specdec_exporter.bounds import COMMAND_CHARACTERS
from specdec_exporter.errors import ConfigError

_VARIABLE: Final = r"\$\{(?P<name>\w+)(?::?-(?P<default>[^{}]*))?\}|\$\((?P<call>[^()]*)\)|\$(?P<bare>[A-Za-z_]\w*)"
# No part can match in two ways, and none scans far before it fails, so reading is linear.
_PART: Final = re.compile(
    rf"""(?P<gap>[ \t\r]+) | (?P<joint>\\(?:\r?\n|\Z)) | (?P<end>[\n;&|()]+)
    | '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*+)" | \\(?P<escaped>.)
    | (?P<variable>{_VARIABLE})
    | (?P<comment>\#) | (?P<plain>\{{\{{[^{{}}]*\}}\}} | [^ \t\r\n;&|()\\'"$\#{{]+ | [${{])""",
    re.VERBOSE | re.DOTALL,
)
_IN_QUOTES: Final = re.compile(rf"""\\(?P<escaped>["\\$`])|\\\r?\n|(?P<variable>{_VARIABLE})""")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

_OPENING: Final = frozenset({"if", "while", "until", "for", "case"})
_CLOSING: Final = frozenset({"fi", "done", "esac"})
_BETWEEN: Final = frozenset({"then", "else", "elif", "do", "!", "{", "export", "exec", "env", "nohup", "command"})
_EVALS: Final = 3  # inside each other; further ones stay words


class Shell:
    """Reads scripts. ``variables`` are known at first, and those that the script sets are added."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self.variables = dict(variables or {})
        self._room = COMMAND_CHARACTERS  # for what variables stand for

    def commands(self, script: str, *, evals: int = _EVALS) -> Iterator[list[str]]:
        """Yield the commands as lists of words, without assignments and the words of ``if`` and ``for``.

        An assignment inside ``if`` gives way to one before it: a condition is not decided here. Raises ConfigError
        for an open quotation, and if the script, or what its variables stand for, is too long.
        """
        if len(script) > COMMAND_CHARACTERS:
            raise ConfigError(f"the command: expected at most {COMMAND_CHARACTERS} characters, found {len(script)}")
        depth = 0
        for words in self._split(script):
            start = 0
            while start < len(words) and (
                words[start] in _OPENING | _CLOSING | _BETWEEN or _ASSIGNMENT.fullmatch(words[start])
            ):
                word = words[start]
                depth += (word in _OPENING) - (word in _CLOSING)
                if (assignment := _ASSIGNMENT.fullmatch(word)) and not (depth and assignment[1] in self.variables):
                    self.variables[assignment[1]] = assignment[2]
                start += 1
            evaluated = start
            while evals and evaluated < len(words) and words[evaluated] == "eval":
                evaluated += 1
            if evaluated > start:
                yield from self.commands(" ".join(words[evaluated:]), evals=evals - 1)
            elif words[start:]:
                yield words[start:]

    def expanded(self, text: str) -> str:
        """Return ``text`` with the variables that are known."""
        return _IN_QUOTES.sub(self._replaced, text)

    def _replaced(self, part: re.Match[str]) -> str:
        return self._value(part) if part["variable"] else part["escaped"] or ""

    def _value(self, variable: re.Match[str]) -> str:
        name = variable["name"] or variable["bare"] or variable["call"]
        value = self.variables.get(name or "", variable["default"])
        value = variable["variable"] if value is None else value
        self._room -= len(value)
        if self._room < 0:
            raise ConfigError(f"the command: its variables stand for more than {COMMAND_CHARACTERS} characters")
        return value

    def _split(self, script: str) -> Iterator[list[str]]:
        words: list[str] = []
        word: list[str] = []  # its parts; a part may be empty, such as ""
        position = 0
        while position < len(script):
            if (part := _PART.match(script, position)) is None:
                line = script.count("\n", 0, position) + 1
                raise ConfigError(f"the command: line {line} has an open quotation ({script[position]})")
            position = part.end()
            if part["joint"] is not None:
                continue
            if part["comment"] and not word:
                position = (script.find("\n", position) + 1 or len(script) + 1) - 1
            elif part["gap"] or part["end"]:
                if word:
                    words.append("".join(word))
                    word = []
                if part["end"] and words:
                    yield words
                    words = []
            elif part["variable"]:
                # Without quotes, a value is split into words.
                value = self._value(part)
                first, *others = (value.split() if part["call"] is None else [value]) or [""]
                word += [first] if first else []
                for other in others:
                    words.append("".join(word))
                    word = [other]
            elif part["double"] is not None:
                word.append(self.expanded(part["double"]))
            else:
                as_written = (part["single"], part["escaped"], part["comment"], part["plain"])
                word.append(next(each for each in as_written if each is not None))
        if word:
            words.append("".join(word))
        if words:
            yield words
