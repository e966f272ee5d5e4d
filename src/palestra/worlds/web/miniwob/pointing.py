"""Oracles of the tasks of MiniWoB++ that need points of the window, or a calendar."""

import math
import re

from palestra.errors import Unsupported
from palestra.worlds.web.miniwob.view import View, click, solves
from palestra.worlds.web.snapshot import Element

__all__: list[str] = []

_MONTHS = tuple("January February March April May June July August September October November December".split())  # noqa: SIM905


@solves("grid-coordinate")
def _grid_coordinate(view: View) -> str:
    match = re.search(r"\((-?\d),(-?\d)\)", view.goal)
    assert match is not None
    points = [element for element in view.all("img") if "plot-point" in element.name]
    columns = sorted({round(_middle(element)[0]) for element in points})
    rows = sorted({round(_middle(element)[1]) for element in points}, reverse=True)
    wanted = columns[int(match[1]) + 2], rows[int(match[2]) + 2]
    return click(min(points, key=lambda element: math.dist(_middle(element), wanted)))


@solves("circle-center", "find-midpoint", "bisect-angle", "right-angle")
def _point(view: View) -> str:
    if view.turn:
        return click(view.need("Submit"))
    circles = [element for element in view.elements if "circle" in element.name]
    x, y = _chosen_point([(_middle(element), "blue" in element.name) for element in circles])
    return f"click_at [{x - 2:.0f}] [{y - 2:.0f}]"  # the border of the drawing


def _chosen_point(circles: list[tuple[tuple[float, float], bool]]) -> tuple[float, float]:
    middles = [middle for middle, _ in circles]
    if len(circles) == 1:
        return middles[0]
    corner = next((middle for middle, blue in circles if blue), None)
    if corner is None:  # the middle between two points
        return (middles[0][0] + middles[1][0]) / 2, (middles[0][1] + middles[1][1]) / 2
    others = [(x - corner[0], y - corner[1]) for (x, y), blue in circles if not blue]
    if len(others) == 1:  # a right angle: the other leg, on the side that has room
        dx, dy = (part / math.hypot(*others[0]) * 40 for part in others[0])
        options = [(corner[0] - dy, corner[1] + dx), (corner[0] + dy, corner[1] - dx)]
        return min(options, key=lambda point: math.dist(point, (77, 117)))
    units = [(x / math.hypot(x, y), y / math.hypot(x, y)) for x, y in others]
    direction = (units[0][0] + units[1][0], units[0][1] + units[1][1])
    length = math.hypot(*direction)
    return corner[0] + direction[0] / length * 25, corner[1] + direction[1] / length * 25


def _middle(element: Element) -> tuple[float, float]:
    if element.box is None:
        raise Unsupported(f"the oracle needs the place of {element.ref}")
    left, top, wide, high = element.box
    return left + wide / 2, top + high / 2


@solves("draw-line")
def _draw_line(view: View) -> str:
    if view.turn:
        return click(view.need("Submit"))
    x, y = _middle(next(element for element in view.elements if "circle" in element.name))
    if "horizontal" in view.goal:
        return f"drag_at [{x - 25:.0f}] [{y:.0f}] [{x + 25:.0f}] [{y:.0f}]"
    return f"drag_at [{x:.0f}] [{y - 25:.0f}] [{x:.0f}] [{y + 25:.0f}]"


@solves("choose-date", "choose-date-easy", "choose-date-medium", "choose-date-nodelay")
def _choose_date(view: View) -> str:
    match = re.search(r"(\d\d)/(\d\d)/(\d{4})", view.goal)
    assert match is not None
    month, day = int(match[1]), str(int(match[2]))
    field = view.all("textbox")[0]
    if field.value == match[0]:
        return click(view.need("Submit"))
    shown = next((element.value for element in view.elements if element.value in _MONTHS), "")
    if not shown:
        text = " ".join(view.texts())
        shown = next((name for name in _MONTHS if f"{name}" in text), "")
    if not shown:
        return click(field)
    difference = month - 1 - _MONTHS.index(shown)
    if difference:
        return click(view.need("Prev" if difference < 0 else "Next"))
    return click(view.need(day, "link"))
