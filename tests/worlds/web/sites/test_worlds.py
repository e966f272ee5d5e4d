"""What is special to the shop, the forum, the tracker and errands across them; ``test_towns`` has what holds for every town."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")
pytest.importorskip("oscar", reason="django-oscar is not installed")
pytest.importorskip("spirit", reason="django-spirit is not installed")
pytest.importorskip("trac", reason="Trac is not installed")


from palestra.worlds.web.sites.across.town import town as across
from palestra.worlds.web.sites.errands import Seen, Walk
from palestra.worlds.web.sites.forum.town import town as forum_town
from palestra.worlds.web.sites.forum.world import SPAMMER, forum_of
from palestra.worlds.web.sites.tracker.town import town as tracker_town
from palestra.worlds.web.sites.tracker.world import tracker_of


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
