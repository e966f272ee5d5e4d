"""How an action is performed in a page.

Nothing here waits for a timeout: an element is scrolled into view and tested at once for a point at which the mouse would reach
it. So the result of an action does not depend on how busy the machine is, and an element that is covered is an answer for the
agent, not a delay. A point at the edge serves where the middle is covered.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from palestra.worlds.web.actions import Action
from palestra.worlds.web.snapshot import Element, Ids

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Page

__all__ = ["MILLISECONDS_PER_ACTION", "acted_on", "advance", "is_navigation", "perform"]

MILLISECONDS_PER_ACTION = 500
"""How far the page's clock advances after an action."""
_CALL_MS = 30_000.0
"""Milliseconds after which Playwright gives up: the browser counts as dead then."""
_POINT = """element => {
  if (!element.isConnected) return "gone";
  element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || getComputedStyle(element).visibility === "hidden") return "hidden";
  const inner = [0.5, 0.25, 0.75, 0.1, 0.9, 0.02, 0.98];
  const label = element.labels && element.labels[0];
  for (const dy of inner) for (const dx of inner) {
    const x = box.left + box.width * dx, y = box.top + box.height * dy;
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) continue;
    const hit = element.getRootNode().elementFromPoint(x, y);
    if (hit && (element.contains(hit) || (label && label.contains(hit))))
      return window === top ? [x, y, true] : [x - box.left, y - box.top, false];
  }
  return "covered";
}"""
_FIELD = """element => {
  if (element.disabled) return "disabled";
  if (element.readOnly) return "readonly";
  if (element.isContentEditable || element.tagName === "TEXTAREA") return "field";
  if (element.tagName !== "INPUT") return "other";
  return ["checkbox", "radio", "button", "submit", "reset", "file", "image", "range", "color"].includes(element.type)
    ? "other" : "field";
}"""
_OPTIONS = """element => element.tagName === "SELECT" ? [...element.options].map(one => one.label.trim()) : null"""
_WHY = {
    "gone": "is not on the page any more",
    "hidden": "cannot be seen",
    "covered": "is covered by something else",
    "disabled": "is disabled",
    "readonly": "cannot be changed",
}


def acted_on(action: Action, elements: Sequence[Element]) -> dict[str, Any]:
    """Return the info of a step that says on which element it acts, and where in the window that is if the place is known.

    The viewer outlines it in the observation before the action.
    """
    ref = action.arguments.get("element", "")
    element = next((element for element in elements if ref and element.ref == ref), None)
    if element is None:
        return {}
    return {"acted_on": {"element": ref, **({"box": list(element.box)} if element.box else {})}}


async def advance(page: "Page", milliseconds: int = MILLISECONDS_PER_ACTION) -> None:
    """Advance the clock of the page, and run the timers that are due. A timer may open another document."""
    from playwright.async_api import Error

    try:
        await page.evaluate("milliseconds => window.__palestraAdvance && window.__palestraAdvance(milliseconds)", milliseconds)
    except Error as error:
        if not is_navigation(error.message):
            raise


def is_navigation(message: str) -> bool:
    """Return whether a message of Playwright says that another document has taken the place of the one that was asked."""
    return "context was destroyed" in message or "navigat" in message


async def perform(page: "Page", action: Action, ids: Ids) -> str:
    """Perform an action on the elements of ``page``. Return an empty string, or a sentence why it was not possible."""
    from playwright.async_api import Error

    given = action.arguments
    try:
        if action.name == "wait":
            return ""
        if action.name in ("click_at", "drag_at"):
            return await _at_points(page, given)
        if action.name == "press":
            return await _press(page, given["keys"])
        if action.name == "scroll":
            await page.evaluate(
                "step => window.scrollBy(0, step * innerHeight * 0.8)", 1 if given["direction"] == "down" else -1
            )
            return ""
        handles = {name: await _find(page, ids.own(given[name])) for name in ("element", "target") if name in given}
        missing = next((given[name] for name, element in handles.items() if element is None), "")
        if missing:
            return f"There is no element {missing} now."
        return await _on_element(page, handles, action)
    except Error as error:
        if "not attached" in error.message:
            return "The element is not on the page any more."
        raise


