"""vLLM's command line: text in, arguments by their names out. Pure; nothing is run.

``compare`` reads the command of a baseline with it, ``doctor`` what a person gives it. Of a shell's language it knows
words, quotes and comments. A value that depends on a variable is not known.

The spellings are those of vLLM's own parser (``utils/argparse_utils.py``, read in 0.32.0): ``--a-b`` and ``--a_b``,
``--a=b``, short names, ``--no-x`` for a switch, JSON, and single keys of JSON: ``--speculative-config.method eagle3``.
These replace a JSON value of the same argument.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from specdec_exporter.bounds import COMMAND_CHARACTERS
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.facts.deployment import ARGUMENT_TYPES, KEPT_ARGUMENTS, Deployment, of_arguments
from specdec_exporter.predictor.versions import Release, parse_release

_SHORT: Final = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "ep": "enable_expert_parallel",
    "sc": "speculative_config",
    "ac": "attention_config",
    "q": "quantization",
    "O": "optimization_level",
}
# Besides enable_x, disable_x and no_x.
_SWITCHES: Final = frozenset({"async_scheduling", "enforce_eager", "trust_remote_code"})
_SWITCH_NAME: Final = re.compile(r"enable_|disable_(?!by_)|no_|use_v2_block_manager")
_NUMBER: Final = re.compile(r"-?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:e-?\d{1,2})?", re.ASCII)
# 1k is 1000, 1K is 1024.
_WHOLE: Final = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?)([kKmMgGtT]?)", re.ASCII)
_FACTORS: Final[dict[str, int]] = {"": 1} | {
    letter: int(base**power)
    for base, letters in ((1000, "kmgt"), (1024, "KMGT"))
    for power, letter in enumerate(letters, start=1)
}
_UNKNOWN: Final = re.compile(r"\$\{?\w|\$\(|\{\{")  # a variable or a template that nobody filled in
_IMAGE: Final = re.compile(r"(?:[\w.:-]+/)*(?:vllm/[\w.-]+|vllm-openai[\w.-]*):v?(?P<tag>[\w.-]+)(?:@\S*)?", re.ASCII)
_PROGRAM: Final = re.compile(r"(?:.*/)?(?:python[\d.]*|(?:ba|da)?sh|docker|podman|kubectl|uv|torchrun|.*\.(?:sh|py))")
_MOST_KEYS: Final = 8  # inside each other
_ENVIRONMENT: Final = frozenset({"VLLM_USE_V1", "VLLM_USE_V2_MODEL_RUNNER"})
_ENDS: Final = frozenset(";&|\n")  # of a command


class ServerCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What a command gives vLLM. Values are kept of :data:`KEPT_ARGUMENTS` only, of all others the names.

    ``problems``: in words, why vLLM cannot read an argument. ``unread``: arguments whose values depend on a variable or
    a template, or stand in a file (``config``). ``image_release``: by the tag of vLLM's image.
    """

    arguments: dict[str, Any] = {}
    environment: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    image_release: Release | None = None

    def deployment(self) -> Deployment:
        """Return what it says of the deployment."""
        engine = {"0": "v0", "1": "v1"}.get(self.environment.get("VLLM_USE_V1", ""))
        second_runner = {"0": False, "1": True}.get(self.environment.get("VLLM_USE_V2_MODEL_RUNNER", ""))
        return msgspec.structs.replace(
            of_arguments(self.arguments),
            release=self.image_release,
            engine_generation=engine,
            second_runner=second_runner,
        )


def read_command(text: str) -> ServerCommand:
    """Read a command, a script that has one, or only arguments.

    Raises ConfigError if no part of it can be arguments of vLLM, for an open quotation, and for a text that is too
    long.
    """
    commands = list(split_commands(text))
    environment = environment_of(word for words in commands for word in words)
    for words in commands:
        if (found := server_words(words)) is not None:
            return read_words(found, environment, image_release=release_of_image(words))
    first = commands[0] if commands else []
    if first and _PROGRAM.fullmatch(first[0]):
        first = first[next((index for index, word in enumerate(first) if _is_option(word)), len(first)) :]
    if not first:
        raise ConfigError("the command: expected `vllm serve MODEL ...`, or arguments of it, found neither")
    return read_words(first, environment)


def split_commands(text: str) -> Iterator[list[str]]:
    """Yield the commands of a text as words. Raises ConfigError for an open quotation and a text that is too long."""
    if len(text) > COMMAND_CHARACTERS:
        raise ConfigError(f"the command: expected at most {COMMAND_CHARACTERS} characters, found {len(text)}")
    reader = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="".join(_ENDS))
    reader.whitespace = " \t\r"
    reader.whitespace_split = True
    words: list[str] = []
    try:
        for word in reader:
            if not word or not _ENDS.issuperset(word):
                words.append(word)
            elif words:
                yield words
                words = []
    except ValueError as error:
        raise ConfigError(f"the command: {error}") from error
    if words:
        yield words


def environment_of(assignments: Iterable[str]) -> dict[str, str]:
    """Return the variables that vLLM reads, of words such as ``VLLM_USE_V1=0``."""
    pairs = (word.partition("=") for word in assignments)
    return {name: value for name, _, value in pairs if name in _ENVIRONMENT}


