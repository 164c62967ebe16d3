"""Manifests: the servers of vLLM in them, with the arguments that each gets. Pure.

Whatever the kind, a server is a mapping with vLLM's command line (``command``, ``args``, ``entrypoint``,
``extraArgs``), a container with its image, arguments by their names (``engine_kwargs`` of Ray, ``vllm`` of KAITO,
Helm's ``vllmConfig``), or a text that has one of these. So is the ``model`` of a KServe InferenceService, whose image
is its runtime's.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from specdec_exporter.bounds import COMMAND_CHARACTERS, MANIFEST_DOCUMENTS, MANIFEST_LEVELS
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.arguments import ANY_ARGUMENTS, CONFIG_ENDINGS, ServerCommand, read_words, words_of
from specdec_exporter.predictor.facts.deployment import KNOWN_ARGUMENTS, SPECULATIVE_ARGUMENTS
from specdec_exporter.predictor.servercommand import (
    environment_of,
    read_command,
    release_of_image,
    server_words,
    split_commands,
    starts_vllm_itself,
)
from specdec_exporter.yamlfile import parse_yaml

_DOCUMENT: Final = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_SHELLS: Final = frozenset({"bash", "sh", "dash", "ash"})
_SCRIPT: Final = re.compile(r"-[a-z]*c")
_VARIABLE: Final = re.compile(r"\$\((\w+)\)")  # the kubelet fills it in
_EXTRA_ARGUMENTS: Final = "VLLM_ADDITIONAL_ARGS"  # of an LLMInferenceService, whose template has the command
_PARALLELISM: Final = ("tensor", "data", "pipeline")
_LLM_SERVICE: Final = "LLMInferenceService"
_WORDS: Final = ("entrypoint", "command", "args", "extraArgs")
# Keys whose mappings have arguments by name, in the spelling of _snake.
_SETTINGS: Final = frozenset({"engine_kwargs", "engine_args", "vllm", "vllm_config"})
# Keys that start no server: annotations may repeat the whole manifest, and a speculator is part of its service.
_SKIPPED: Final = frozenset({"metadata", "status", "initContainers", "speculator"})
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_Map = Mapping[Any, Any]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server of vLLM in a manifest. ``name``: kind, name and container, or the keys that lead to it."""

    name: str
    command: ServerCommand


class _Place(NamedTuple):
    """Where something stands: the keys that lead to it, and the mappings that it is in.

    ``files``: those of the manifest that a command may read, by their names.
    """

    kind: str
    files: Mapping[str, str]
    path: tuple[str, ...] = ()
    owners: tuple[_Map, ...] = ()

    def config_file(self, path: str) -> _Map | None:
        """Return the settings in the file of ``--config``, if the manifest has it. Raises ConfigError for no YAML."""
        name = path.rpartition("/")[2]
        return _map(parse_yaml(self.files[name].encode(), name, ConfigError)) if name in self.files else None


def read_manifest(content: bytes, name: str) -> tuple[Server, ...]:
    """Return the servers of vLLM in a manifest of one or several documents.

    Raises ConfigError if it is no YAML or too large, and if there is no such server.
    """
    edges = [0, *(match.end() for match in _DOCUMENT.finditer(content)), len(content) + len(b"---")]
    if len(edges) > MANIFEST_DOCUMENTS:
        raise ConfigError(f"{name}: expected at most {MANIFEST_DOCUMENTS} documents, found more")
    resources: list[_Map] = []
    for start, end in pairwise(edges):
        lines = b"\n" * content.count(b"\n", 0, start)  # so that errors name the right line
        if (document := content[start : end - len(b"---")]).strip():
            resources += _resources(parse_yaml(lines + document, name, ConfigError, levels=MANIFEST_LEVELS))
    files = dict(_files(resources, content))
    servers = tuple(server for resource in resources for server in _servers_of(resource, files))
    if not servers:
        raise ConfigError(f"{name}: expected a container that starts vLLM, or has its image, found none")
    return servers


def _resources(document: Any) -> Iterator[_Map]:
    """Yield the resource of a document, or all resources of a ``List``."""
    if items := _list(_map(document).get("items")):
        for item in items:
            yield from _resources(item)
    else:
        yield _map(document)


