"""The tables of flags in ``docs/``, from click's own options and the settings.

``make render`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from generated import filled, table
from specdec_exporter.commands.cli import cli
from specdec_exporter.config import OwnLogSettings, PredictorSettings, Settings, WebSettings

CONFIGURATION = Path("docs") / "configuration.md"

# Flag -> the section or page that says more about it.
_SECTIONS = {
    "--config.file": "#the-file",
    "--web.config.file": "#tls-and-basic-authentication",
    "--web.enable-lifecycle": "#reload",
    "--predictor.log-path": "#the-predictors-log",
    "--predictor.log-source": "#the-log-from-the-kubernetes-api",
    "--baseline.file": "record-and-compare.md",
}
# First part of a flag -> the defaults of its settings.
_SETTINGS: dict[str, msgspec.Struct] = {
    "web": WebSettings(),
    "log": OwnLogSettings(),
    "predictor": PredictorSettings(),
    "baseline": PredictorSettings(),
    "window": Settings(),
}
# Flags whose setting has another name.
_KEYS = {"--baseline.file": "baseline", "--window": "window"}


def configuration_page(page: str) -> str:
    """Return the page with the table of the flags of ``serve``."""
    header = ("Flag", "Default", "Meaning")
    return filled(page, {"flags": table(header, map(_serve_row, _options("serve")))})


def _options(command: str) -> Iterator[click.Option]:
    """The options of a command, ``--help`` among them, in the order of its help."""
    context = click.Context(cli)
    found = cli.get_command(context, command)
    assert found is not None  # noqa: S101  a name in this file
    yield from (option for option in found.get_params(context) if isinstance(option, click.Option))


def _flag(option: click.Option) -> str:
    return max(option.opts, key=len)


def _serve_row(option: click.Option) -> tuple[str, ...]:
    flag = _flag(option)
    meaning = _meaning(option)
    if section := _SECTIONS.get(flag):
        meaning += f" [More]({section})."
    settings = _SETTINGS.get(flag.removeprefix("--").partition(".")[0])
    default = None if settings is None else getattr(settings, _key(flag, settings))
    return (f"`{flag}`", _value(option, default), meaning)


def _key(flag: str, settings: msgspec.Struct) -> str:
    """The field that a flag sets: the rest of its name, in the plural if it can be repeated."""
    name = _KEYS.get(flag) or re.sub(r"[.-]", "_", flag.removeprefix("--").partition(".")[2])
    (key,) = {name, f"{name}s", f"{name}es"} & set(settings.__struct_fields__)
    return key


def _said_default(option: click.Option) -> str:
    """The default that the help text states in brackets, for a setting whose default is worked out."""
    match = re.search(r"\[default: (.*?)\]", option.help or "")
    if match is None:
        return ""
    return match[1] if " " in match[1] else f"`{match[1]}`"


def _meaning(option: click.Option) -> str:
    """The help text without its default, as a sentence, and the choices."""
    text = re.sub(r"\s*\[default: .*?\]", "", option.help or "").strip()
    text = text if text.endswith(".") else f"{text}."
    if isinstance(option.type, click.Choice):
        text += f" One of {', '.join(f'`{choice}`' for choice in option.type.choices)}."
    return text.replace("|", r"\|")


def _value(option: click.Option, default: Any) -> str:
    """A default as one would write it."""
    if option.is_flag:
        return "off"
    if option.type.name == "duration" and isinstance(default, float):
        return f"`{default / 60:g}m`" if default and default % 60 == 0 else f"`{default:g}s`"
    if default is None or default == ():
        return "none"
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{' '.join(default) if isinstance(default, tuple) else default}`"
