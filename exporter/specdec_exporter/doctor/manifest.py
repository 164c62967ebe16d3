"""Kubernetes manifests: the servers of vLLM in them, with the arguments that each gets. Pure.

A container counts if it starts vLLM or has vLLM's image; so does the ``model`` of a KServe InferenceService, whose
image is its runtime's. Unknown keys do not matter: any kind with ``containers`` is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from specdec_exporter.bounds import COMMAND_CHARACTERS, MANIFEST_DOCUMENTS, MANIFEST_LEVELS
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.arguments import ServerCommand, read_words
from specdec_exporter.predictor.servercommand import (
    environment_of,
    read_command,
    release_of_image,
    server_words,
    split_commands,
)
from specdec_exporter.yamlfile import parse_yaml

_DOCUMENT: Final = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_SHELLS: Final = frozenset({"bash", "sh", "dash", "ash"})
_SCRIPT: Final = re.compile(r"-[a-z]*c")
_VARIABLE: Final = re.compile(r"\$\((\w+)\)")  # the kubelet fills it in
_EXTRA_ARGUMENTS: Final = "VLLM_ADDITIONAL_ARGS"  # of an LLMInferenceService, whose template has the command
_PARALLELISM: Final = ("tensor", "data", "pipeline")

_Map = Mapping[Any, Any]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server of vLLM in a manifest. ``name``: kind, name and container."""

    name: str
    command: ServerCommand


def read_manifest(content: bytes, name: str) -> tuple[Server, ...]:
    """Return the servers of vLLM in a manifest of one or several documents.

    Raises ConfigError if it is no YAML or too large, and if there is no such server.
    """
    edges = [0, *(match.end() for match in _DOCUMENT.finditer(content)), len(content) + len(b"---")]
    if len(edges) > MANIFEST_DOCUMENTS:
        raise ConfigError(f"{name}: expected at most {MANIFEST_DOCUMENTS} documents, found more")
    found: list[Server] = []
    for start, end in pairwise(edges):
        lines = b"\n" * content.count(b"\n", 0, start)  # so that errors name the right line
        if (document := content[start : end - len(b"---")]).strip():
            found += servers_of(parse_yaml(lines + document, name, ConfigError, levels=MANIFEST_LEVELS))
    if not found:
        raise ConfigError(f"{name}: expected a container that starts vLLM, or has its image, found none")
    return tuple(found)


def servers_of(resource: Any) -> Iterator[Server]:
    """Yield the servers of a resource, or of all resources of a ``List``."""
    resource = _map(resource)
    if items := _list(resource.get("items")):
        for item in items:
            yield from servers_of(item)
        return
    kind, name = _text(resource.get("kind")) or "?", _text(_map(resource.get("metadata")).get("name")) or "?"
    for path, owners, container in _containers(resource, (), ()):
        if (command := _command(container, path, kind)) is None:
            continue
        given = {key: value for owner in owners for key, value in _given_by_kserve(owner).items()}
        command = msgspec.structs.replace(command, arguments={**given, **command.arguments})
        part = _text(container.get("name"))
        yield Server(name=f"{kind} {name}{f', container {part}' if part else ''}", command=command)


_Place = tuple[tuple[str, ...], tuple[_Map, ...], _Map]


def _containers(node: Any, path: tuple[str, ...], owners: tuple[_Map, ...]) -> Iterator[_Place]:
    """Yield each container, and the ``model`` of an InferenceService: the keys and mappings it is in, and itself."""
    for item in _list(node):
        yield from _containers(item, path, owners)
    for key, value in _map(node).items():
        inside = (*owners, _map(node))
        if key == "containers":
            yield from ((path, inside, _map(item)) for item in _list(value))
        elif key == "model" and "predictor" in path and _map(value):
            yield (*path, "model"), (*inside, _map(value)), _map(value)
        else:
            yield from _containers(value, (*path, str(key)), inside)


def _command(container: _Map, path: Sequence[str], kind: str) -> ServerCommand | None:
    """Return what a container gives vLLM; ``None`` if it does not start it."""
    variables = _variables(container)
    words = _words(container, variables)
    if words and words[0].rpartition("/")[2] in _SHELLS:
        command = _of_script(words)
    elif kind == "LLMInferenceService" and _EXTRA_ARGUMENTS in variables:
        command = read_command(f"vllm serve {variables[_EXTRA_ARGUMENTS]}")
    else:
        found = server_words(words)
        if found is None and _is_vllm(container, path, kind):
            found = words
        command = None if found is None else read_words(found)
    if command is None:
        return None
    environment = environment_of(f"{name}={value}" for name, value in variables.items())
    return msgspec.structs.replace(
        command,
        image_release=command.image_release or release_of_image((_text(container.get("image")) or "",)),
        environment={**environment, **command.environment},
    )


def _words(container: _Map, variables: Mapping[str, str]) -> list[str]:
    given = [_text(item) or "" for key in ("command", "args") for item in _list(container.get(key))]
    if sum(len(variables.get(name, "")) for word in given for name in _VARIABLE.findall(word)) > COMMAND_CHARACTERS:
        raise ConfigError(f"the command: its variables stand for more than {COMMAND_CHARACTERS} characters")
    return [_VARIABLE.sub(lambda found: variables.get(found[1], found[0]), word) for word in given]


def _variables(container: _Map) -> dict[str, str]:
    """Return the variables whose values stand in the manifest."""
    given = [(_text(each.get("name")), _text(each.get("value"))) for each in map(_map, _list(container.get("env")))]
    return {name: value for name, value in given if name and value is not None}


def _of_script(words: Sequence[str]) -> ServerCommand | None:
    """Return what the script of ``bash -c SCRIPT`` gives vLLM; ``None`` if it does not start it."""
    script = next((index for index, word in enumerate(words) if index and _SCRIPT.fullmatch(word)), len(words))
    text = "".join(words[script + 1 : script + 2])
    starts = any(server_words(command) is not None for command in split_commands(text))
    return read_command(text) if starts else None


def _is_vllm(container: _Map, path: Sequence[str], kind: str) -> bool:
    """Whether a container without vLLM's command runs it: by its image, or by KServe's runtime or preset.

    Prefill pods of a preset draft nothing: without arguments they do not count.
    """
    image = _text(container.get("image")) or ""
    if path[-1:] == ("model",) or "vllm" in image.rpartition("/")[2]:
        return True
    is_main = kind == "LLMInferenceService" and container.get("name") == "main" and (not image or "llm-d" in image)
    return is_main and ("prefill" not in path or bool(container.get("command") or container.get("args")))


def _given_by_kserve(owner: _Map) -> dict[str, Any]:
    """Return the arguments that KServe adds by itself: the model, by the URI it is fetched from, and its GPUs."""
    uri = _text(owner.get("storageUri")) or _text(_map(owner.get("model")).get("uri"))
    found: dict[str, Any] = {"model": uri} if uri else {}
    for key in _PARALLELISM:
        number = _text(_map(owner.get("parallelism")).get(key)) or ""
        if number.isdecimal() and len(number) < 10:
            found[f"{key}_parallel_size"] = int(number)
    return found


def _map(node: Any) -> _Map:
    return node if isinstance(node, Mapping) else {}


def _list(node: Any) -> Sequence[Any]:
    return node if isinstance(node, list) else ()


def _text(node: Any) -> str | None:
    """Return a scalar as it was written, but for booleans, which no container may have as an argument."""
    if isinstance(node, bool) or not isinstance(node, str | int | float):
        return None
    return str(node)
