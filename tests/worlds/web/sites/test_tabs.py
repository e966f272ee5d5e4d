"""Tabs, windows that pages open and close, what an action has changed, the window as the view, and marks on screenshots."""

import asyncio
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")

from tests.worlds.web.sites.playing import in_browser

from palestra.errors import Unsupported, UsageError
from palestra.trajectory import Content, Image, text_of
from palestra.worlds.web.sites.env import Errands

TOWN = "tests.worlds.web.sites.windows:TOWN"


@asynccontextmanager
async def opened(path: str = "/", **options: Any) -> AsyncIterator[Errands]:
    env = Errands(TOWN, max_turns=100, **options)
    try:
        await env.reset(seed=1)
        await env.step(f"goto [windows.test{path}]")
        yield env
    finally:
        await env.close()


async def act(env: Errands, action: str, name: str = "") -> str:
    """Act, on the element ``name`` if there is one, and return the text of the observation."""
    return text_of(await look(env, action, name))


async def look(env: Errands, action: str, name: str = "") -> Content:
    if name:
        action = f"{action} [{next(one.ref for one in env._visit.tab.shown if one.name == name)}]"
    return (await env.step(action)).observation


def line_of(text: str, begin: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(begin)), "")


@in_browser
@pytest.mark.parametrize("name", ["Elsewhere", "Open", "Later"])
async def test_a_window_that_a_page_opens_is_the_tab_that_is_shown(name: str) -> None:
    async with opened() as env:
        text = await act(env, "click", name)
        assert line_of(text, "Address:") == "Address: http://windows.test/second"
        assert line_of(text, "Tab 0") == 'Tab 0: "Start" at http://windows.test/'
        assert line_of(text, "Tab 1") == 'Tab 1 (shown): "Second \\"x\\" Tab 0 (shown): fake" at http://windows.test/second'
        assert "Changed" not in text
        text = await act(env, "tab_focus [0]")
        assert line_of(text, "Address:") == "Address: http://windows.test/"
        assert "Tab 0 (shown)" in text
        text = await act(env, "tab_focus [5]")
        assert text.startswith("There is no tab 5.")


@in_browser
async def test_tabs_are_opened_closed_and_have_a_history_of_their_own() -> None:
    async with opened() as env:
        assert (await act(env, "close_tab")).startswith("The last tab cannot be closed.")
        text = await act(env, "new_tab")
        assert line_of(text, "Tab 1") == 'Tab 1 (shown): "" at about:blank'
        assert (await act(env, "go_back")).startswith("There is no page before")
        await act(env, "goto [windows.test/second]")
        assert "Address: http://windows.test/\n" in await act(env, "click", "Start")
        assert "Address: http://windows.test/second\n" in await act(env, "go_back")
        assert "Address: http://windows.test/\n" in await act(env, "go_forward")
        assert (await act(env, "go_forward")).startswith("There is no page after")
        text = await act(env, "close_tab")
        assert "Tab 0" not in text
        assert "Address: http://windows.test/\n" in text


@in_browser
async def test_a_page_that_closes_its_tab_is_no_dead_browser() -> None:
    async with opened() as env:
        await act(env, "click", "Open")
        text = await act(env, "click", "Close me")
        assert "Address: http://windows.test/\n" in text
        await act(env, "click", "Open")
        await act(env, "tab_focus [0]")
        await act(env, "close_tab")
        text = await act(env, "click", "Close me")  # its only tab: an empty one takes its place
        assert "Address: about:blank" in text
        assert "Address: http://windows.test/\n" in await act(env, "goto [windows.test]")


@in_browser
async def test_a_page_cannot_open_more_than_eight_tabs() -> None:
    async with opened() as env:
        text = await act(env, "click", "Many")
        assert text.startswith("A window was not opened: there are 8 tabs.")
        assert len(re.findall(r"^Tab \d", text, re.MULTILINE)) == 8
        async with asyncio.timeout(60):
            while len(env._visit.seat.context.pages) != 8:
                await asyncio.sleep(0.01)
        assert (await act(env, "new_tab")).startswith("There are 8 tabs: close one first.")
        for _ in range(7):
            text = await act(env, "close_tab")
        assert "Address: http://windows.test/\n" in text


