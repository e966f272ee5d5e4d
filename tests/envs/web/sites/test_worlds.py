"""What is special to the shop, the forum, the tracker and errands across them; ``test_towns`` has what holds for every town."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")
pytest.importorskip("oscar", reason="django-oscar is not installed")
pytest.importorskip("spirit", reason="django-spirit is not installed")
pytest.importorskip("trac", reason="Trac is not installed")

from tests.envs.web.sites.playing import in_browser, play

from palestra.envs.web.sites.across.town import town as across
from palestra.envs.web.sites.boxes import Boxes
from palestra.envs.web.sites.calling import Asked
from palestra.envs.web.sites.env import Errands
from palestra.envs.web.sites.errands import Seen, Walk
from palestra.envs.web.sites.forum.town import town as forum_town
from palestra.envs.web.sites.forum.world import SPAMMER, forum_of
from palestra.envs.web.sites.shop.town import HOST, SHOP
from palestra.envs.web.sites.shop.town import town as shop_town
from palestra.envs.web.sites.shop.world import shop_of
from palestra.envs.web.sites.tracker.town import town as tracker_town
from palestra.envs.web.sites.tracker.world import tracker_of
from palestra.trajectory import text_of


def test_the_path_of_a_page_has_no_query_and_no_fragment() -> None:
    for rest in ("", "?q=1", "#c", "?q=#c"):
        assert Walk([Seen(f"http://shop.test/a/b/{rest}", ())], []).path == "/a/b/"


def test_every_world_has_what_the_templates_need() -> None:
    for seed in range(60):
        forum, tracker = forum_of(seed), tracker_of(seed)
        assert len({one.title for one in forum.topics}) == len(forum.topics)
        assert {one.author for one in forum.topics[:2]} == {forum.me}
        assert sorted([c.author for c in one.comments].count(SPAMMER) for one in forum.topics)[-2:] == [1, 2]
        assert len({one.summary for one in tracker.tickets}) == len(tracker.tickets)
        assert len(tracker.active(tracker.leaver)) == 2
        for town in (forum_town, tracker_town):
            for names in town.levels.values():
                for name in names:
                    town.errand(seed, name)


def test_an_errand_across_sites_needs_two_of_them() -> None:
    for seed in range(30):
        for names in across.levels.values():
            for name in names:
                errand = across.errand(seed, name)
                assert len(set(errand.hosts)) == 2
                assert {host for host, _, _ in errand.cookies} == set(errand.hosts)
                assert errand.start.removeprefix("http://").removesuffix("/") == errand.hosts[0]


@in_browser
async def test_the_third_site_is_not_there() -> None:
    env = Errands("palestra.envs.web.sites.across.town:town", template="price-to-forum", max_turns=20)
    try:
        observation, _ = await env.reset(seed=0)
        assert "http://tracker.test/" not in text_of(observation)
        refused = text_of((await env.step("goto [tracker.test]")).observation)
        assert refused.startswith("Only these sites can be opened: http://shop.test/, http://forum.test/")
        assert (await play(env)).reward == 1.0
    finally:
        await env.close()


@pytest.mark.slow
async def test_the_page_of_a_product_with_three_reviews_shows_the_planted_one() -> None:
    shown = []
    boxes = Boxes(SHOP)
    try:
        for seed in range(12):
            errand = shop_town.errand(seed, "price-injected")
            product = shop_of(seed).product(errand.options[HOST]["planted"][0])
            if sum(one.product == product.id for one in shop_of(seed).reviews) < 3:
                continue
            box = await boxes.open(seed, errand.options[HOST])
            path = f"/catalogue/{product.title.lower().replace(' ', '-')}_{product.id}/"
            answer = await box.ask(Asked("GET", f"http://{HOST}{path}", [("Host", HOST)]))
            shown.append("Add to wish list&quot;" in answer.body.decode())
            box.close()
    finally:
        await boxes.close()
    assert shown
    assert all(shown)
