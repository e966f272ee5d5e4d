"""The checks of a task of WebArena at the end of an episode: its answer, the last address, and contents of pages.

The contents are read in the tab that the agent saw last, since the logins and the last page are there. The episode is over
then. Requests of the grader itself go the same way as those of the browser, so they reach the same sites and no others.
"""

import asyncio
import html
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from palestra.authoring.graders import Grader
from palestra.errors import GraderError
from palestra.worlds.web.acting import is_navigation
from palestra.worlds.web.arena.matching import bare, equal, included, same_address
from palestra.worlds.web.arena.tasks import Call, Target, WebTask
from palestra.worlds.web.browsers import is_death
from palestra.worlds.web.sites.hosts import Sites

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["Ending", "answer_passes", "contents_pass", "pages_pass"]

JUDGE_SECONDS = 300.0
_ROLE = """name => {
  const names = [...document.querySelectorAll("td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
  const place = names.findIndex(one => one.outerText === "@" + name);
  return document.querySelectorAll("td.col-max-role span")[place]?.outerText ?? "";
}"""
"""Reads the role of a member from GitLab's page of a project's members."""


class Ending(NamedTuple):
    """What the grader looks at: the end of an episode."""

    page: "Page"
    sites: Sites
    open: Callable[[str], Awaitable[str]]
    """Opens an address in ``page``, also if that opens other windows; returns why that is not possible, or an empty text."""
    rest: Callable[[], Awaitable[None]]
    """Lets half a second pass in ``page``, and waits until it stands still."""
    shop: str
    """The address of the site ``shopping``."""
    staff: tuple[str, str]
    """Name and password of an administrator of the shop, for its REST API."""


# ------------------------------------------------------------------------------------------------------------------- answer


async def answer_passes(task: WebTask, answer: str, judge: Grader | None) -> bool:
    """Return whether the answer is the wanted one.

    Raises:
        GraderError: The judge has failed, or does not answer in time.
    """
    answer = bare(answer)
    if task.exact is not None and not equal(task.exact, answer):
        return False
    if not all(included(words, answer, alone=len(task.includes) == 1) for words in task.includes):
        return False
    if task.impossible is not None and not equal("N/A", answer):
        return await _judged(judge, task.goal, answer, task.impossible, "reason")
    for words in task.similar:
        if not await _judged(judge, task.goal, answer, words, "answer"):
            return False
    return True


async def _judged(judge: Grader | None, goal: str, answer: str, wanted: str, kind: str) -> bool:
    assert judge is not None
    try:
        async with asyncio.timeout(JUDGE_SECONDS):
            grade = await judge.grade(answer, {"row": {"question": goal, "answer": wanted, "kind": kind}})
    except TimeoutError:
        raise GraderError(f"the judge did not answer within {JUDGE_SECONDS:g} s") from None
    return bool(grade.success)


# ----------------------------------------------------------------------------------------------------------------- contents


async def pages_pass(task: WebTask, ending: Ending) -> bool:
    """Return whether the last address and the contents of pages are the wanted ones.

    Raises:
        GraderError: A check cannot be made.
    """
    if task.urls and not same_address(task.urls, ending.page.url):
        return False
    for target in task.targets:
        if not contents_pass(target, await _selected(target, ending)):
            return False
    return True


def contents_pass(target: Target, content: str) -> bool:
    """Return whether what was found on a page is what the check wants."""
    content = html.unescape(content)
    if target.exact is not None:
        return equal(target.exact, content)
    return all(any(included(words, content) for words in group) for group in target.includes)


async def _selected(target: Target, ending: Ending) -> str:
    """Open the page of a check, and return the text that the check looks at."""
    address = await _address(target.url, ending)
    if address != "last":
        if urlsplit(address).netloc not in ending.sites.hosts:
            raise GraderError(f"a check of WebArena looks at {address}, which is no address of your sites")
        if problem := await ending.open(address):
            raise GraderError(f"a check of WebArena looks at {address}: {problem}")
    if isinstance(target.locator, Call):
        return await _called(target.locator, ending)
    if not target.locator.strip():
        return await ending.page.content()
    for script in target.prepare:
        if await _evaluated(ending, f"() => {script}") is _FAILED:
            break
        await ending.rest()
    selected = await _evaluated(ending, f"() => {target.locator}")
    return "" if selected is _FAILED else str(selected)


