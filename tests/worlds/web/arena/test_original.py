"""WebArena: its tasks and their checks, on stored pages. No image of its sites is needed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.answering import answering

from palestra.errors import GraderError, UsageError
from palestra.worlds.web.arena.grading import answer_passes
from palestra.worlds.web.arena.matching import equal, has_word, included, same_address
from palestra.worlds.web.arena.original import WebArena
from palestra.worlds.web.arena.tasks import Call, Target, WebTask, read_tasks
from palestra.worlds.web.arena.worker import PYTHON, original_tasks

ALL_SITES = {
    **{name: f"http://{name}.test" for name in ("shopping", "reddit", "gitlab", "map", "wikipedia")},
    "shopping_admin": "http://shopping.test/admin/",
}


def row(**checks: Any) -> dict[str, Any]:
    """A task in WebArena's format."""
    kinds = {"reference_answers": "string_match", "reference_url": "url_match", "program_html": "program_html"}
    eval = {"eval_types": [kinds[check] for check in checks if check in kinds], "string_note": "", **checks}
    return {"sites": ["shopping"], "task_id": 0, "start_url": "__SHOPPING__", "intent": "Look.", "eval": eval}


def target(url: str = "last", locator: str = "", **wanted: Any) -> dict[str, Any]:
    return {"url": url, "locator": locator, "required_contents": wanted}


def read(tmp_path: Path, *rows: Any, **addresses: str) -> list[WebTask]:
    (tmp_path / "tasks.json").write_text(json.dumps(rows))
    return read_tasks(tmp_path / "tasks.json", addresses or ALL_SITES)


def test_texts_are_compared_without_quotes_capitals_and_spaces() -> None:
    assert equal("Quest Band", ' "quest band"')
    assert equal("'3'", "3")
    assert not equal("Quest Band", "the quest band")
    assert included("Quest", "The QUEST band")
    assert not included("Quest", "band")


@pytest.mark.parametrize(
    ("text", "is_word"),
    [
        *((text, True) for text in ("2", "It is 2.", "2, 3", "(2)", "$2", "2%", "2's", "is 2. the", "a;2", "'2'")),
        *((text, True) for text in ("1\u20122", "2\u20133", "a\u20142", "2\u2015", "2..3", "1....2", "„2“")),
        *((text, False) for text in ("12", "2.5", "2,300", "2:30", "1:2", "a2", "2nd", "1/2", "2-3", "")),
    ],
)
def test_one_character_must_be_a_word(text: str, *, is_word: bool) -> None:
    assert has_word("2", text) is is_word
    assert included("2", text, alone=True) is is_word


@pytest.mark.parametrize(
    ("wanted", "address", "same"),
    [
        (["http://a.test/x/"], "http://a.test/x", True),
        (["http://a.test/x"], "http://a.test/x/y?z=1", True),
        (["http://a.test/x"], "http://b.test/x", False),
        (["http://a.test/x?q=1"], "http://a.test/x?q=1&r=2", True),
        (["http://a.test/x?q=1"], "http://a.test/x?q=2", False),
        (["http://a.test/x?q=1"], "http://a.test/x", False),
        (["http://a.test/x", "http://a.test/y?q=1"], "http://a.test/x", False),
        (["http://a.test/x?q=1", "http://a.test/y?q=2"], "http://a.test/x?q=2", True),
    ],
)
def test_addresses(wanted: list[str], address: str, *, same: bool) -> None:
    assert same_address(wanted, address) is same


def test_addresses_of_the_user_replace_the_names_of_sites(tmp_path: Path) -> None:
    checks = {
        "reference_url": "__SHOPPING__/a |OR| __SHOPPING_ADMIN__/b",
        "program_html": [target("func:reddit_get_post_url('__last_url__')", must_include=["x |OR| y", "z"])],
    }
    (one,) = read(tmp_path, {**row(**checks), "start_url": "__SHOPPING__/c |AND| __MAP__"})
    assert one.starts == ("http://shopping.test/c", "http://map.test")
    assert one.urls == ("http://shopping.test/a", "http://shopping.test/admin/b")
    assert one.targets == (Target(Call("reddit_get_post_url", ("__last_url__",)), "", (), None, (("x", "y"), ("z",))),)
    (other,) = read(tmp_path, row(reference_url="__SHOPPING__"), gitlab="http://gitlab.test")
    assert other.starts == ()


