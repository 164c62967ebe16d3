"""A picture of the speed-up over the load, as SVG or PNG. The only importer of matplotlib.

It reads without colour: lines differ in style and marker too. The same figures give the same bytes.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from specdec_exporter.comparison.tuning import Setting, Tuning
from specdec_exporter.errors import ComparisonError, ConfigError
from specdec_exporter.formatting import plain
from specdec_exporter.speculation.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FORMATS: Final = (".svg", ".png")
# Okabe and Ito's palette, which the colour-blind can tell apart, the darker colours first.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_STYLES: Final = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
_GREY: Final = "#555555"
_HOLLOW: Final = {"linestyle": "", "markerfacecolor": "white"}
_SIZE_INCHES: Final = (7.6, 4.6)
_DPI: Final = 160
_NAME_GAP: Final = 0.055  # between the names of two lines, a share of the height
_NAME_CHARACTERS: Final = 28  # in a row
_ROOM: Final = 0.06  # above and below all that is drawn, a share of the range of speed-ups
_LOAD_ROOM: Final = 2.1  # beside the lowest and the highest load; one load alone shows three ticks
_SETTINGS: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "specdec-exporter",
}


class Line(msgspec.Struct, frozen=True):
    """One recording: pairs of concurrency and speed-up, ascending."""

    label: str
    points: tuple[tuple[float, Estimate], ...]


def check_plot(path: str) -> None:
    """Raise :class:`ConfigError` if no picture can be drawn to ``path``."""
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        raise ConfigError(f"--plot: expected FILE.svg or FILE.png, found {path!r}")
    if target.is_dir() or not target.parent.is_dir():
        raise ConfigError(f"--plot {path}: expected a file in a directory that exists")
    if find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install 'specdec-exporter[plot]'")


def draw_tuning(path: str, tuning: Tuning) -> None:
    """Draw one line for each method and k to ``path``; the suffix says whether it is SVG or PNG.

    Raises :class:`ConfigError` as :func:`check_plot`, or if it cannot be written, and :class:`ComparisonError` if no
    speed-up was measured at any load.
    """
    check_plot(path)
    several = len({setting.workload for setting in tuning.settings}) > 1
    lines = [Line(_label(setting, with_workload=several), _points(setting)) for setting in tuning.settings]
    drawn = [line for line in lines if line.points]
    if not drawn:
        raise ComparisonError(f"{path}: no speed-up at a load that was recorded without speculation too: nothing drawn")
    side = tuning.recordings[0].recording
    _draw(path, f"Speed-up of {side.context.model or side.model_name or 'speculation'} by load", drawn)


def _label(setting: Setting, *, with_workload: bool) -> str:
    words = [setting.method or "unknown method", f"k = {setting.num_speculative_tokens or '?'}"]
    if with_workload:
        words.append(setting.workload or "unknown requests")
    return "\n".join(textwrap.wrap(plain(", ".join(words)), _NAME_CHARACTERS, max_lines=2, placeholder="..."))


def _points(setting: Setting) -> tuple[tuple[float, Estimate], ...]:
    found = [(at.concurrency, at.speedup) for at in setting.by_load or (setting.whole,)]
    return tuple((load, speedup) for load, speedup in found if load and speedup is not None)


def _draw(path: str, title: str, lines: Sequence[Line]) -> None:
    import matplotlib as mpl  # noqa: PLC0415  an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    kind = Path(path).suffix.lower().removeprefix(".")
    picture = io.BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever a matplotlibrc says
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        _fill(figure, title, lines)
        nameless = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(picture, format=kind, dpi=_DPI, metadata=nameless)
    try:
        Path(path).write_bytes(picture.getvalue())
    except OSError as error:
        raise ConfigError(f"--plot {path}: cannot be written: {error.strerror or error}") from error


def _fill(figure: Figure, title: str, lines: Sequence[Line]) -> None:
    axes = figure.add_subplot()
    axes.set_title(plain(title), loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("Requests in decode at a time, per engine (logarithmic)", loc="left")
    axes.set_ylabel("Speed-up over no speculation")
    _scale(axes, lines)
    axes.axhline(1.0, color=_GREY, linewidth=1.0)
    for index, line in enumerate(lines):
        _draw_line(axes, line, index)
    _name_lines(axes, lines)
    figure.text(0.995, 0.005, _caption(lines), ha="right", va="bottom", fontsize=8, color=_GREY)


def _caption(lines: Sequence[Line]) -> str:
    words = "Bands: 95 % intervals."
    return words if all(_with_interval(line) == [*line.points] for line in lines) else f"{words} Hollow: too few data."


def _scale(axes: Axes, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: PLC0415

    axes.set_ylim(*speedups_shown(lines))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    loads = [load for line in lines for load, _ in line.points]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(loads) / _LOAD_ROOM, max(loads) * _LOAD_ROOM)
    axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in range(-3, 13)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def speedups_shown(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the ends of the axis: 1, all speed-ups, and of their intervals what does not flatten the lines."""
    found = [estimate for line in lines for _, estimate in line.points]
    low, high = min(1.0, *(each.value for each in found)), max(1.0, *(each.value for each in found))
    reach = max(high - low, 0.2)
    lows = [max(each.low, low - reach / 2) for each in found if each.low is not None]
    highs = [min(each.high, high + reach / 2) for each in found if each.high is not None]
    room = _ROOM * reach
    return max(min([low, *lows]) - room, 0.0), max([high, *highs]) + room


