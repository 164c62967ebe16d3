"""A picture of the speed-up over the load, as SVG or PNG. The only importer of matplotlib.

It reads without colour: lines differ in style and marker too. The same figures give the same bytes.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from specdec_exporter.comparison.several import Several
from specdec_exporter.errors import ComparisonError, ConfigError
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.terminal.comparison import describe_speculation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, which the colour-blind can tell apart, the darker colours first.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_STYLES: Final = ("-", "--", "-.", ":")
_SETTINGS: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "svg.hashsalt": "specdec-exporter",
}


def check_plot(path: str) -> None:
    """Raise :class:`ConfigError` if no picture can be drawn to ``path``."""
    target = Path(path)
    if target.suffix.lower() not in (".svg", ".png"):
        raise ConfigError(f"--plot: expected FILE.svg or FILE.png, found {path!r}")
    if target.is_dir() or not target.parent.is_dir():
        raise ConfigError(f"--plot {path}: expected a file in a directory that exists")
    if find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install 'specdec-exporter[plot]'")


def draw(path: str, several: Several) -> None:
    """Draw one line for each recording to ``path``; the suffix says whether it is SVG or PNG.

    Raises :class:`ConfigError` as :func:`check_plot`, or if it cannot be written, and :class:`ComparisonError` if no
    speed-up was measured at any load.
    """
    check_plot(path)
    if not any(load.speedups for load in several.loads if load.compared == "like_load"):
        raise ComparisonError(f"{path}: no speed-up is known at any load: nothing drawn")
    import matplotlib as mpl  # noqa: PLC0415  an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    kind = Path(path).suffix.lower().removeprefix(".")
    picture = io.BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever a matplotlibrc says
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(7.6, 4.6), layout="constrained")
        _fill(figure.add_subplot(), several)
        nameless = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(picture, format=kind, dpi=160, metadata=nameless)
    try:
        Path(path).write_bytes(picture.getvalue())
    except OSError as error:
        raise ConfigError(f"--plot {path}: cannot be written: {error.strerror or error}") from error


def _fill(axes: Axes, several: Several) -> None:
    baseline = several.comparisons[0].baseline.name
    axes.set_xlabel("Requests in decode at a time, per engine (logarithmic)")
    axes.set_ylabel(f"Speed-up over {baseline}, bars: 95 %", parse_math=False)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.axhline(1.0, color="#555555", linewidth=1.0)
    drawn = {}
    by_load = [load for load in several.loads if load.compared == "like_load"]
    for index, side in enumerate(comparison.candidate for comparison in several.comparisons):
        told = [(at.concurrency, at.speedups[side.name]) for at in by_load if side.name in at.speedups]
        if not told:
            continue
        drawn[f"{side.name} ({describe_speculation(side)})"] = axes.errorbar(
            [load for load, _ in told],
            [speedup.value for _, speedup in told],
            yerr=list(zip(*(_reach(speedup) for _, speedup in told), strict=True)),
            color=_COLOURS[index % len(_COLOURS)],
            marker=_MARKERS[index % len(_MARKERS)],
            linestyle=_STYLES[index % len(_STYLES)],
            capsize=3,
        )
    for text in axes.legend([*drawn.values()], [*drawn]).get_texts():
        text.set_parse_math(False)  # a name with two dollars is no formula


def _reach(speedup: Estimate) -> tuple[float, float]:
    """Return how far the interval reaches below and above the speed-up; nothing where it has none."""
    if speedup.low is None or speedup.high is None:
        return 0.0, 0.0
    return speedup.value - speedup.low, speedup.high - speedup.value