@pytest.mark.parametrize(
    "checks",
    [
        {},
        {"reference_answers": {"semantic": "x"}},
        {"reference_answers": {}},
        {"reference_answers": {"must_include": "x"}},
        {"reference_url": "__SHOPPING__", "url_note": "EXACT"},
        {"reference_url": ""},
        {"reference_url": "__SHOPPING__ |OR| "},
        {"reference_answers": {"must_include": ["x", " "]}},
        {"program_html": []},
        {"program_html": [target(must_include=[])]},
        {"program_html": [target(must_include=["x |OR| "])]},
        {"program_html": [target(exact="x")]},
        {"program_html": [target("func:__import__('os').getcwd()", exact_match="x")]},
        {"program_html": [target(locator="func:open('file')", exact_match="x")]},
        {"program_html": [target(locator="func:shopping_get_latest_order_url('a')", exact_match="x")]},
        {"program_html": [target(locator="alert(1)", exact_match="x")]},
    ],
)
def test_checks_that_are_not_known_or_empty_are_refused_when_the_file_is_read(tmp_path: Path, checks: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"task 0 of .* is not in WebArena's format"):
        read(tmp_path, row(**checks))


def test_a_file_without_tasks_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no tasks of WebArena"):
        read_tasks(tmp_path / "none.json", ALL_SITES)
    (tmp_path / "tasks.json").write_text("{}")
    with pytest.raises(UsageError, match="a list is expected"):
        read_tasks(tmp_path / "tasks.json", ALL_SITES)


async def test_without_a_judge_tasks_that_need_one_are_refused_before_they_are_played(tmp_path: Path) -> None:
    rows = [row(reference_answers={"fuzzy_match": wanted}) for wanted in (["rain"], "N/A")]
    (tmp_path / "tasks.json").write_text(json.dumps(rows))
    env = WebArena(ALL_SITES, data=str(tmp_path / "tasks.json"))
    for seed in range(2):
        with pytest.raises(GraderError, match="task 0 of WebArena is not graded"):
            await env.reset(seed=seed)
    assert env._browsers is None
    await env.close()


@pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} names no Python with webarena-verified")
@pytest.mark.worlds
async def test_812_tasks_load_and_118_need_a_judge() -> None:
    tasks = read_tasks(await original_tasks(), ALL_SITES)
    assert len(tasks) == len({task.id for task in tasks}) == 812
    assert all(task.starts and "__" not in " ".join((*task.starts, *task.urls)) for task in tasks)
    assert [sum(map(bool, of)) for of in zip(*((t.needs_judge, t.urls, t.targets) for t in tasks), strict=True)] == [
        118,
        205,
        411,
    ]
    for task in tasks:  # the answer of the file passes its own checks
        if task.exact is not None or task.includes:
            right = task.exact if task.exact is not None else " and ".join(task.includes)
            assert await answer_passes(task._replace(similar=()), right, None), task.id


PAGES = {
    "/": "<title>Home</title><a href='/f/books/7/comment/9'>Last comment</a>",
    "/f/books/7/comment/9": "<p>One comment.</p>",
    "/f/books/7/": "<p>A post with <b>every</b> comment &amp; more.</p>",
    "/sales/order/view/order_id/12/": "<ul><li class=item>Green Kettle</li><li class=item>Mug</li></ul>",
    "/members": "<table><tr><td data-label=Account><span class=gl-avatar-labeled-sublabel>@ann</span></td>"
    "<td class=col-max-role><span>Guest</span></td></tr><tr><td data-label=Account><span class=gl-avatar-labeled-sublabel>"
    "@bob</span></td><td class=col-max-role><span>Maintainer</span></td></tr></table>",
    "/form": "<input id=name value=Ann>",
    "/late": "<input id=name><script>const fill = () => document.querySelector('#name').value = 'Ann';"
    "setTimeout(() => requestAnimationFrame(fill), 4)</script>",
    "/later": "<p id=name>no</p><script>setTimeout(() => { location = '/form' }, 1200)</script>",
    "/popup": "<p>Popup</p><script>window.open('/members')</script>",
    "/rest/V1/orders": '{"items": [{"increment_id": "000000012"}]}',
    "/rest/V1/products/B00/reviews": '[{"nickname": "Old"}, {"nickname": "Zoe", "ratings": [{"percent": 80}]}]',
    "/rest/V1/products/B01/reviews": "[]",
}
"""Pages as the sites of WebArena have them, as far as its checks look at them."""


