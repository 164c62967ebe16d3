"""Files of deploy/, read as strictly as those who read them in earnest."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import click
import yaml

from specdec_exporter.commands.serve import command as serve
from support.fieldtools import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose"
KUBERNETES = DEPLOY / "kubernetes"
SERVE_VARIABLES = {
    variable
    for parameter in serve.params
    if isinstance(parameter, click.Option) and isinstance(variable := parameter.envvar, str)
}


class _Strict(yaml.SafeLoader):
    """Refuses a key that stands there twice, of which PyYAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(problem=f"{key!r} twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def parse(text: str) -> list[Any]:
    """The documents of a YAML text. Raises :class:`yaml.YAMLError`."""
    return list(yaml.load_all(text, _Strict))


def read(path: Path) -> Any:
    """The one document of a file."""
    (document,) = parse(path.read_text(encoding="utf-8"))
    return document


def files() -> list[Path]:
    """Every YAML file of the parts that are tested here."""
    return [file for directory in (COMPOSE, KUBERNETES) for file in sorted(directory.rglob("*.yaml"))]
