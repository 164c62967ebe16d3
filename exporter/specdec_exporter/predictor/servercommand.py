"""The command that starts vLLM's server, in a text: a command line, a script, or only arguments. Pure; nothing is run.

``compare`` reads the command of a baseline with it, ``doctor`` what a person gives it. Of a shell's language it knows
words, quotes and comments. A value that depends on a variable is not known.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from specdec_exporter.bounds import COMMAND_CHARACTERS
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.arguments import (
    ANY_ARGUMENTS,
    ConfigFile,
    ServerCommand,
    is_option,
    names_argument,
    no_file,
    read_words,
)
from specdec_exporter.predictor.versions import Release, parse_release

_IMAGE: Final = re.compile(r"(?:[\w.:-]+/)*(?:vllm/[\w.-]+|vllm-openai[\w.-]*):v?(?P<tag>[\w.-]+)(?:@\S*)?", re.ASCII)
_PROGRAM: Final = re.compile(r"(?:.*/)?(?:python[\d.]*|(?:ba|da)?sh|docker|podman|kubectl|uv|torchrun|.*\.(?:sh|py))")
# Programs that serve, and are not vLLM's: sglang.launch_server, llama-server, text-generation-launcher...
_OTHER_SERVER: Final = re.compile(r"vllm|.*(?:server?|launcher)", re.ASCII)
_ENVIRONMENT: Final = frozenset({"VLLM_USE_V1", "VLLM_USE_V2_MODEL_RUNNER"})
_ENDS: Final = frozenset(";&|\n")  # of a command
_SERVER_MODULE: Final = re.compile(r"vllm[./]entrypoints[./]\S*server(?:\.py)?$", re.ASCII)
_DYNAMO: Final = re.compile(r"dynamo\.vllm(?:\.\w+)?", re.ASCII)  # has vLLM's arguments, and more


def read_command(text: str, config_file: ConfigFile = no_file) -> ServerCommand:
    """Read a command, a script that has one, or only arguments.

    Raises ConfigError if no part of it can be arguments of vLLM, for an open quotation, and for a text that is too
    long.
    """
    commands = list(split_commands(text))
    if not commands:
        raise ConfigError("the command: expected `vllm serve MODEL ...`, or arguments of it, found nothing")
    environment = environment_of(word for words in commands for word in words)
    for words in commands:
        if (found := server_words(words)) is not None:
            return read_words(
                found,
                environment,
                image_release=release_of_image(words),
                is_vllms_own=starts_vllm_itself(words),
                config_file=config_file,
            )
    first = commands[0]
    program, *words = first
    if not _may_be_arguments(first):
        raise ConfigError("the command: expected `vllm serve MODEL ...`, or arguments of it, found neither")
    if not _PROGRAM.fullmatch(program):
        return read_words(first, environment, is_vllms_own=True, config_file=config_file)
    begin = next(index for index, word in enumerate(words) if is_option(word))
    command = read_words(words[begin:], environment, config_file=config_file)
    # A program that is not known may add arguments of its own.
    return msgspec.structs.replace(command, unread=(*command.unread, ANY_ARGUMENTS))


def _may_be_arguments(words: Sequence[str]) -> bool:
    """Whether the words of a command that does not name vLLM can be arguments of it."""
    if not words or words[0].startswith("--"):
        return bool(words)
    begin = next((index for index, word in enumerate(words) if is_option(word)), len(words))
    if _PROGRAM.fullmatch(words[0]):
        is_other = "-m" in words[begin : begin + 1]  # a module that is not vLLM's
    else:
        is_other = words[0] != "serve" and (begin > 1 or _OTHER_SERVER.fullmatch(words[0]) is not None)
    return not is_other and any(map(names_argument, words))


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
        if word == "serve" and before in ("vllm", "vllm-rs", "vllm.entrypoints.cli.main"):
            return words[index + 1 :]
        if _SERVER_MODULE.search(word) or _DYNAMO.fullmatch(word) or _IMAGE.fullmatch(word):
            return words[index + 1 :]
    return None


def starts_vllm_itself(words: Sequence[str]) -> bool:
    """Whether a command starts vLLM's own program, which has no other arguments than vLLM's."""
    return server_words(words) is not None and not any(map(_DYNAMO.fullmatch, words))


def release_of_image(words: Iterable[str]) -> Release | None:
    """Return the release that the tag of vLLM's own image names."""
    tags = (image["tag"] for word in words if (image := _IMAGE.fullmatch(word)))
    return next(filter(None, map(parse_release, tags)), None)
