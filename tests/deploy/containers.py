"""The services of compose.yaml without containers: their mounts as links, their commands with paths into those."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.manifests import COMPOSE, read
from support.fieldtools import ROOT

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """One volume of a service, in the short syntax, with the variables' defaults."""

    source: str
    target: str
    read_only: bool
    chosen: bool  # by a variable: the user's

    @property
    def host(self) -> Path | None:
        """Where it is on the host; ``None`` for a named volume."""
        return (COMPOSE / self.source).resolve() if self.source.startswith((".", "/")) else None


def document() -> Any:
    """compose.yaml; the caller's own to change."""
    return read(COMPOSE / "compose.yaml")


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = document()["services"]
    return found


def with_defaults(text: str) -> str:
    """A text of compose.yaml where no variable is set."""
    return _VARIABLE.sub(lambda match: match[2], text)


def environment(service: str) -> dict[str, str]:
    return {name: with_defaults(value) for name, value in services()[service].get("environment", {}).items()}


def mounts(service: str) -> list[Mount]:
    found = []
    for text in services()[service].get("volumes", []):
        source, target, *mode = with_defaults(text).split(":")
        found.append(Mount(source, target, mode == ["ro"], text.startswith("${")))
    return found


def filesystem(service: str, root: Path) -> Path:
    """Make what a service finds mounted below ``root``: links to the repository, directories for the rest."""
    for mount in mounts(service):
        place = root / mount.target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if mount.host is not None and mount.host.is_relative_to(ROOT) and mount.host.exists():
            place.symlink_to(mount.host)
        else:
            place.mkdir(exist_ok=True)
    return root


def command(service: str, root: Path, replaced: Mapping[str, str]) -> list[str]:
    """Arguments of a service, with paths below ``root`` and the values of flags in ``replaced`` changed."""
    arguments = []
    for argument in services()[service]["command"]:
        flag, equals, value = argument.partition("=")
        if value.startswith("/"):
            value = f"{root}{value}"
        arguments.append(flag + equals + replaced.get(flag, value))
    return arguments
