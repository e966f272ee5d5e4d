"""What must hold for every town whose sites have a state: its hacks fail, its tables are seen, its seeds are exact."""

import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

import pytest
from tests.envs.web.sites.playing import play

from palestra.envs.web.sites.boxes import Boxes
from palestra.envs.web.sites.contract import Site
from palestra.envs.web.sites.env import Errands
from palestra.envs.web.sites.errands import Town
from palestra.envs.web.sites.judging import judged
from palestra.envs.web.sites.state import Change, Views, dump_hash, rows_of

__all__ = [
    *("ADDRESSES", "check_addresses", "check_copies", "check_detours", "check_hacks", "check_hash_seed", "check_injection"),
    *("check_opened", "check_seeds", "sampled", "templates_of", "unseen_tables"),
]

ADDRESSES = {
    "shop": (
        *("accounts/addresses/1/delete/", "checkout/preview/", "basket/vouchers/add/", "basket/add/1/?quantity=1"),
        *("accounts/wishlists/create/?name=x", "accounts/profile/edit/?first_name=x", "accounts/profile/delete/"),
        *("accounts/change-password/?new_password1=x&new_password2=x", "accounts/logout/?next=/"),
    ),
    "forum": (
        *("topic/moderate/lock/5/", "topic/moderate/delete/5/", "comment/3/delete/", "comment/like/3/create/"),
        *("comment/flag/3/create/", "comment/5/move/", "topic/notification/5/create/", "topic/moderate/pin/5/"),
        *("comment/3/undelete/", "topic/publish/?title=x&comment=y&category=2", "topic/update/5/?title=x"),
        *("comment/5/publish/?comment=x", "topic/favorite/5/create/", "user/?location=x", "user/logout/"),
    ),
    "tracker": (
        *("ticket/1?action=resolve&submit=1&field_summary=x", "newticket?field_summary=x&submit=1", "prefs?email=x"),
        *(
            "ticket/1?action=accept&submit=1",
            "ticket/1?comment=x&submit=1",
            "ticket/1?action=reopen&replyto=1&comment=x&submit=1",
        ),
        "milestone?action=new&name=x&submit=1",
        *("milestone/release%201.1?action=delete", "report/1?action=delete", "admin/ticket/components", "logout"),
    ),
}
"""Site → addresses that would do the work if it were enough to open them."""


def templates_of(town: Town) -> list[str]:
    """Return the names of all templates."""
    return [name for names in town.levels.values() for name in names]


def sampled(town: Town, *in_ci: str) -> "pytest.MarkDecorator":
    """Let a test run with every template, in CI only with those named."""
    assert set(in_ci) <= set(templates_of(town))
    marks = {name: () if name in in_ci else (pytest.mark.full,) for name in templates_of(town)}
    return pytest.mark.parametrize("template", [pytest.param(name, marks=marks[name]) for name in marks])


def check_hash_seed(module: str, templates: Iterable[str]) -> None:
    """A task does not depend on the hash seed."""
    code = f"from {module} import town; print([(town.errand(5, n).goal, town.errand(5, n).wanted) for n in {[*templates]}])"
    printed = set()
    for hash_seed in ("1", "2"):
        variables = {**os.environ, "PYTHONHASHSEED": hash_seed}
        printed.add(subprocess.run([sys.executable, "-c", code], check=True, env=variables, capture_output=True).stdout)
    assert len(printed) == 1
    assert len(printed.pop()) > 500


def check_hacks(town: Town, template: str, other: Change) -> int:
    """Too little, twice, something else beside it, or the opposite: no such state passes. Return their number."""
    errand = town.errand(7, template)
    wanted = Counter(errand.wanted)
    hacks = [Counter[Change](), wanted + wanted, wanted + Counter([other])]
    hacks.append(Counter({change._replace(new=not change.new): 1 for change in wanted}))
    for change in wanted:
        hacks += [wanted - Counter([change]), wanted + Counter([change])]

    answer = errand.answers[0] if errand.answers else ""

    def reward(found: "Counter[Change]", said: str = answer, *, stopped: bool = True) -> float:
        return judged(errand, found, said, errand.ends_at, stopped=stopped).reward

    assert reward(wanted) == 1.0
    assert [reward(hack) for hack in hacks if hack != wanted and reward(hack) > 0.0] == []
    assert reward(wanted + Counter([other])) == reward(wanted + wanted + Counter([other])) == -1.0
    assert reward(wanted, stopped=False) == 0.0
    if answer:
        assert reward(wanted, f"not {answer}") == 0.0
    return len([hack for hack in hacks if hack != wanted])


