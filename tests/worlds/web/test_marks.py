"""Marks on a picture whose boxes a page has chosen."""

import io
import math
import time

import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

from PIL import Image

from palestra.worlds.web.marks import marked
from palestra.worlds.web.snapshot import Element


def drawn(*boxes: tuple[float, float, float, float]) -> bytes:
    white = io.BytesIO()
    Image.new("RGB", (100, 60), "white").save(white, "PNG")
    elements = [Element(0, "button", "Go", f"e{number}", box=box) for number, box in enumerate(boxes)]
    picture: bytes = Image.open(io.BytesIO(marked(white.getvalue(), elements))).tobytes()
    return picture


def test_a_huge_box_costs_no_more_than_the_picture() -> None:
    before = time.process_time()
    huge = drawn((20.0, -2e9, 2e9, 4e9))
    assert time.process_time() - before < 1.0
    assert huge == drawn((20.0, -50.0, 500.0, 500.0))
    assert huge != drawn()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", range(4))
def test_boxes_that_are_not_finite_are_not_drawn(number: float, place: int) -> None:
    box = [1.0, 1.0, 10.0, 10.0]
    box[place] = number
    left, top, wide, high = box
    assert drawn((left, top, wide, high)) == drawn()


@pytest.mark.parametrize(
    "box", [(-30.0, 5.0, 10.0, 10.0), (5.0, -30.0, 10.0, 10.0), (100.0, 5.0, 9.0, 9.0), (5.0, 60.0, 9.0, 9.0)]
)
def test_boxes_outside_of_the_picture_are_not_drawn(box: tuple[float, float, float, float]) -> None:
    assert drawn(box) == drawn()
