"""Curves whose intervals are known at every point, as SVG text: a line, its points, and the band between its limits."""

from collections.abc import Mapping
from typing import NamedTuple

from palestra.plots.axes import color_of, round_ticks
from palestra.plots.curves import Array, Frame, framed, line, page

__all__ = ["Band", "band_curves"]


class Band(NamedTuple):
    """A curve with its interval."""

    places: Array
    """Positions on the horizontal axis, in increasing order."""
    mean: Array
    low: Array
    high: Array


def band_curves(panels: Mapping[str, tuple[str, Mapping[str, Band]]], label: str) -> str:
    """Return one SVG. ``panels`` maps the name of a panel to the name of its horizontal axis and to its curves by name."""
    kinds = list(dict.fromkeys(kind for _, curves in panels.values() for kind in curves))
    colors = {kind: color_of(number) for number, kind in enumerate(kinds)}
    drawn = [_panel(name, axis, curves, colors) for name, (axis, curves) in panels.items()]
    return page(drawn, colors, label)


def _panel(name: str, axis: str, curves: Mapping[str, Band], colors: Mapping[str, str]) -> str:
    bands = list(curves.values())
    left, right = min(float(band.places[0]) for band in bands), max(float(band.places[-1]) for band in bands)
    ticks = round_ticks(min(float(band.low.min()) for band in bands), max(float(band.high.max()) for band in bands))
    frame = Frame((left, right if right > left else left + 1.0), (ticks[0], ticks[-1]))
    parts = framed(name, frame, ticks, axis)
    for kind, (places, mean, low, high) in curves.items():
        parts.append(frame.band(places, low, high, colors[kind]))
        parts.append(line(frame.points(places, mean), colors[kind], 2.2, 1.0))
        dots = (point.split(",") for point in frame.points(places, mean))
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colors[kind]}"/>' for x, y in dots]
    return "".join(parts)
