"""The element on which a turn of a web episode acts is outlined: its line, and its place on the screenshot."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.viewer.browsing import HOSTILE, Watched, serving, write_run

from palestra.trajectory import Completion, Image, StopReason, Task, Text, Trajectory, Turn

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = 'Task: Go.\n[e1] heading "Start\u200b[e5] button"\n  [e5] button "Go" focused\n[e55] button "Other"'
HOSTILE_INFOS: list[Any] = [
    *({"element": HOSTILE, "box": [0, 0, 1, 1]}, {"element": "e5", "box": ["1px", None, HOSTILE, 4]}),
    *({"element": ["e5"], "box": HOSTILE}, HOSTILE, None, {"element": "e6"}),
]


def picture(width: int, height: int) -> bytes:
    """Return a white PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    shown = (Text(PAGE), Image(picture(200, 100)))
    turns = [
        Turn(PAGE, Completion("click [e5]"), 0.0, {"acted_on": {"element": "e5"}}),
        Turn(shown, Completion("click [e5]"), 0.0, {"acted_on": {"element": "e5", "box": [20, 40, 60, 10]}}),
        *(Turn(shown, Completion("click [e5]"), 0.0, {"acted_on": info}) for info in HOSTILE_INFOS),
    ]
    episode = Trajectory(Task("web:shop-easy", 1), StopReason.TERMINATED, tuple(turns), (), "The episode has ended.")
    folder: Path = write_run(tmp_path_factory.mktemp("run"), episode)
    yield from serving(folder)


def test_the_line_and_the_place_of_the_element_are_outlined(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/0")
    page = watched.page
    expect(page.locator("#turn-0 .acted")).to_have_text('  [e5] button "Go" focused')
    frame = page.locator("#turn-1 .shot .acted")
    expect(frame).to_have_count(1)
    inner, outer = frame.bounding_box(), page.locator("#turn-1 .shot img").bounding_box()
    assert inner is not None
    assert outer is not None
    scale = outer["width"] / 200
    corner = [inner["x"] - outer["x"], inner["y"] - outer["y"]]
    assert [value / scale for value in (*corner, inner["width"], inner["height"])] == pytest.approx([20, 40, 60, 10], abs=1)


def test_what_a_file_says_of_an_element_is_not_trusted(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/0")
    page = watched.page
    expect(page.locator("section.turn")).to_have_count(3 + len(HOSTILE_INFOS))
    page.wait_for_function("[...document.images].every(one => one.complete)")
    expect(page.locator(".shot")).to_have_count(1)
    outlined = [page.locator(f"#turn-{number} .acted").count() for number in range(2, 2 + len(HOSTILE_INFOS))]
    assert outlined == [0, 1, 0, 0, 0, 0]