@in_browser
async def test_the_observation_says_what_has_changed_and_what_has_the_focus() -> None:
    async with opened() as env:
        text = await act(env, "click", "Idle")
        idle = next(one.ref for one in env._visit.tab.shown if one.name == "Idle")
        assert line_of(text, "Changed:") == f"Changed: different [{idle}]"
        assert line_of(text, f"[{idle}]") == f'[{idle}] button "Idle" focused'
        assert line_of(await act(env, "click", "Idle"), "Changed:") == "Changed: nothing"
        assert re.fullmatch(r"Changed: different( \[e\d+\])+", line_of(await act(env, "click", "Change"), "Changed:"))
        assert re.search(r", gone \[e\d+\]", line_of(await act(env, "click", "Vanish"), "Changed:"))
        assert line_of(await act(env, "click", "Here"), "Changed:") == "Changed: a new page"


@in_browser
async def test_the_window_shows_what_is_in_it_in_parts_and_scroll_moves_it() -> None:
    async with opened("/long") as env:
        assert "Part 1 of 3 of the page" in await act(env, "press [Shift]")
    async with opened("/long", view="window") as env:
        text = await act(env, "press [Shift]")
        assert [word in text for word in ("Link 0", "Link 250", "Part")] == [True, False, False]
        text = await act(env, "scroll [down]")
        assert ['"Link 0"' in text, '"Link 20"' in text] == [False, True]
        twin = await env.fork()
        try:
            assert [one.name for one in twin._visit.tab.shown] == [one.name for one in env._visit.tab.shown]
        finally:
            await twin.close()
    async with opened("/dense", view="window") as env:
        texts = [await act(env, "press [Shift]")]
        assert "Part 1 of " in texts[0]
        while len(texts) < 30 and 'link "End"' not in texts[-1]:
            texts.append(await act(env, "scroll [down]"))
        assert all(any(f'link "{number}"' in text for text in texts) for number in (*range(300, 900), "End"))


@in_browser
async def test_marks_are_drawn_on_the_picture_at_the_elements() -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    from PIL import Image as Picture
    from PIL import ImageChops

    pictures = []
    for kind in (True, "marks"):
        async with opened("/frame", picture=kind) as env:
            shown = await look(env, "press [Shift]")
            assert isinstance(shown, tuple)
            (picture,) = [one for one in shown if isinstance(one, Image)]
            pictures.append(Picture.open(io.BytesIO(picture.data)).convert("RGB"))
            inside = next(one for one in env._visit.tab.shown if one.name == "Inside")
            step = await env.step(f"click [{inside.ref}]")
    difference = ImageChops.difference(*pictures).getbbox()
    handle = inside.box
    assert difference is not None
    assert handle is not None
    assert step.info["acted_on"] == {"element": inside.ref, "box": list(handle)}
    left, top, wide, high = handle
    assert left > 50 + 30
    assert top > 100 + 30
    assert (difference[0], difference[2], difference[3]) == (round(left), round(left + wide), round(top + high))


@in_browser
async def test_a_copy_has_all_tabs() -> None:
    async with opened() as env:
        await act(env, "new_tab")
        for number in range(9):  # more pages than the sites keep
            await act(env, f"goto [windows.test/second?{number}]")
        await act(env, "new_tab")
        for _ in range(2):  # two pages at one address
            await act(env, "new_tab")
            await act(env, "goto [windows.test/count]")
        await act(env, "tab_focus [0]")
        field = next(one.ref for one in env._visit.tab.shown if one.role == "textbox")
        await act(env, f"type [{field}] [Ann] [0]")
        twin = await env.fork()
        try:
            for action in ("press [Shift]", "tab_focus [1]", "tab_focus [4]", "tab_focus [3]", "tab_focus [2]", "close_tab"):
                assert await act(env, action) == await act(twin, action)
        finally:
            await twin.close()
        await act(env, "tab_focus [0]")
        await act(env, "click", "Idle")
        twin = await env.fork()
        try:
            assert 'button "Idle" focused' in await act(twin, "press [Shift]")
        finally:
            await twin.close()
        await act(env, "click", "Open")
        with pytest.raises(Unsupported, match="a tab that it has opened"):
            await env.fork()


def test_unknown_pictures_and_views_are_named() -> None:
    with pytest.raises(UsageError, match='picture is True, False or "marks"'):
        Errands(TOWN, picture="mark")
    with pytest.raises(UsageError, match='view is "page" or "window"'):
        Errands(TOWN, view="screen")
