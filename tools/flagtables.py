"""The tables of flags in ``docs/``, from click's own options and the settings.

``make render`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import msgspec
from msgspec.structs import fields

from markdown import filled, table
from specdec_exporter.commands.cli import cli
from specdec_exporter.config import OwnLogSettings, PredictorSettings, Settings, WebSettings
from specdec_exporter.simulator.scenario import Incident
from specdec_exporter.simulator.settings import LatencyModel, SimulatorSettings

CONFIGURATION = Path("docs") / "configuration.md"
SIMULATOR = Path("docs") / "simulator.md"

# Flag -> the section or page that says more about it.
_SECTIONS = {
    "--config.file": "#the-file",
    "--web.config.file": "#tls-and-basic-authentication",
    "--web.enable-lifecycle": "#reload",
    "--predictor.log-path": "#the-predictors-log",
    "--predictor.log-source": "#the-log-from-the-kubernetes-api",
    "--predictor.log-state": "#the-position-file",
    "--baseline.file": "baselines.md",
}
# First part of a flag -> where its setting is in the file, and the defaults there.
_SETTINGS: dict[str, tuple[str, msgspec.Struct]] = {
    "web": ("web.", WebSettings()),
    "log": ("log.", OwnLogSettings()),
    "predictor": ("predictors[].", PredictorSettings()),
    "baseline": ("predictors[].", PredictorSettings()),
    "window": ("", Settings()),
}
# Flags whose setting has another name.
_KEYS = {"--baseline.file": "baseline", "--window": "window", "--acceptance-rate": "acceptance"}
# Field of the simulator's settings -> where it is in a scenario, and the defaults there.
_SIMULATOR_SETTINGS: dict[str, tuple[str, msgspec.Struct]] = {
    **{name: ("settings.", SimulatorSettings()) for name in SimulatorSettings.__struct_fields__},
    **{name: ("settings.latency.", LatencyModel()) for name in LatencyModel.__struct_fields__},
    "incidents": ("", SimulatorSettings()),
}


def configuration_page(page: str) -> str:
    """Return the page with the table of the flags of ``serve``."""
    header = ("Flag", "Environment", "In the file", "Default", "Meaning")
    return filled(page, {"flags": table(header, map(_serve_row, _options("serve")))})


def simulator_page(page: str) -> str:
    """Return the page with the tables of the flags of ``simulate`` and of the incidents."""
    header = ("Flag", "In the scenario", "Default", "Meaning")
    rows = (_simulate_row(option) for option in _options("simulate") if "--help" not in option.opts)
    incidents = table(("Kind", "Keys", "What happens"), map(_incident_row, get_args(Incident)))
    return filled(page, {"flags": table(header, rows), "incidents": incidents})


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
    environment = f"`{option.envvar}`" if option.envvar else "-"
    meaning = _meaning(option)
    if section := _SECTIONS.get(flag):
        meaning += f" [More]({section})."
    prefix, settings = _SETTINGS.get(flag.removeprefix("--").partition(".")[0], ("", None))
    if settings is None:
        return (f"`{flag}`", environment, "-", _value(option, None), meaning)
    key = _key(flag, settings)
    return (f"`{flag}`", environment, f"`{prefix}{key}`", _value(option, getattr(settings, key)), meaning)


def _key(flag: str, settings: msgspec.Struct) -> str:
    """The field that a flag sets: the rest of its name, in the plural if it can be repeated."""
    name = _KEYS.get(flag) or re.sub(r"[.-]", "_", flag.removeprefix("--").partition(".")[2])
    (key,) = {name, f"{name}s", f"{name}es"} & set(settings.__struct_fields__)
    return key


def _simulate_row(option: click.Option) -> tuple[str, ...]:
    name = _KEYS.get(_flag(option)) or str(option.name)
    prefix, settings = _SIMULATOR_SETTINGS.get(name, ("", None))
    if settings is None:
        return (f"`{_flag(option)}`", "-", "none", _meaning(option))
    default = _said_default(option) or _value(option, getattr(settings, name))
    return (f"`{_flag(option)}`", f"`{prefix}{name}`", default, _meaning(option))


def _incident_row(incident: type[msgspec.Struct]) -> tuple[str, ...]:
    """The keys of one kind beside ``kind``, ``at`` and ``for``, with their choices and defaults."""
    hints = get_type_hints(incident)
    keys = []
    for field in fields(incident):
        if field.name in ("at", "duration"):
            continue
        notes = [f"`{choice}`" for choice in get_args(hints[field.name]) if isinstance(choice, str)]
        notes += [f"default `{field.default:g}`"] if isinstance(field.default, float) else []
        keys.append(f"`{field.encode_name}`" + (f" ({', '.join(notes)})" if notes else ""))
    what = (incident.__doc__ or "").replace("``", "`")
    return (f"`{incident.__struct_config__.tag}`", ", ".join(keys), what)


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
