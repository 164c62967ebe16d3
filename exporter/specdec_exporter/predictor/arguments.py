"""The arguments of vLLM's server: words in, arguments by their names out. Pure.

The spellings are those of vLLM's own parser (``utils/argparse_utils.py``, read in 0.33.0): ``--a-b`` and ``--a_b``,
``--a=b``, short names, beginnings of names, ``--no-x`` for a switch, JSON, and single keys of JSON:
``--speculative-config.method eagle3``. These replace a JSON value of the same argument. The arguments in the file of
``--config FILE`` come before those of the command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from specdec_exporter.bounds import COMMAND_CHARACTERS
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.facts.deployment import (
    ARGUMENT_TYPES,
    KEPT_ARGUMENTS,
    KNOWN_ARGUMENTS,
    Deployment,
    given_twice,
    lacks_drafter,
    of_arguments,
)
from specdec_exporter.predictor.versions import Release

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
_UNKNOWN: Final = re.compile(r"\$[\w{(@*]|`|\{\{")  # a variable or a template that nobody filled in
# Arguments are read by any beginning that no other has. Those of older releases are known by their whole names only.
_ABBREVIATED: Final = KNOWN_ARGUMENTS - {
    *("speculative_model", "speculative_model_quantization", "num_speculative_tokens", "guided_decoding_backend"),
}
# Words that nobody could read, each of which may ask for speculation.
ANY_ARGUMENTS: Final = "arguments"
_CONFIG_FILE: Final = "config"
CONFIG_ENDINGS: Final = (".yaml", ".yml")
_MOST_KEYS: Final = 8  # inside each other

# Returns the settings in the file of ``--config``, or ``None`` if it cannot be read here.
ConfigFile = Callable[[str], Mapping[Any, Any] | None]


class ServerCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What a command gives vLLM. Values are kept of :data:`KEPT_ARGUMENTS` only, of all others the names.

    ``problems``: in words, why vLLM cannot read an argument. ``ignored``: in words, what it passes over in silence.
    ``unread``: arguments whose values depend on a variable or a template, or stand in a file (``config``).
    ``image_release``: by the tag of vLLM's image. ``is_vllms_own``: vLLM's own program reads the arguments, and not
    one that may have more of them.
    """

    arguments: dict[str, Any] = {}
    environment: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    image_release: Release | None = None
    is_vllms_own: bool = False

    def deployment(self) -> Deployment:
        """Return what it says of the deployment."""
        engine = {"0": "v0", "1": "v1"}.get(self.environment.get("VLLM_USE_V1", ""))
        second_runner = {"0": False, "1": True}.get(self.environment.get("VLLM_USE_V2_MODEL_RUNNER", ""))
        deployment = of_arguments(self.arguments)
        hidden = not deployment.speculative and bool({ANY_ARGUMENTS, _CONFIG_FILE}.intersection(self.unread))
        return msgspec.structs.replace(
            deployment,
            speculative=None if hidden else deployment.speculative,
            release=self.image_release,
            engine_generation=engine,
            second_runner=second_runner,
        )


def no_file(_: str) -> None:
    """Read no file of ``--config``: it is another machine's."""


def read_words(
    words: Sequence[str],
    environment: dict[str, str] | None = None,
    *,
    image_release: Release | None = None,
    is_vllms_own: bool = False,
    config_file: ConfigFile = no_file,
) -> ServerCommand:
    """Read arguments that are separate words. Raises ConfigError if they are too long."""
    if sum(map(len, words)) > COMMAND_CHARACTERS:
        raise ConfigError(f"the command: expected at most {COMMAND_CHARACTERS} characters, found more")
    reader = _Reader(config_file)
    reader.read(words)
    if lacks_drafter(reader.arguments) and not reader.unread:
        reader.problems.append("num_speculative_tokens is given without a method and a draft model")
    return ServerCommand(
        arguments=reader.arguments,
        environment=environment or {},
        problems=(*given_twice(reader.arguments), *reader.problems),
        ignored=tuple(reader.ignored),
        unread=tuple(reader.unread),
        image_release=image_release,
        is_vllms_own=is_vllms_own,
    )


