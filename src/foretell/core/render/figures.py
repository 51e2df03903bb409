"""Plots, drawn without a display and without global state."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from numpy.typing import NDArray

from foretell.core.errors import OutputError
from foretell.core.render.phrases import clean_line

Floats = NDArray[np.float64]

INK, MUTED, GRID, ACCENT, PICK, PAPER = "#1f2933", "#66717e", "#e1e5e9", "#2867b2", "#c8501e", "#ffffff"

_STYLE: Mapping[str, object] = {
    "figure.facecolor": PAPER, "axes.facecolor": "none", "savefig.dpi": 160,
    "font.family": "sans-serif", "font.size": 10, "text.color": INK, "text.parse_math": False,
    "axes.labelcolor": MUTED, "axes.edgecolor": GRID, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.8,
    "xtick.color": GRID, "ytick.color": GRID, "xtick.labelcolor": MUTED, "ytick.labelcolor": MUTED,
    "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 12,
    "legend.frameon": False, "legend.fontsize": 9, "legend.labelcolor": MUTED,
    "svg.fonttype": "none", "svg.hashsalt": "foretell",
}  # fmt: skip
_NO_METADATA: Mapping[str, dict[str, None]] = {
    ".svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    ".png": {"Software": None},
}
DECADE = 10.0
SMALLEST, LARGEST = 1e-9, 1e18  # beyond these nothing real is measured, and axes overflow
_LARGEST_IN_FULL = 1e6
_LEAST_SPAN = 3.0
_LEAST_GAP = 0.15  # between two ticks, as a share of the axis
_LEAST_TICKS = 4
_STEPS: tuple[tuple[float, ...], ...] = (
    (1, 10, 100, 1000),
    (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000),
    (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 250, 300, 400, 500, 600, 800),
)


def _thin_out(ticks: Sequence[float], *, least_ratio: float) -> list[float]:
    """Without those whose labels would touch the one before."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or tick / kept[-1] >= least_ratio:
            kept.append(tick)
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruler:
    """The units of an axis, by name and size, smallest first."""

    units: tuple[tuple[str, float], ...]

    def label(self, value: float) -> str:
        name, size = next((unit for unit in reversed(self.units) if unit[1] <= value * 1.001), self.units[0])
        return f"{value / size:g} {name}"

    def find_ticks(self, low: float, high: float) -> list[float]:
        """Round values within the range; only as many as it takes to read it."""
        ticks: list[float] = []
        for steps in _STEPS:
            ticks = [tick for tick in self._list_ticks(steps) if low <= tick <= high]
            if len(ticks) >= _LEAST_TICKS:
                break
        return _thin_out(ticks, least_ratio=(high / low) ** _LEAST_GAP)

    def _list_ticks(self, steps: Sequence[float]) -> Iterator[float]:
        sizes = [size for _, size in self.units]
        for size, following in zip(sizes, [*sizes[1:], math.inf], strict=True):
            yield from (step * size for step in steps if step * size < 0.7 * following)  # not just below the next unit


TIME = Ruler(units=(("ms", 0.001), ("s", 1), ("min", 60), ("h", 3600), ("d", 86400)))
SIZE = Ruler(units=tuple((name, 2.0 ** (10 * power)) for power, name in enumerate(("B", "KB", "MB", "GB", "TB"))))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalRuler(Ruler):
    """Plain numbers, or amounts of a currency."""

    units: tuple[tuple[str, float], ...] = tuple(("", 10.0**power) for power in range(-6, 15))
    currency: str = ""

    def label(self, value: float) -> str:
        number = f"{value:,.10g}" if value < _LARGEST_IN_FULL else f"{value:g}"
        return f"${number}" if self.currency == "USD" else f"{number} {self.currency}".strip()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, the same bytes for the same figure.

    Raises:
        OutputError: if the file is to be of another kind or cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in _NO_METADATA:
        raise OutputError(f"{str(path)!r} is no plot we can write; its name must end in .png or .svg")
    try:
        path.write_bytes(render_figure(figure, kind))
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise OutputError(f"cannot write the plot {str(path)!r}: {reason}; choose another folder") from exc


def render_figure(figure: Figure, kind: str) -> bytes:
    """What a file with that ending holds, ``.png`` or ``.svg``."""
    buffer = BytesIO()
    with house_style():
        figure.savefig(buffer, format=kind[1:], metadata=_NO_METADATA[kind])
    return buffer.getvalue()


def render_svg(figure: Figure) -> str:
    """A figure as an ``<svg>`` element without background, for a page."""
    buffer = StringIO()
    with house_style():
        figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA[".svg"])
    text = buffer.getvalue()
    return text[text.index("<svg") :]


@contextmanager
def house_style() -> Iterator[None]:
    """Our look whatever the user's own settings; a sign that the font lacks is drawn as a box, not warned about."""
    with warnings.catch_warnings(), style.context(["default", dict(_STYLE)]):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def build_axes(title: str, *, width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(length=0)
    axes.set_title(clean_line(title))
    return figure, axes


def can_be_drawn(values: Floats | float) -> NDArray[np.bool_]:
    numbers = np.asarray(values, dtype=float)
    return np.asarray((numbers > SMALLEST) & (numbers < LARGEST))


def find_limits(values: Floats) -> tuple[float, float]:
    """The range of values with some room, wide enough that nearly equal ones look nearly equal."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
    room = max(1.25, math.sqrt(_LEAST_SPAN * low / high))
    return low / room, high * room


def rule(axes: Axes, name: str, ruler: Ruler, low: float, high: float) -> None:
    """Make an axis logarithmic, with ticks at round values, in units people use."""
    ticks = ruler.find_ticks(low, high)
    axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([ruler.label(tick) for tick in ticks]))
    axis.set_minor_locator(NullLocator())


def find_alpha(points: int) -> float:
    return 0.75 if points <= 200 else 0.3
