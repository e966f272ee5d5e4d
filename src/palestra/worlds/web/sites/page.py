"""One page of a site in the browser: to open it, to wait until it stands still, to read it, and to copy it.

Nothing waits for a fixed time. A page stands still when no request is under way, the document is complete, and no navigation
has begun; the page itself reports the last (``page_leaving.js``).
"""

import asyncio
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from palestra.errors import InfrastructureError, Unsupported
from palestra.worlds.web.acting import advance, is_navigation
from palestra.worlds.web.front import Pass

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["ROUNDS", "form_state", "leaving_script", "open_page", "put_form_state", "rest", "settle"]

SETTLE_SECONDS = 30.0
ROUNDS = 6
"""How often ``rest`` follows the opening of a page of another site: 3 s by its clock, as WebArena waits after each page."""
_AFTER_LEAVING_SECONDS = 3.0
"""A navigation that shows no new document within this time, such as a download, has been refused."""
_STANDING = """async () => {
  for (let turn = 0; turn < 2; turn++)
    await new Promise(done => { const c = new MessageChannel(); c.port1.onmessage = done; c.port2.postMessage(0); });
  const opened = window.__palestraOpened;
  window.__palestraOpened = 0;
  return [document.readyState === "complete", Boolean(window.__palestraLeaving), typeof opened === "number" ? opened | 0 : 0];
}"""
_FORMS = """() => {
  if (Object.keys(sessionStorage).length) return null;
  const fields = [...document.querySelectorAll("input, textarea, select")];
  return {
    fields: fields.map(one => [one.type === "file" ? "" : one.value, Boolean(one.checked)]),
    focus: [...document.querySelectorAll("*")].indexOf(document.activeElement), x: scrollX, y: scrollY,
  };
}"""
_PUT_FORMS = """state => {
  const fields = [...document.querySelectorAll("input, textarea, select")];
  if (fields.length !== state.fields.length) return false;
  fields.forEach((one, place) => {
    const [value, checked] = state.fields[place];
    if (one.type !== "file" && one.value !== value) one.value = value;
    if (one.checked !== undefined) one.checked = checked;
  });
  document.querySelectorAll("*")[state.focus]?.focus({ preventScroll: true });
  scrollTo(state.x, state.y);
  return true;
}"""


def leaving_script() -> str:
    """Return the script that reports navigations."""
    return (files("palestra.worlds.web.sites") / "page_leaving.js").read_text()


async def open_page(page: "Page", address: str, access: Pass) -> str:
    """Open an address. Return an empty string, or a sentence why it was not possible."""
    from playwright.async_api import Error

    try:
        await page.goto(address)
    except Error as error:
        if access.failure is None and "net::ERR" in error.message:
            return "The address cannot be opened."
        if access.failure is None:
            raise
    await settle(page, access)
    return ""


async def settle(page: "Page", access: Pass) -> int:
    """Wait until the page stands still. Return how many windows it reports to have opened since the last call."""
    from playwright.async_api import Error

    loop = asyncio.get_running_loop()
    begun, left, opened = loop.time(), None, 0
    while True:
        try:
            complete, leaving, more = await page.evaluate(_STANDING)
        except Error as error:
            if not is_navigation(error.message):
                raise
            complete, leaving, more = False, False, 0
        opened += max(0, int(more))
        if access.failure is not None:
            raise access.failure
        now = loop.time()
        left = (left or now) if leaving and not access.under_way else None
        refused = left is not None and now - left > _AFTER_LEAVING_SECONDS
        if complete and not access.under_way and (refused or not leaving):
            return opened
        if now - begun > SETTLE_SECONDS:
            raise InfrastructureError(f"the page did not come to rest within {SETTLE_SECONDS:g} s")
        await asyncio.sleep(0.005)


async def rest(page: "Page", access: Pass) -> None:
    """Let half a second pass by the clock of the page, and wait until the page stands still again."""
    await advance(page)
    await settle(page, access)


async def form_state(page: "Page") -> Any:
    """Return what has been written into the page, what has the focus, and where the page is scrolled to."""
    state = await page.evaluate(_FORMS)
    if state is None:
        raise Unsupported("the page keeps data in its session storage, which cannot be copied")
    return state


async def put_form_state(page: "Page", state: Any) -> None:
    """Write what ``form_state`` returned into a copy of the page."""
    if not await page.evaluate(_PUT_FORMS, state):
        raise Unsupported("the page has made its own fields by a script, which cannot be copied")
