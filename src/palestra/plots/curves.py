"""Learning curves as SVG text, without a plotting library.

Each measure has a panel, each kind of run a color. Runs that differ only in their seed are of one kind: each is a thin line,
their mean is a thick line, and the band is the 95 % interval of that mean (Student's t over the runs). One run has no band.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from palestra.foundation.statistics import student_quantile
from palestra.plots.axes import color_of, round_ticks, ticks_inside

__all__ = ["Course", "Frame", "framed", "learning_curves", "line", "mean_and_band", "page"]

Array = npt.NDArray[np.float64]

_PANEL = (430, 250)
_MARGIN = (58, 34, 16, 40)
"""Left, top, right, bottom of a panel."""
_GRID = 400
"""The most points that a mean curve has."""
_STYLE = (
    "text{font-family:'DejaVu Sans',Helvetica,Arial,sans-serif;font-size:12px;fill:#1d1f24}"
    ".soft{fill:#6a6f7a;font-size:11px}.name{font-weight:bold;font-size:13px}.grid{stroke:#e3e1dc}"
)


class Course(NamedTuple):
    """The values of one measure in one run."""

    places: Array
    """Positions on the horizontal axis (steps, tokens or seconds), in increasing order."""
    values: Array


def mean_and_band(runs: Sequence[Course], level: float = 0.95) -> tuple[Array, Array, Array, Array]:
    """Return places, mean, low and high over ``runs``, for the places that all runs have reached.

    For a single run, low and high equal the mean.
    """
    low, high = max(run.places[0] for run in runs), min(run.places[-1] for run in runs)
    every = np.unique(np.concatenate([run.places for run in runs]))
    places = every[(every >= low) & (every <= high)]
    if len(places) > _GRID:
        places = np.linspace(low, high, _GRID)
    table = np.stack([np.interp(places, run.places, run.values) for run in runs])
    mean = table.mean(axis=0)
    if len(runs) < 2:
        return places, mean, mean, mean
    reach = student_quantile(0.5 + level / 2, len(runs) - 1) * table.std(axis=0, ddof=1) / math.sqrt(len(runs))
    return places, mean, mean - reach, mean + reach


def learning_curves(panels: Mapping[str, Mapping[str, Sequence[Course]]], axis: str = "step") -> str:
    """Return one SVG with a panel for every measure. ``panels`` maps a measure to kinds of runs, and a kind to its courses."""
    kinds = list(dict.fromkeys(kind for panel in panels.values() for kind in panel))
    colors = {kind: color_of(number) for number, kind in enumerate(kinds)}
    drawn = [_panel(name, panel, colors, axis) for name, panel in panels.items()]
    legend: dict[str, str] = {}
    for kind, color in colors.items() if len(kinds) > 1 else ():
        count = max(len(panel.get(kind, ())) for panel in panels.values())
        legend[f"{kind} ({count} runs)" if count > 1 else kind] = color
    return page(drawn, legend, "learning curves")


def page(panels: Sequence[str], legend: Mapping[str, str], label: str) -> str:
    """Return one SVG with ``panels`` in two columns, and below them the names of the colors in ``legend``."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    width, height = columns * _PANEL[0], rows * _PANEL[1] + (12 + 20 * len(legend) if legend else 0)
    parts = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for number, panel in enumerate(panels):
        x, y = number % columns * _PANEL[0], number // columns * _PANEL[1]
        parts.append(f'<g transform="translate({x},{y})">{panel}</g>')
    for number, (kind, color) in enumerate(legend.items()):
        y = rows * _PANEL[1] + 14 + 20 * number
        parts.append(f'<line x1="{_MARGIN[0]}" x2="{_MARGIN[0] + 26}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="3"/>')
        parts.append(f'<text x="{_MARGIN[0] + 36}" y="{y + 4}">{escape(kind)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label, quote=True)}"><style>{_STYLE}</style>{"".join(parts)}</svg>'
    )


def _panel(name: str, panel: Mapping[str, Sequence[Course]], colors: Mapping[str, str], axis: str) -> str:
    drawn = {kind: mean_and_band(runs) for kind, runs in panel.items()}
    courses = [course for runs in panel.values() for course in runs]
    right = max(float(course.places[-1]) for course in courses)
    left = min(float(course.places[0]) for course in courses)
    ticks = round_ticks(
        min(float(course.values.min()) for course in courses), max(float(course.values.max()) for course in courses)
    )
    frame = Frame((left, right if right > left else left + 1.0), (ticks[0], ticks[-1]))
    parts = framed(name, frame, ticks, axis)
    for kind, (places, mean, low, high) in drawn.items():
        color = colors[kind]
        if len(panel[kind]) > 1:
            parts.append(frame.band(places, low, high, color))
            parts += [line(frame.points(*course), color, 0.8, 0.35) for course in panel[kind]]
        parts.append(line(frame.points(places, mean), color, 2.2, 1.0))
    return "".join(parts)


class Frame(NamedTuple):
    """Maps values to positions in a panel. A value outside its range is drawn at the edge."""

    across: tuple[float, float]
    up: tuple[float, float]

    def x(self, value: float) -> float:
        share = (value - self.across[0]) / (self.across[1] - self.across[0])
        return _MARGIN[0] + share * (_PANEL[0] - _MARGIN[0] - _MARGIN[2])

    def y(self, value: float) -> float:
        share = (min(max(value, self.up[0]), self.up[1]) - self.up[0]) / (self.up[1] - self.up[0])
        return _PANEL[1] - _MARGIN[3] - share * (_PANEL[1] - _MARGIN[1] - _MARGIN[3])

    def points(self, places: Array, values: Array) -> list[str]:
        return [f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(places, values, strict=True) if math.isfinite(b)]

    def band(self, places: Array, low: Array, high: Array, color: str) -> str:
        """Return the area between ``low`` and ``high``."""
        outline = [*self.points(places, high), *reversed(self.points(places, low))]
        return f'<polygon points="{" ".join(outline)}" fill="{color}" fill-opacity="0.16"/>'


def line(points: Sequence[str], color: str, width: float, opacity: float) -> str:
    """Return a line through ``points``."""
    return (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="{width}" '
        f'stroke-opacity="{opacity}" stroke-linejoin="round"/>'
    )


def framed(name: str, frame: Frame, ticks: Sequence[float], axis: str) -> list[str]:
    """Return the name of a panel, its grid at ``ticks``, and its horizontal axis."""
    return [f'<text x="{_MARGIN[0]}" y="20" class="name">{escape(name)}</text>', *_axes(frame, ticks, axis)]


def _axes(frame: Frame, ticks: Sequence[float], axis: str) -> list[str]:
    bottom, right = _PANEL[1] - _MARGIN[3], _PANEL[0] - _MARGIN[2]
    parts = []
    for tick in ticks:
        y = frame.y(tick)
        parts.append(f'<line x1="{_MARGIN[0]}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{_MARGIN[0] - 8}" y="{y + 4:.1f}" text-anchor="end" class="soft">{tick:.4g}</text>')
    for tick in ticks_inside(*frame.across):
        parts.append(f'<text x="{frame.x(tick):.1f}" y="{bottom + 16}" text-anchor="middle" class="soft">{_short(tick)}</text>')
    parts.append(
        f'<text x="{(_MARGIN[0] + right) / 2}" y="{bottom + 32}" text-anchor="middle" class="soft">{escape(axis)}</text>'
    )
    return parts


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e4)):
        if abs(value) >= size:
            return f"{value / (1e6 if unit == 'M' else 1e3):.4g}{unit}"
    return f"{value:.4g}"
