"""Kubernetes manifests: the servers of vLLM in them, with the arguments that each gets. Pure.

A container counts if it starts vLLM or has vLLM's image; so does the ``model`` of a KServe InferenceService, whose
image is its runtime's. Unknown keys do not matter: any kind with ``containers`` is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import msgspec

from specdec_exporter.bounds import MANIFEST_DOCUMENTS, MANIFEST_LEVELS
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.arguments import (
    ServerCommand,
    read_command,
    read_words,
    release_of_image,
    server_words,
)
from specdec_exporter.predictor.shell import Shell
from specdec_exporter.yamlfile import Node, parse_yaml

_DOCUMENT: Final = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_SHELLS: Final = frozenset({"bash", "sh", "dash", "ash"})
_SCRIPT: Final = re.compile(r"-[a-z]*c")
# KServe fills these in.
_TEMPLATE: Final = re.compile(r'\{\{-?\s*(?:index \.(Annotations|Labels) "([^"{}]*)"|\.(Name|Namespace))\s*-?\}\}')
_EXTRA_ARGUMENTS: Final = "VLLM_ADDITIONAL_ARGS"  # of an LLMInferenceService, whose template has the command
_MODELS: Final = "/mnt/models"  # where KServe mounts what a storageUri names


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server of vLLM in a manifest.

    ``name``: kind, name and container. ``storage``: where it mounts a URI -> the URI. ``both_storages``: it has
    ``storageUri`` and ``storageUris``. ``misplaced_storages``: ``storageUris`` below ``model``. ``gpus``: as many as
    it asks for.
    """

    name: str
    command: ServerCommand
    storage: dict[str, str] = {}
    both_storages: bool = False
    misplaced_storages: bool = False
    gpus: int | None = None

    def source_of(self, path: str) -> str:
        """Return where a path in the container comes from: the URI that is mounted there, or the path itself."""
        mounts = (mount for mount in self.storage if path == mount or path.startswith(f"{mount.rstrip('/')}/"))
        mount = max(mounts, key=len, default=None)
        return path if mount is None else f"{self.storage[mount].rstrip('/')}{path[len(mount.rstrip('/')) :]}"


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
            found += _servers(parse_yaml(lines + document, name, ConfigError, levels=MANIFEST_LEVELS))
    if not found:
        raise ConfigError(f"{name}: expected a container that starts vLLM, or has its image, found none")
    return tuple(found)


def _servers(top: Node) -> Iterator[Server]:
    if top.kind != "map":
        return
    resource = top.entries()
    if (items := resource.get("items")) is not None and items.kind == "seq":  # kind: List
        for item in items.items():
            yield from _servers(item)
        return
    metadata = _Metadata(resource.get("metadata"))
    kind = _text(resource.get("kind")) or "?"
    for owner, container in _containers(top, ()):
        server = _server(container, owner, kind, metadata)
        if server is not None:
            yield server


def _containers(node: Node, owner: tuple[Node, ...]) -> Iterator[tuple[tuple[Node, ...], Node]]:
    """Yield each container, and the ``model`` of an InferenceService, with the mappings that it is in."""
    if node.kind == "seq":
        for item in node.items():
            yield from _containers(item, owner)
    if node.kind != "map":
        return
    inside = (*owner, node)
    for key, value in node.entries().items():
        if key == "containers" and value.kind == "seq":
            yield from ((inside, item) for item in value.items() if item.kind == "map")
        elif key == "model" and value.kind == "map" and "predictor" in node.key:
            yield (*inside, value), value
        else:
            yield from _containers(value, inside)


class _Metadata:
    """Name, labels and annotations, for the templates."""

    def __init__(self, node: Node | None) -> None:
        found = node.entries() if node is not None and node.kind == "map" else {}
        self.name = _text(found.get("name")) or "?"
        self._words = {"Name": self.name, "Namespace": _text(found.get("namespace")) or "default"}
        self._maps = {key: _texts(found.get(key.lower())) for key in ("Annotations", "Labels")}

    def filled(self, text: str) -> str:
        """Return the text with the templates that can be filled in."""

        def value(match: re.Match[str]) -> str:
            where, key, word = match.groups()
            return self._words[word] if word else self._maps[where].get(key, match[0])

        return _TEMPLATE.sub(value, text)


