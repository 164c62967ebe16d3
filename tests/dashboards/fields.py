"""How Grafana shows a value: field configuration of its field, units, mappings, thresholds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dashboards.frames import Cell, Field, Frame
from dashboards.grafana import Json, Panel

# Grafana's names of colours, as its light theme shows them.
COLORS: Mapping[str, str] = {
    "green": "#56a64b",
    "yellow": "#f2cc0c",
    "dark-yellow": "#cc9d00",
    "red": "#e02f44",
    "dark-red": "#ad0317",
    "blue": "#3274d9",
    "light-blue": "#5794f2",
    "orange": "#ff780a",
    "dark-orange": "#e55400",
    "purple": "#a352cc",
    "dark-purple": "#7c2ea3",
    "semi-dark-purple": "#8f3bb8",
    "text": "#24292e",
    "transparent": "#ffffff",
}
PALETTE = ("#56a64b", "#f2cc0c", "#3274d9", "#ff780a", "#e02f44", "#a352cc", "#37872d", "#e0b400", "#1f60c4", "#fa6400")
_SIZES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))


def color(name: str) -> str:
    """A colour that drawing understands; hex codes are themselves."""
    if name.startswith("#"):
        return name[:7]
    if name not in COLORS:
        raise ValueError(f"expected one of Grafana's colours or a hex code, found {name!r}")
    return COLORS[name]


def matches(matcher: Json, frame: Frame, field: Field) -> bool:
    """Whether an override is for the field."""
    wanted = matcher.get("options")
    match matcher["id"]:
        case "byName":
            return wanted in (field.title, field.name)
        case "byRegexp":
            return re.search(str(wanted).strip("/"), field.title) is not None
        case "byFrameRefID":
            return bool(wanted == frame.ref)
        case kind:
            raise ValueError(f"the matcher {kind!r} is not known here")


def configuration(panel: Panel, frame: Frame, field: Field) -> Json:
    """What holds of a field, flat: ``unit``, ``thresholds``, ``custom.lineWidth``."""
    found = {name: value for name, value in panel.defaults.items() if name != "custom"}
    found |= {f"custom.{name}": value for name, value in panel.defaults.get("custom", {}).items()}
    for override in panel.overrides:
        if matches(override["matcher"], frame, field):
            found |= {each["id"]: each.get("value") for each in override["properties"]}
    return found


def name(config: Json, field: Field) -> str:
    """What the field is called in a legend or a header."""
    given = str(config.get("displayName") or field.title)
    return re.sub(r"\$\{__field\.labels\.(\w+)\}", lambda label: field.labels.get(label[1], ""), given)


def mapping(config: Json, value: Cell) -> Json | None:
    """The text and colour that the value is mapped to."""
    plain = f"{value:g}" if isinstance(value, (int, float)) else value
    for each in config.get("mappings", []):
        if each["type"] != "value":
            raise ValueError(f"mappings of type {each['type']!r} are not known here")
        if plain in each["options"]:
            return dict(each["options"][plain])
    return None


def threshold_color(config: Json, value: Cell) -> str | None:
    """The colour of the step that the value has reached."""
    steps = config.get("thresholds", {}).get("steps", [])
    if not isinstance(value, (int, float)) or not steps:
        return None
    reached = [step for step in steps if step.get("value") is None or value >= step["value"]]
    return color(reached[-1]["color"]) if reached else None


def value_color(config: Json, value: Cell) -> str | None:
    """The colour by mapping, fixed colour, or threshold."""
    mapped = mapping(config, value)
    if mapped and mapped.get("color"):
        return color(mapped["color"])
    mode = config.get("color", {})
    if mode.get("mode") == "fixed":
        return color(mode["fixedColor"])
    return threshold_color(config, value)


def shown(config: Json, value: Cell) -> str:
    """The value as text, with its unit."""
    if (mapped := mapping(config, value)) and mapped.get("text"):
        return str(mapped["text"])
    if value is None:
        return str(config.get("noValue", ""))
    if isinstance(value, str):
        return value
    return with_unit(value, config.get("unit", "short"), config.get("decimals"))


def with_unit(value: float, unit: str, decimals: int | None) -> str:
    """A number in Grafana's units; those of no panel that is drawn here are errors."""
    match unit:
        case "percentunit":
            return f"{_digits(value * 100, decimals)}%"
        case "s":
            return _time(value, decimals)
        case "short":
            return _sized(value, decimals)
        case _ if unit.startswith("suffix:"):
            return f"{_digits(value, decimals)} {unit.removeprefix('suffix:')}"
        case _:
            raise ValueError(f"the unit {unit!r} is not known here")


def _digits(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _time(value: float, decimals: int | None) -> str:
    size = abs(value)
    for below, unit, times in ((1e-3, "µs", 1e6), (1, "ms", 1e3), (60, "s", 1), (3600, "min", 1 / 60)):
        if size < below and size:
            return f"{_digits(value * times, decimals)} {unit}"
    if not size:
        return "0 s"
    return f"{_digits(value / 3600, decimals)} h" if size < 86400 else f"{_digits(value / 86400, decimals)} days"


def _sized(value: float, decimals: int | None) -> str:
    for size, suffix in _SIZES:
        if abs(value) >= size:
            return f"{_digits(value / size, decimals)} {suffix}"
    return _digits(value, decimals)


def option(mapped: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """``legend.placement`` of nested options."""
    found: Any = mapped
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return default if found is None else found