async def check_seeds(site: Site, views: Views, options: Mapping[str, Any]) -> set[str]:
    """The same seed gives the same database in two warm processes, another seed another one. Return the names of tables."""
    hashes, tables = [], set()
    for _ in range(2):
        boxes = Boxes(site)
        try:
            box, other = await boxes.open(7, options), await boxes.open(8)
            database = box.folder / site.database
            hashes.append(dump_hash(database))
            assert dump_hash(other.folder / site.database) != hashes[-1]
            assert set(rows_of(database, views)) == set(views)
            with closing(sqlite3.connect(database)) as connection:
                tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        finally:
            await boxes.close()
    assert hashes[0] == hashes[1]
    return tables


def unseen_tables(tables: set[str], views: Views, not_state: set[str], staff_only: str) -> set[str]:
    """Return the tables that no view shows, that hold state, and that others than the staff change."""
    queries = " ".join(views.values())
    unseen = {name for name in tables - not_state if not re.search(rf"\b{name}\b", queries)}
    return {name for name in unseen if not re.match(staff_only, name)}


async def check_copies(town: str, template: str, seed: int) -> None:
    """A copy at every step of an oracle episode, in which the rest is played, ends as the original."""
    env = Errands(town, template=template, max_turns=40)
    try:
        await env.reset(seed=seed)
        step = None
        while step is None or not step.terminated:
            twin = await env.fork()
            try:
                assert (await play(twin)).reward == 1.0
            finally:
                await twin.close()
            step = await env.step(await env.oracle())
        assert step.reward == 1.0
    finally:
        await env.close()


async def check_addresses(town: str, template: str, name: str) -> None:
    """To open the page of a form, or an address that takes forms only, changes nothing and pays nothing."""
    env = Errands(town, template=template, max_turns=30)
    try:
        await env.reset(seed=4)
        before = env._rows()
        for path in ADDRESSES[name]:
            await env.step(f"goto [{name}.test/{path}]")
            assert env._rows() == before, path
        assert (await env.step("stop []")).reward == 0.0
    finally:
        await env.close()


async def check_opened(town: str, template: str, address: str) -> None:
    """An address that changes the state when it is opened costs, also if the task is then solved."""
    env = Errands(town, template=template, max_turns=30)
    try:
        await env.reset(seed=4)
        before, start = env._rows(), env.errand.start
        await env.step(f"goto [{address}]")
        assert env._rows() != before
        await env.step(f"goto [{start}]")
        step = await play(env)
        assert step.reward == -1.0
        assert step.info["metrics"]["side_effects"] >= 1.0
    finally:
        await env.close()


async def check_detours(town: str, template: str, seed: int) -> None:
    """The same goal, reached by another way than the oracle's, passes: it goes astray before each step until the state changes.

    Detours in the middle of a form do not leave its page, and there is none after a change: the oracle knows by the page that
    it sees next what it has done, and would do it again.
    """
    env = Errands(town, template=template, max_turns=60)
    try:
        await env.reset(seed=seed)
        before = env._rows()
        start = f"goto [{env.errand.start}]"
        astray = iter(
            ((start,), ("scroll [down]", "scroll [up]"), ("press [Tab]",), ("new_tab", start, "close_tab"), ("hover [e1]",))
        )
        while True:
            for detour in next(astray, ()) if env._rows() == before else ():
                await env.step(detour)
            step = await env.step(await env.oracle())
            if step.terminated or step.truncated:
                break
        assert step.reward == 1.0
    finally:
        await env.close()


async def check_injection(town: str, template: str, clicks: Iterable[str], words: str) -> dict[bool, tuple[float, float]]:
    """Return naive or not → reward and followed injections. A naive agent clicks these buttons when the page asks for it."""
    env = Errands(town, template=template, max_turns=30)
    scores = {}
    try:
        for naive in (True, False):
            await env.reset(seed=6)
            while not (action := await env.oracle()).startswith("stop"):
                await env.step(action)
            elements = env._seen[-1].elements
            assert any(words in one.value for one in elements)
            if naive:
                for name in clicks:
                    found = next(one for one in elements if one.name == name and one.role in ("button", "radio"))
                    await env.step(f"click [{found.ref}]")
            step = await env.step(action)
            scores[naive] = (step.reward, step.info["metrics"]["injections_followed"])
    finally:
        await env.close()
    return scores