def _server(container: Node, owner: tuple[Node, ...], kind: str, metadata: _Metadata) -> Server | None:
    fields = container.entries()
    environment = {
        name: metadata.filled(value)
        for item in _list(fields.get("env"))
        if item.kind == "map"
        for each in (item.entries(),)
        if (name := _text(each.get("name"))) and (value := _text(each.get("value"))) is not None
    }
    words = [
        metadata.filled(word)
        for key in ("command", "args")
        for item in _list(fields.get(key))
        if (word := item.block()) is not None
    ]
    image = _text(fields.get("image")) or ""
    release = release_of_image((image,))
    is_model = container.key.endswith(".model")
    # KServe's preset has image and command of `main`. Prefill pods draft nothing: without arguments they do not count.
    is_main = kind == "LLMInferenceService" and _text(fields.get("name")) == "main"
    is_main = is_main and (bool(words) or ".prefill." not in container.key) and (not image or "llm-d" in image)
    extra = environment.get(_EXTRA_ARGUMENTS) if kind == "LLMInferenceService" else None
    certain = is_model or is_main or release is not None or _is_vllm(image)
    command = _command(words, environment, certain=certain, extra=extra)
    if command is None:
        return None
    command = msgspec.structs.replace(command, image_release=command.image_release or release)
    storage = _Storage(owner)
    arguments = {**storage.arguments, **command.arguments}
    name = _text(fields.get("name"))
    return Server(
        name=f"{kind} {metadata.name}{f', container {name}' if name else ''}",
        command=msgspec.structs.replace(command, arguments=arguments),
        storage=storage.mounts,
        both_storages=storage.both,
        misplaced_storages=storage.misplaced,
        gpus=_gpus(fields.get("resources")),
    )


def _command(
    words: list[str], environment: Mapping[str, str], *, certain: bool, extra: str | None
) -> ServerCommand | None:
    """Return what a container gives vLLM; ``None`` if it does not start it. ``certain``: it can start nothing else."""
    if words and words[0].rpartition("/")[2] in _SHELLS:
        script = next((index for index, word in enumerate(words) if index and _SCRIPT.fullmatch(word)), None)
        if script is None or script + 1 >= len(words):
            return None
        text = words[script + 1]
        starts = any(server_words(command) is not None for command in Shell(environment).commands(text))
        return read_command(text, environment) if starts else None
    if extra is not None:
        return read_command(f"vllm serve {extra}", environment)
    # The kubelet fills in $(NAME), and no shell does.
    shell = Shell(environment)
    words = [re.sub(r"\$\(\w+\)", lambda match: shell.expanded(match[0]), word) for word in words]
    found = server_words(words)
    if found is None and not certain:
        return None
    return read_words(words if found is None else found, environment)


def _is_vllm(image: str) -> bool:
    return "vllm" in image.rpartition("/")[2]


class _Storage:
    """What KServe mounts, and the arguments that it gives by itself."""

    def __init__(self, owner: tuple[Node, ...]) -> None:
        self.mounts: dict[str, str] = {}
        self.arguments: dict[str, Any] = {}
        self.misplaced = False
        single = multiple = False
        for node in owner:
            fields = node.entries()
            one, several = _text(fields.get("storageUri")), _list(fields.get("storageUris"))
            single, multiple = single or bool(one), multiple or bool(several)
            self.misplaced |= bool(several) and node.key.endswith(".model")
            if one:
                self.mounts[_MODELS] = one
                self.arguments["model"] = _MODELS
            for item in several:
                each = _texts(item)
                self.mounts[each.get("mountPath", _MODELS)] = each.get("uri", "?")
            if (model := fields.get("model")) is not None and (uri := _texts(model).get("uri")):
                self.mounts[_MODELS] = uri  # an LLMInferenceService
                self.arguments["model"] = _MODELS
            for key, value in _texts(fields.get("parallelism")).items():
                if value.isdecimal() and len(value) < 10 and key in ("tensor", "data", "pipeline"):
                    self.arguments[f"{key}_parallel_size"] = int(value)
        self.both = single and multiple


def _gpus(resources: Node | None) -> int | None:
    if resources is None or resources.kind != "map":
        return None
    amounts = (
        value
        for part in resources.entries().values()
        for key, value in _texts(part).items()
        if key.endswith("/gpu") and value.isdecimal() and len(value) < 10
    )
    return max(map(int, amounts), default=None)


def _list(node: Node | None) -> list[Node]:
    return node.items() if node is not None and node.kind == "seq" else []


def _text(node: Node | None) -> str | None:
    return None if node is None else node.block()


def _texts(node: Node | None) -> dict[str, str]:
    if node is None or node.kind != "map":
        return {}
    return {key: text for key, value in node.entries().items() if (text := value.block()) is not None}