def server_words(words: Sequence[str]) -> Sequence[str] | None:
    """Return the arguments of the vLLM server that a command starts; ``None`` if it starts none."""
    for index, word in enumerate(words):
        before = words[index - 1].rpartition("/")[2] if index else ""
        if word == "serve" and before in ("vllm", "vllm.entrypoints.cli.main"):
            return words[index + 1 :]
        if re.search(r"vllm[./]entrypoints[./]\S*server(?:\.py)?$", word) or _IMAGE.fullmatch(word):
            return words[index + 1 :]
    return None


def release_of_image(words: Iterable[str]) -> Release | None:
    """Return the release that the tag of vLLM's own image names."""
    tags = (image["tag"] for word in words if (image := _IMAGE.fullmatch(word)))
    return next(filter(None, map(parse_release, tags)), None)


def read_words(
    words: Sequence[str], environment: dict[str, str] | None = None, *, image_release: Release | None = None
) -> ServerCommand:
    """Read arguments that are separate words. Raises ConfigError if they are too long."""
    if sum(map(len, words)) > COMMAND_CHARACTERS:
        raise ConfigError(f"the command: expected at most {COMMAND_CHARACTERS} characters, found more")
    reader = _Reader()
    reader.read(words)
    return ServerCommand(
        arguments=reader.arguments,
        environment=environment or {},
        problems=tuple(reader.problems),
        unread=tuple(reader.unread),
        image_release=image_release,
    )


class _Reader:
    """Arguments while they are being read."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.problems: list[str] = []
        self.unread: list[str] = []
        # Of JSON arguments, given one by one. vLLM does not join those under the short name and those under the long.
        self._keys: dict[tuple[str, bool], dict[str, Any]] = {}

    def read(self, words: Sequence[str]) -> None:
        rest = list(reversed(words))
        if words[:1] == ["serve"]:
            rest.pop()
        while rest:
            word = rest.pop()
            if _is_option(word):
                self._option(word, rest)
            else:
                self.arguments.setdefault("model", word)
        for (name, _), keys in self._keys.items():
            self.arguments[name] = keys

    def _option(self, word: str, rest: list[str]) -> None:
        text, equals, value = word.partition("=")
        dashes = text.lstrip("-")
        head, *path = dashes.split(".")
        is_short = text == f"-{dashes}"
        name = _SHORT.get(head, head) if is_short else head.replace("-", "_")
        if name.startswith("no_") and name.removeprefix("no_") in ARGUMENT_TYPES:
            self.arguments[name.removeprefix("no_")] = False
            return
        if path:
            self._key((name, is_short), path, value if equals else rest.pop() if rest else "")
            return
        self.arguments[name] = self._value(name, value if equals else _following(name, rest))
        if name not in KEPT_ARGUMENTS and not equals and not _is_switch(name):
            while rest and not _is_option(rest[-1]):  # such as the second of several served names
                rest.pop()
        if name == "config":
            self.unread.append(name)

    def _value(self, name: str, value: str) -> Any:
        """Return the value of an argument, if it is kept; ``None`` if it cannot be read."""
        kind = ARGUMENT_TYPES.get(name)
        if kind is None:
            return None
        if kind is dict:
            return self._json(name, value)
        if _UNKNOWN.search(value):
            self.unread.append(name)
            return value if kind is str else None
        if kind is bool:
            return {"true": True, "false": False}.get(value.lower())
        if kind is int:
            return _whole(value)
        if kind is float:
            return float(value) if _NUMBER.fullmatch(value) else None
        return value

    def _json(self, name: str, value: str) -> dict[str, Any] | None:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            if _UNKNOWN.search(value):
                self.unread.append(name)
                return None
            found = None
            problem = str(error) if isinstance(error, json.JSONDecodeError) else "a number or its nesting is too long"
        else:
            problem = "expected {...}"
        if isinstance(found, dict):
            return found
        self.problems.append(f"--{name.replace('_', '-')} is not a JSON object: {problem}")
        return None

    def _key(self, argument: tuple[str, bool], path: list[str], value: str) -> None:
        """Take in one key of a JSON argument."""
        if ARGUMENT_TYPES.get(argument[0]) is not dict or len(path) > _MOST_KEYS:
            self.arguments.setdefault(argument[0], None)
            return
        several = path[-1].endswith("+")
        path[-1] = path[-1].removesuffix("+")
        found: Any = value.split(",") if several else _json_or_text(value)
        inner = self._keys.setdefault(argument, {})
        for key in path[:-1]:
            below = inner.get(key)
            inner[key] = inner = below if isinstance(below, dict) else {}
        held = inner.get(path[-1])
        inner[path[-1]] = held + found if isinstance(held, list) and isinstance(found, list) else found


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        number = _whole(value)
        return value if number is None else number


def _whole(value: str) -> int | None:
    if (match := _WHOLE.fullmatch(value)) is None:
        return None
    number, unit = match.groups()
    if "." in number:
        return int(float(number) * _FACTORS[unit]) if unit else None
    return int(number) * _FACTORS[unit]


def _is_switch(name: str) -> bool:
    if name in ARGUMENT_TYPES:
        return ARGUMENT_TYPES[name] is bool
    return name in _SWITCHES or _SWITCH_NAME.match(name) is not None


def _following(name: str, rest: list[str]) -> str:
    """Take the value of an argument from the words after it; a switch may stand alone."""
    if not rest or _is_option(rest[-1]) or (_is_switch(name) and rest[-1].lower() not in ("true", "false")):
        return "true"
    return rest.pop()


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and _NUMBER.fullmatch(word) is None