_FAILED = object()


async def _evaluated(ending: Ending, script: str, argument: str = "", *, again: bool = True) -> Any:
    """Return the value of a script. A page on which it fails is not the wanted one; a dead browser is no evidence.

    If the page opens another document in the meantime, the script runs once more in that one.
    """
    from playwright.async_api import Error

    page = ending.page
    try:
        return await page.evaluate(script, argument)
    except Error as error:
        browser = page.context.browser
        if is_death(error.message) or page.is_closed() or browser is None or not browser.is_connected():
            raise
        if not again or not is_navigation(error.message):
            return _FAILED
    await ending.rest()
    return await _evaluated(ending, script, argument, again=False)


async def _address(url: str | Call, ending: Ending) -> str:
    if isinstance(url, str):
        return url
    if url.name == "reddit_get_post_url":
        return _post(url.arguments[0].replace("__last_url__", ending.page.url))
    if url.name == "shopping_get_latest_order_url":
        return await _latest_order(ending)
    raise GraderError(f"{url.name} returns no address")


def _post(address: str) -> str:
    """Return the address of a post of the forum, from that of the post or one of its comments."""
    parts = urlsplit(address)
    steps = parts.path.split("/")
    if len(steps) < 4 or steps[1] != "f":
        return address
    return f"{parts.scheme}://{parts.netloc}/f/{steps[2]}/{steps[3]}/"


async def _called(call: Call, ending: Ending) -> str:
    if call.name == "gitlab_get_project_memeber_role":
        role = await _evaluated(ending, _ROLE, call.arguments[1])
        return "" if role is _FAILED else str(role)
    if call.name not in ("shopping_get_sku_latest_review_author", "shopping_get_sku_latest_review_rating"):
        raise GraderError(f"{call.name} returns no content")
    reviews = await _asked(ending, f"/rest/V1/products/{quote(call.arguments[0], safe='')}/reviews")
    if not reviews:
        return ""
    try:
        last = reviews[-1]
        return str(last["nickname"] if call.name.endswith("author") else last["ratings"][0]["percent"])
    except (LookupError, TypeError) as error:
        raise _unexpected("a review", error) from None


# -------------------------------------------------------------------------------------------------------------------- shop


async def _latest_order(ending: Ending) -> str:
    sorting = "searchCriteria[sortOrders][0]"
    query = {f"{sorting}[field]": "created_at", f"{sorting}[direction]": "DESC", "searchCriteria[pageSize]": "1"}
    orders = await _asked(ending, f"/rest/V1/orders?{urlencode(query)}")
    try:
        return f"{ending.shop}/sales/order/view/order_id/{int(orders['items'][0]['increment_id'])}/"
    except (LookupError, TypeError, ValueError) as error:
        raise _unexpected("an order", error) from None


def _unexpected(what: str, error: Exception) -> GraderError:
    return GraderError(f"the shop answers with something that is not {what}: {type(error).__name__}: {error}")


async def _asked(ending: Ending, path: str) -> Any:
    """Return what the shop answers to its administrator."""
    name, password = ending.staff
    who = json.dumps({"username": name, "password": password}).encode()
    token = await _answer(ending, "POST", "/rest/default/V1/integration/admin/token", [], who)
    return await _answer(ending, "GET", path, [("Authorization", f"Bearer {token}")])


async def _answer(ending: Ending, method: str, path: str, headers: list[tuple[str, str]], body: bytes = b"") -> Any:
    sent = [("Content-Type", "application/json"), *headers]
    status, _, content = await ending.sites.visit(method, ending.shop + path, sent, body)
    if status != 200:
        raise GraderError(f"the shop answers {method} {path.partition('?')[0]} with the status {status}, expected 200")
    try:
        return json.loads(content)
    except ValueError:
        raise GraderError(f"the shop answers {method} {path.partition('?')[0]} with something that is not JSON") from None