async def _find(page: "Page", ref: str) -> "ElementHandle | None":
    from playwright.async_api import Error

    if not ref:
        return None
    try:
        handles = await page.locator(f"aria-ref={ref}").element_handles()
    except Error as error:
        if "aria-ref" in error.message or "not found" in error.message:
            return None
        raise
    return handles[0] if handles else None


async def _on_element(page: "Page", handles: "Mapping[str, ElementHandle | None]", action: Action) -> str:
    given, element = action.arguments, handles["element"]
    assert element is not None
    if action.name == "select":
        return await _select(element, given["element"], given["option"])
    kind = await element.evaluate(_FIELD) if action.name == "type" else ""
    if kind in _WHY:
        return f"The element {given['element']} {_WHY[kind]}."
    point = await _point(element)
    if isinstance(point, str):
        return f"The element {given['element']} {_WHY[point]}."
    if action.name == "drag":
        return await _drag(page, point, handles["target"], given["target"])
    if action.name == "hover":
        await page.mouse.move(*point)
        return ""
    await page.mouse.click(*point, click_count=2 if action.name == "double_click" else 1)
    if action.name == "type":
        return await _write(page, element, kind, given["text"], given.get("enter", "0") == "1")
    return ""


async def _point(element: "ElementHandle") -> tuple[float, float] | str:
    """Return a point of the window at which the mouse reaches ``element``, or a key of ``_WHY``."""
    point = await element.evaluate(_POINT)
    if isinstance(point, str):
        return point
    x, y, in_window = point
    if in_window:
        return x, y
    box = await element.bounding_box()  # where the frame of the element is
    return "gone" if box is None else (box["x"] + x, box["y"] + y)


async def _write(page: "Page", element: "ElementHandle", kind: str, text: str, enter: bool) -> str:
    from playwright.async_api import Error

    try:
        if kind == "field":
            await element.fill(text, force=True, timeout=_CALL_MS)
        else:
            await page.keyboard.type(text)
    except Error as error:
        if "Malformed value" in error.message or "Cannot type text into" in error.message:
            return "The field does not take this text. A date is written as 2026-01-31, a time as 14:05."
        raise
    if enter:
        await page.keyboard.press("Enter")
    return ""


async def _select(element: "ElementHandle", ref: str, option: str) -> str:
    options: Any = await element.evaluate(_OPTIONS)
    if options is None:
        return f"The element {ref} is not a list of options: click it instead."
    if option.strip() not in options:
        return f"The element {ref} has no option {option[:100]!r}."
    await element.select_option(index=options.index(option.strip()), force=True, timeout=_CALL_MS)
    return ""


async def _press(page: "Page", keys: str) -> str:
    from playwright.async_api import Error

    try:
        await page.keyboard.press(keys)
    except Error as error:
        if "Unknown key" in error.message:
            await _let_go(page, keys)
            return f"There is no key {keys[:40]!r}."
        raise
    return ""


async def _let_go(page: "Page", keys: str) -> None:
    """Release what Playwright holds down after a combination with an unknown key: with Control down, a click opens a tab."""
    from playwright.async_api import Error

    for key in keys.split("+"):
        with contextlib.suppress(Error):  # the unknown key
            await page.keyboard.up(key)


async def _drag(page: "Page", start: tuple[float, float], target: "ElementHandle | None", name: str) -> str:
    point = "gone" if target is None else await _point(target)
    if isinstance(point, str):
        return f"The element {name} {_WHY[point]}."
    await _drag_mouse(page, start, point)
    return ""


async def _drag_mouse(page: "Page", start: tuple[float, float], end: tuple[float, float]) -> None:
    await page.mouse.move(*start)
    await page.mouse.down()
    await page.mouse.move(*end, steps=5)  # libraries that drag want to see the mouse on its way
    await page.mouse.up()


async def _at_points(page: "Page", given: Any) -> str:
    start = float(given["x"]), float(given["y"])
    if "to_x" in given:
        await _drag_mouse(page, start, (float(given["to_x"]), float(given["to_y"])))
    else:
        await page.mouse.click(*start)
    return ""
