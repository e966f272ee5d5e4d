"""How the page of a tab is copied: the bytes that the site answered are shown again, and what was written is written again.

No copy is trusted: it must look as the original does.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from palestra.errors import Unsupported
from palestra.worlds.web.front import Pass
from palestra.worlds.web.sites.calling import Answer
from palestra.worlds.web.sites.page import form_state, open_page, put_form_state
from palestra.worlds.web.sites.tabs import EMPTY, Tab
from palestra.worlds.web.sites.visit import Sites, bare
from palestra.worlds.web.snapshot import Element

__all__ = ["Written", "show_copy", "written"]


class Written(NamedTuple):
    """The page of a tab."""

    page: Answer
    state: Any
    """What was written into its fields, and where it is scrolled to."""
    elements: Sequence[Element]


async def written(tab: Tab, sites: Sites, *, boxes: bool, window: bool) -> Written | None:
    """Return the page of a tab as it was answered, and what was written into it. An empty tab has none."""
    if await tab.page.opener() is not None:
        raise Unsupported("a page can steer a tab that it has opened, and this cannot be copied")
    if tab.page.url == EMPTY:
        return None
    source = tab.source if tab.seen else sites.source(tab.page.url)
    if source is None or source[0] != bare(tab.page.url):
        raise Unsupported("the bytes of a page are not kept: a script has made the page, or its tab was never shown")
    elements = tab.elements if tab.seen else await tab.read(boxes=boxes, window=window)
    return Written(source[1], await form_state(tab.page), elements)


async def show_copy(tab: Tab, copied: Written | None, mine: Tab, sites: Sites, one: Pass) -> Sequence[Element]:
    """Show the page of ``tab`` in ``mine``, a tab of another context. Return how it must look."""
    mine.adopt(tab)
    if copied is None:
        return tab.elements
    sites.show_again(tab.page.url, copied.page)
    await open_page(mine.page, tab.page.url, one)
    await put_form_state(mine.page, copied.state)
    return copied.elements
