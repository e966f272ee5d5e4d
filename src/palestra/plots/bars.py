"""Bars and intervals of a report as inline SVG, without a plotting library: the report stays one file that works offline."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from palestra.foundation.statistics import Distribution
from palestra.plots.axes import color_of, ticks_inside

__all__ = ["Whisker", "forest", "quantile_bars", "stacked"]

_LABEL = 250
_WIDTH = 860
_ROW = 24
_KNOWN = {"terminated": "#58a879", "error": "#d9705f", "deadline": "#b0493c"}


class Whisker(NamedTuple):
    """A row of a forest plot."""

    name: str
    mean: float | None
    limits: tuple[float, float] | None
    """The ends of the line; ``None`` if they are not known."""
    text: str
    bold: bool


def forest(rows: Sequence[Whisker], label: str) -> str:
    """Draw means with their intervals."""
    ends = [end for row in rows for end in (row.limits or (row.mean,)) if end is not None]
    low, high = min([0.0, *ends]), max([1.0, *ends])

    def x(value: float) -> float:
        return _LABEL + (value - low) / (high - low) * (_WIDTH - _LABEL - 90)

    parts = _axis(x, low, high, len(rows))
    for number, row in enumerate(rows):
        y = _ROW * number + _ROW / 2
        parts.append(_text(_LABEL - 12, y, row.name, anchor="end", bold=row.bold))
        if row.mean is None:
            parts.append(_text(x(low) + 6, y, row.text, soft=True))
            continue
        thick = 3 if row.bold else 2
        if row.limits is not None:
            parts.append(
                f'<line x1="{x(row.limits[0]):.1f}" x2="{x(row.limits[1]):.1f}" y1="{y}" y2="{y}" '
                f'class="whisker" stroke-width="{thick}"/>'
            )
        parts.append(f'<circle cx="{x(row.mean):.1f}" cy="{y}" r="{thick + 1.5}" class="dot"/>')
        parts.append(_text(_WIDTH - 78, y, row.text, soft=not row.bold))
    return _svg(parts, len(rows) * _ROW + 26, label)


def _axis(x: Callable[[float], float], low: float, high: float, rows: int) -> list[str]:
    bottom = rows * _ROW
    return [
        f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{bottom}" class="grid"/>'
        + _text(x(tick), bottom + 13, f"{tick:.3g}", anchor="middle", soft=True)
        for tick in ticks_inside(low, high)
    ]


def stacked(rows: Sequence[tuple[str, Mapping[str, int]]], label: str) -> str:
    """Draw counts by kind as one bar per row, scaled to the sum of the row, with a legend below."""
    kinds = list(dict.fromkeys(kind for _, counts in rows for kind in counts))
    others = [kind for kind in kinds if kind not in _KNOWN]
    colors = {kind: _KNOWN.get(kind) or color_of(others.index(kind)) for kind in kinds}
    span = _WIDTH - _LABEL - 90
    parts = []
    for number, (name, counts) in enumerate(rows):
        y, left, total = _ROW * number, float(_LABEL), sum(counts.values())
        parts.append(_text(_LABEL - 12, y + _ROW / 2, name, anchor="end"))
        for kind, count in counts.items():
            width = span * count / max(total, 1)
            parts.append(
                f'<rect x="{left:.1f}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 8}" fill="{colors[kind]}">'
                f"<title>{escape(kind)}: {count} of {total}</title></rect>"
            )
            left += width
        parts.append(_text(_WIDTH - 78, y + _ROW / 2, f"{total} episodes", soft=True))
    parts += _legend(colors, len(rows) * _ROW + 18)
    return _svg(parts, len(rows) * _ROW + 18 + 20 * ((len(kinds) + 3) // 4), label)


def _legend(colors: Mapping[str, str], top: float) -> list[str]:
    parts = []
    for number, (kind, color) in enumerate(colors.items()):
        x, y = _LABEL + 150 * (number % 4), top + 20 * (number // 4)
        parts.append(f'<rect x="{x}" y="{y - 6}" width="11" height="11" rx="2" fill="{color}"/>')
        parts.append(_text(x + 17, y, kind.replace("_", " "), soft=True))
    return parts


def quantile_bars(rows: Sequence[tuple[str, Distribution]], label: str) -> str:
    """Draw one distribution per row: a line from the 5 % to the 95 % quantile, a box from 25 to 75 %, a mark at the median."""
    top = max(distribution.quantiles["0.95"] for _, distribution in rows) or 1.0
    span = _WIDTH - _LABEL - 90
    parts = _axis(lambda value: _LABEL + span * value / top, 0.0, top, len(rows))
    for number, (name, distribution) in enumerate(rows):
        y = _ROW * number + _ROW / 2
        q = {key: _LABEL + span * value / top for key, value in distribution.quantiles.items()}
        parts.append(_text(_LABEL - 12, y, name, anchor="end"))
        parts.append(
            f'<line x1="{q["0.05"]:.1f}" x2="{q["0.95"]:.1f}" y1="{y}" y2="{y}" class="whisker"/>'
            f'<rect x="{q["0.25"]:.1f}" y="{y - 6}" width="{max(q["0.75"] - q["0.25"], 1):.1f}" height="12" class="box"/>'
            f'<line x1="{q["0.5"]:.1f}" x2="{q["0.5"]:.1f}" y1="{y - 8}" y2="{y + 8}" class="median"/>'
        )
        parts.append(_text(_WIDTH - 78, y, f"median {distribution.quantiles['0.5']:.3g}", soft=True))
    return _svg(parts, len(rows) * _ROW + 26, label)


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, soft: bool = False) -> str:
    style = "bold" if bold else "soft" if soft else ""
    return f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}" class="{style}">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH + 70} {height:.0f}" role="img" aria-label="{escape(label, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