class _Reader:
    """Arguments while they are being read."""

    def __init__(self, config_file: ConfigFile) -> None:
        self.arguments: dict[str, Any] = {}
        self.problems: list[str] = []
        self.ignored: list[str] = []
        self.unread: list[str] = []
        # Of JSON arguments, given one by one. vLLM does not join those under the short name and those under the long.
        self._keys: dict[tuple[str, bool], dict[str, Any]] = {}
        self._config_file = config_file

    def read(self, words: Sequence[str]) -> None:
        rest = list(reversed(words))
        if words[:1] == ["serve"]:
            rest.pop()
        files = [index for index, word in enumerate(words[:-1]) if word == f"--{_CONFIG_FILE}"]
        if len(files) > 1:
            self.problems.append("--config is given twice: vLLM reads one file")
        for index in files[:1]:
            self._file(words[index + 1])
        model_of_file = self.arguments.pop("model", None)
        self._words(rest)
        if model_of_file is not None:
            self.arguments.setdefault("model", model_of_file)
        for (name, _), keys in self._keys.items():
            if self.arguments.get(name):
                flag = _flag(name)
                self.ignored.append(f"{flag}.{next(iter(keys))} replaces all that {flag} itself gives")
            self.arguments[name] = keys

    def _words(self, rest: list[str]) -> None:
        while rest:
            word = rest.pop()
            if is_option(word):
                self._option(word, rest)
                continue
            self.arguments.setdefault("model", word)
            if _UNKNOWN.search(word):
                self.unread.append(ANY_ARGUMENTS)

    def _file(self, path: str) -> None:
        """Read the arguments in a file, as vLLM does: each key is one, before those of the command."""
        if _UNKNOWN.search(path):
            self.unread.append(_CONFIG_FILE)
        elif not path.endswith(CONFIG_ENDINGS):
            self.problems.append("--config: vLLM reads only a file whose name ends in .yaml or .yml")
        elif (settings := self._config_file(path)) is None:
            self.unread.append(_CONFIG_FILE)
        else:
            self._words(list(reversed(words_of(settings))))

    def _option(self, word: str, rest: list[str]) -> None:
        text, equals, value = word.partition("=")
        dashes = text.lstrip("-")
        head, *path = dashes.split(".")
        is_short = text == f"-{dashes}"
        name = _SHORT.get(head, head) if is_short else _whole_name(head.replace("-", "_"))
        if name.startswith("no_") and name.removeprefix("no_") in ARGUMENT_TYPES:
            self.arguments[name.removeprefix("no_")] = False
            return
        if path:
            self._key((name, is_short), path, value if equals else rest.pop() if rest else "")
            return
        self.arguments[name] = self._value(name, value if equals else _following(name, rest))
        if name not in {*KEPT_ARGUMENTS, _CONFIG_FILE} and not equals and not _is_switch(name):
            while rest and not is_option(rest[-1]):  # such as the second of several served names
                rest.pop()
        if name == _CONFIG_FILE and equals:
            self.ignored.append("vLLM never reads the file of --config=FILE: write --config FILE, as two words")

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
            unknown = {key for key, each in found.items() if isinstance(each, str) and _UNKNOWN.search(each)}
            self.unread += [name] if unknown else []
            return {key: None if key in unknown else each for key, each in found.items()}
        self.problems.append(f"{_flag(name)} is not a JSON object: {problem}")
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


def words_of(settings: Mapping[Any, Any]) -> list[str]:
    """Return settings by name as the words that give them, as vLLM makes them of the file of ``--config``."""
    words: list[str] = []
    for key, value in settings.items():
        if value is None:
            continue
        if value is False:
            words.append(f"--no-{key}")  # before 0.28.0 vLLM passed over it
        elif isinstance(value, Mapping | list):
            words.append(f"--{key}={json.dumps(value)}")
        else:
            words.append(f"--{key}={'true' if value is True else value}")
    return words


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _whole_name(name: str) -> str:
    """Return the argument that a name begins, where only one does."""
    if name in ARGUMENT_TYPES:
        return name
    names = [whole for whole in _ABBREVIATED if whole.startswith(name)]
    return names[0] if len(names) == 1 else name


def names_argument(word: str) -> bool:
    """Whether a word is an option that vLLM's server has, of those whose values are kept."""
    head = re.split(r"[.=]", word.lstrip("-"), maxsplit=1)[0]
    if word.startswith("--"):
        return head.replace("-", "_") in ARGUMENT_TYPES
    return is_option(word) and head in _SHORT


def _is_switch(name: str) -> bool:
    if name in ARGUMENT_TYPES:
        return ARGUMENT_TYPES[name] is bool
    return name in _SWITCHES or _SWITCH_NAME.match(name) is not None


def _following(name: str, rest: list[str]) -> str:
    """Take the value of an argument from the words after it; a switch may stand alone."""
    if not rest or is_option(rest[-1]) or (_is_switch(name) and rest[-1].lower() not in ("true", "false")):
        return "true"
    return rest.pop()


def is_option(word: str) -> bool:
    """Whether a word is an option, and no number."""
    return len(word) > 1 and word.startswith("-") and _NUMBER.fullmatch(word) is None