def _files(resources: Sequence[_Map], content: bytes) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files in ConfigMaps that a path of the manifest ends with."""
    for resource in resources:
        data = _map(resource.get("data")) if resource.get("kind") == "ConfigMap" else {}
        for key, text in data.items():
            if isinstance(text, str) and key.endswith(CONFIG_ENDINGS) and f"/{key}".encode() in content:
                yield key, text


def _servers_of(resource: _Map, files: Mapping[str, str]) -> Iterator[Server]:
    kind, name = _text(resource.get("kind")), _text(_map(resource.get("metadata")).get("name"))
    servers = list(_servers(resource, _Place(kind or "", files)))
    spec = _map(resource.get("spec"))
    if kind == _LLM_SERVICE and not servers and not _map(spec.get("template")).get("containers"):  # a preset has them
        servers = [Server(name="", command=_completed(ServerCommand(), _Place(kind, files, ("spec",), (spec,))))]
    for server in servers:
        title = " ".join(filter(None, (kind, name)))
        yield msgspec.structs.replace(server, name=", ".join(filter(None, (title, server.name))) or "?")


def _servers(node: Any, place: _Place) -> Iterator[Server]:
    if isinstance(node, str):
        yield from _of_text(node, place)
    for item in _list(node):
        yield from _servers(item, place)
    if not _map(node):
        return
    if (command := _command(node, place)) is not None:
        inside = place._replace(owners=(*place.owners, node))
        yield Server(name=_part(node, place), command=_completed(command, inside))
        return
    for key, value in node.items():
        if key not in _SKIPPED and not (place.kind == "ConfigMap" and key in place.files):
            inside = place._replace(path=(*place.path, str(key)), owners=(*place.owners, node))
            yield from _servers(value, inside)


def _part(node: _Map, place: _Place) -> str:
    """Name a server within its resource."""
    if place.path[-1:] == ("containers",):
        part = _text(node.get("name"))
        return f"container {part}" if part else ""
    return "" if _is_kserve_model(place) else ".".join(place.path)


def _of_text(text: str, place: _Place) -> Iterator[Server]:
    """Yield the servers of a text: a script, or YAML such as Ray's ``serveConfigV2``. Most texts have none."""
    if not re.search("vllm|engine_kwargs|speculative", text):
        return
    with contextlib.suppress(ConfigError):
        if any(len(words) > 1 and server_words(words) is not None for words in split_commands(text)):
            yield Server(name=".".join(place.path), command=_completed(read_command(text, place.config_file), place))
            return
    if "\n" in text:
        with contextlib.suppress(ConfigError):
            yield from _servers(_map(parse_yaml(text.encode(), "", ConfigError, levels=MANIFEST_LEVELS)), place)


def _command(node: _Map, place: _Place) -> ServerCommand | None:
    """Return what a mapping gives vLLM; ``None`` if it does not start it."""
    variables = _variables(node)
    words = _words(node, variables)
    if words and words[0].rpartition("/")[2] in _SHELLS:
        command = _of_script(words, place)
    elif place.kind == _LLM_SERVICE and _EXTRA_ARGUMENTS in variables:
        command = read_command(f"vllm serve {variables[_EXTRA_ARGUMENTS]}", place.config_file)
    else:
        given = server_words(words)
        if given is None and _is_vllm(node, place, words):
            given = words
        if given is None and (settings := _settings(node, place)):
            given = [*words_of(settings), *words]
        command = (
            None
            if given is None
            else read_words(given, is_vllms_own=starts_vllm_itself(words), config_file=place.config_file)
        )
    if command is None:
        return None
    environment = environment_of(f"{name}={value}" for name, value in variables.items())
    return msgspec.structs.replace(command, environment={**environment, **command.environment})


def _completed(command: ServerCommand, place: _Place) -> ServerCommand:
    """Add what the mappings around a command give it: model, parallelism, speculator, and the image's release."""
    given: dict[str, Any] = {}
    speculator: dict[str, Any] = {}
    unread = command.unread
    for owner in place.owners:
        given |= _given_by(owner)
        if "prefill" not in place.path:  # of KServe's two halves, only decode pods draft
            speculator |= _speculator(_map(owner.get("speculator")))
        if _hides_arguments(owner):
            unread = (*unread, ANY_ARGUMENTS)
    images = [_image(owner) for owner in reversed(place.owners)]
    return msgspec.structs.replace(
        command,
        arguments={**given, **command.arguments, **speculator},
        unread=unread,
        image_release=command.image_release or release_of_image(images),
    )


def _words(node: _Map, variables: Mapping[str, str]) -> list[str]:
    words = [word for key in _WORDS for word in _split(node.get(key))]
    if sum(len(variables.get(name, "")) for word in words for name in _VARIABLE.findall(word)) > COMMAND_CHARACTERS:
        raise ConfigError(f"the command: its variables stand for more than {COMMAND_CHARACTERS} characters")
    return [_VARIABLE.sub(lambda name: variables.get(name[1], name[0]), word) for word in words]