def _draw_line(axes: Axes, line: Line, index: int) -> None:
    style = look(index)
    known = _with_interval(line)
    if known:
        at, low, high = zip(*((load, found.low, found.high) for load, found in known), strict=True)
        axes.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.vlines(at, low, high, color=style["color"], linewidth=1.0, alpha=0.7)
        axes.plot(at, [found.value for _, found in known], **style)
    rest = [point for point in line.points if point not in known]
    if rest:
        axes.plot(*zip(*((load, found.value) for load, found in rest), strict=True), **{**style, **_HOLLOW})


def _with_interval(line: Line) -> list[tuple[float, Estimate]]:
    return [(load, found) for load, found in line.points if found.low is not None and found.high is not None]


def look(index: int) -> dict[str, Any]:
    """Return how the line of this index is drawn."""
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "linestyle": _STYLES[index % len(_STYLES)],
        "linewidth": 1.8,
        "marker": _MARKERS[index % len(_MARKERS)],
        "markersize": 5.5,
    }


def _name_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Name each line at the height of its right end, beside a piece of it; names that would overlap move apart."""
    bottom, top = axes.get_ylim()
    ends = [(_with_interval(line) or line.points)[-1][1].value for line in lines]
    names = [(end, line.label, look(index)) for index, (end, line) in enumerate(zip(ends, lines, strict=True))]
    names.append((1.0, "no speculation", {"color": _GREY, "linewidth": 1.0}))
    names.sort(key=lambda each: each[:2])
    wanted = [(value - bottom) / (top - bottom) for value, _, _ in names]
    heights = spread(wanted, [_NAME_GAP * (1 + name.count("\n")) for _, name, _ in names])
    for height, (_, name, style) in zip(heights, names, strict=True):
        axes.plot([1.02, 1.06, 1.1], [height] * 3, transform=axes.transAxes, clip_on=False, markevery=[1], **style)
        axes.text(1.12, height, name, transform=axes.transAxes, va="center")


def spread(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Move ascending heights up, and then down from 1, until things of these sizes do not overlap."""
    gaps = [(one + other) / 2 for one, other in pairwise(sizes)]
    up = list(wanted)
    for index, gap in enumerate(gaps):
        up[index + 1] = max(up[index + 1], up[index] + gap)
    down = [*up[:-1], min(up[-1], 1.0)]
    for index, gap in reversed(list(enumerate(gaps))):
        down[index] = min(down[index], down[index + 1] - gap)
    return down