async def stored(request: web.Request) -> web.Response:
    """Answer with a stored page."""
    if request.path == "/rest/default/V1/integration/admin/token":
        given = await request.json()
        right = given == {"username": "admin", "password": "admin1234"}
        return web.json_response("token-1", status=200 if right else 401)
    if request.path.startswith("/rest/V1") and request.headers.get("Authorization") != "Bearer token-1":
        return web.Response(status=401)
    page = PAGES.get(request.path)
    kind = "application/json" if request.path.startswith("/rest") else "text/html"
    return web.Response(text=page, content_type=kind) if page is not None else web.Response(status=404)


NAME = "document.querySelector('#name').value"
BODY = "document.querySelector('body').outerText"
ITEMS = "[...document.querySelectorAll('.item')].map(one => one.outerText).join(', ')"
ROLE = "func:gitlab_get_project_memeber_role(__page__, 'bob')"
AUTHOR, RATING = (f"func:shopping_get_sku_latest_review_{what}('B00')" for what in ("author", "rating"))
ON_STORED: list[tuple[dict[str, Any], bool]] = [
    (target(locator="document.querySelector('a').outerText", exact_match="last comment"), True),
    (target(locator="document.querySelector('b').outerText", exact_match="last comment"), False),
    (target(locator="document.querySelector('b')", exact_match="None"), True),
    (target("func:reddit_get_post_url('__SHOPPING__/f/books/7/comment/9')", must_include=["comment & more"]), True),
    (target("func:shopping_get_latest_order_url()", ITEMS, must_include=["Kettle", "Pot |OR| Mug"]), True),
    (target("func:shopping_get_latest_order_url()", ITEMS, must_include=["Kettle", "Pot"]), False),
    (target("__SHOPPING__/members", ROLE, exact_match="Maintainer"), True),
    (target("__SHOPPING__/members", ROLE, exact_match="Guest"), False),
    (target("__SHOPPING__/form", ROLE, must_include=["Guest"]), False),
    (target(locator=AUTHOR, exact_match="Zoe"), True),
    (target(locator=RATING, must_include=["80"]), True),
    (target(locator=AUTHOR.replace("B00", "B01"), must_include=["Zoe"]), False),
    ({**target("__SHOPPING__/form", NAME, exact_match="Zoe"), "prep_actions": [f"{NAME} = 'Zoe'"]}, True),
    (target("__SHOPPING__/late", NAME, exact_match="Ann"), True),
    (target("__SHOPPING__/later", NAME, exact_match="Ann"), True),
    ({**target("__SHOPPING__/form", "document.title", exact_match="None"), "prep_actions": ["nothing.at.all"]}, False),
]


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_checks_of_contents_on_stored_pages(tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="Playwright is not installed")
    rows = [{**row(program_html=[one]), "task_id": place} for place, (one, _) in enumerate(ON_STORED)]
    odd = {**row(program_html=[target("http://elsewhere.test/", must_include=["x"])]), "task_id": 99}
    popups = [
        target("__SHOPPING__/popup", BODY, must_include=["Popup"]),
        target("__SHOPPING__/form", "", must_include=["name"]),
    ]
    rows.append(row(program_html=[*popups, target("last", NAME, exact_match="Ann")]))
    two = {**row(reference_url="__SHOPPING__/members"), "start_url": "__SHOPPING__ |AND| __SHOPPING__/members"}
    (tmp_path / "tasks.json").write_text(json.dumps([*rows, odd, two]))
    async with answering(stored, method="*") as address:
        env = WebArena({"shopping": address}, data=str(tmp_path / "tasks.json"), max_turns=3)
        try:
            for place, (one, right) in enumerate(ON_STORED):
                await env.reset(seed=place)
                step = await env.step("stop []")
                assert (step.reward, step.terminated, step.info["success"]) == (float(right), True, right), one
            await env.reset(seed=len(ON_STORED))
            assert (await env.step("stop []")).reward == 1.0
            await env.reset(seed=len(rows))
            with pytest.raises(GraderError, match="no address of your sites"):
                await env.step("stop []")
            first, _ = await env.reset(seed=len(rows) + 1)
            assert f'Tab 0 (shown): "Home" at {address}/' in str(first)
            assert f"at {address}/members" in str(first)
            assert "nothing else. End with stop." in str(first)  # no check of WebArena punishes other changes
            await env.step('<tool_call>{"name": "tab_focus", "arguments": {"tab": 1}}</tool_call>')
            assert (await env.step("stop [done]")).reward == 1.0
            await env.reset(seed=0)
            assert 'textbox = "Ann"' in str((await env.step(f"goto [{address}/late]")).observation)
            await env.step("go_back")
            last = await env.step("wait")
            assert (last.reward, last.truncated) == (1.0, True)  # the page is right, and no answer is asked for
        finally:
            await env.close()