def _split(node: Any) -> list[str]:
    """Return words as a list has them; a text, as of Docker Compose, is split as a shell does."""
    if isinstance(node, str):
        return [word for words in split_commands(node) for word in words]
    return [_text(item) or "" for item in _list(node)]


def _variables(node: _Map) -> dict[str, str]:
    """Return the variables whose values stand in the manifest."""
    given = [(_text(each.get("name")), _text(each.get("value"))) for each in map(_map, _list(node.get("env")))]
    return {name: value for name, value in given if name and value is not None}


def _hides_arguments(node: _Map) -> bool:
    """Whether some arguments stand elsewhere: in a preset, in a runtime, or behind a reference."""
    variables = map(_map, _list(node.get("env")))
    is_preset = "baseRefs" in node or ("runtime" in node and "command" not in node)
    return is_preset or any(each.get("name") == _EXTRA_ARGUMENTS and "valueFrom" in each for each in variables)


def _of_script(words: Sequence[str], place: _Place) -> ServerCommand | None:
    """Return what the script of ``bash -c SCRIPT`` gives vLLM; ``None`` if it does not start it."""
    script = next((index for index, word in enumerate(words) if index and _SCRIPT.fullmatch(word)), len(words))
    text = "".join(words[script + 1 : script + 2])
    starts = any(server_words(command) is not None for command in split_commands(text))
    return read_command(text, place.config_file) if starts else None


def _is_vllm(node: _Map, place: _Place, words: Sequence[str]) -> bool:
    """Whether a container without vLLM's command runs it: by its image, or by KServe's runtime or preset.

    Prefill pods of a preset draft nothing: without arguments they do not count.
    """
    image = _image(node)
    is_container = place.path[-1:] == ("containers",)
    is_started = bool(words) or is_container or place.path[-2:-1] == ("services",)  # these of Docker Compose
    if _is_kserve_model(place) or ("vllm" in image.rpartition("/")[2] and is_started):
        return True
    is_main = place.kind == _LLM_SERVICE and is_container and node.get("name") == "main"
    return is_main and (not image or "llm-d" in image) and ("prefill" not in place.path or bool(words))


def _is_kserve_model(place: _Place) -> bool:
    return place.path[-1:] == ("model",) and "predictor" in place.path


def _settings(node: _Map, place: _Place) -> dict[str, Any]:
    """Return the arguments that a mapping has by their names; empty for mappings of other things."""
    settings = {_snake(str(key)): value for key, value in node.items() if key not in _WORDS}
    is_meant = place.path[-1:] and _snake(place.path[-1]) in _SETTINGS
    if not (is_meant and KNOWN_ARGUMENTS.intersection(settings)) and not SPECULATIVE_ARGUMENTS.intersection(settings):
        return {}
    return settings


def _snake(name: str) -> str:
    return _CAMEL.sub("_", name).lower().replace("-", "_")


def _image(node: _Map) -> str:
    """Return the image of a container, or of Helm's values."""
    parts = _map(node.get("image")) or node
    repository, tag = _text(parts.get("repository")), _text(parts.get("tag"))
    return _text(node.get("image")) or (f"{repository}:{tag}" if repository and tag else "")


def _given_by(owner: _Map) -> dict[str, Any]:
    """Return what a controller adds by itself: the model, by the name or URI it is fetched from, and its GPUs."""
    loading = _map(owner.get("model_loading_config"))  # of Ray
    uri = _text(owner.get("storageUri")) or _text(_map(owner.get("model")).get("uri")) or _text(owner.get("modelURL"))
    uri = uri or _text(loading.get("model_source")) or _text(loading.get("model_id"))
    given: dict[str, Any] = {"model": uri} if uri else {}
    for key in _PARALLELISM:
        number = _text(_map(owner.get("parallelism")).get(key)) or ""
        if number.isdecimal() and len(number) < 10:
            given[f"{key}_parallel_size"] = int(number)
    return given


def _speculator(speculator: _Map) -> dict[str, Any]:
    """Return the speculative configuration that KServe makes of ``speculator``."""
    config = {str(key): value for key, value in _map(speculator.get("config")).items()}
    if uri := _text(_map(speculator.get("model")).get("uri")):
        config["model"] = uri
    return {"speculative_config": config} if config else {}


def _map(node: Any) -> _Map:
    return node if isinstance(node, Mapping) else {}


def _list(node: Any) -> Sequence[Any]:
    return node if isinstance(node, list) else ()


def _text(node: Any) -> str | None:
    """Return a scalar as it was written, but for booleans, which no container may have as an argument."""
    if isinstance(node, bool) or not isinstance(node, str | int | float):
        return None
    return str(node)
