"""Errands across sites: the oracle, the graders, and an episode that reaches no more sites than it needs."""

import pytest

from palestra.envs.web.sites.across.town import town
from palestra.envs.web.sites.state import Change

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")
pytest.importorskip("oscar", reason="django-oscar is not installed")
pytest.importorskip("spirit", reason="django-spirit is not installed")
pytest.importorskip("trac", reason="Trac is not installed")

from tests.envs.web.sites.playing import in_browser, missed, play
from tests.envs.web.sites.towns import check_copies, check_detours, check_hacks, check_hash_seed, sampled, templates_of

from palestra.envs.web.sites.env import Errands
from palestra.registry import list_envs
from palestra.trajectory import text_of

TOWN = "palestra.envs.web.sites.across.town:town"
TEMPLATES = templates_of(town)


def test_there_are_eight_templates_and_each_needs_two_sites() -> None:
    assert {known.id for known in list_envs("web:across-*")} == {f"web:across-{level}" for level in town.levels}
    assert len(set(TEMPLATES)) == len(TEMPLATES) >= 8
    for seed in range(30):
        for name in TEMPLATES:
            errand = town.errand(seed, name)
            assert errand.wanted
            assert len(set(errand.hosts)) == 2
            assert {host for host, _, _ in errand.cookies} == set(errand.hosts)
            assert errand.start.removeprefix("http://").removesuffix("/") == errand.hosts[0]


def test_a_task_does_not_depend_on_the_hash_seed() -> None:
    check_hash_seed("palestra.envs.web.sites.across.town", TEMPLATES)


@pytest.mark.parametrize("template", TEMPLATES)
def test_no_hack_of_the_state_passes(template: str) -> None:
    check_hacks(town, template, Change("comment", (1, "somebody", "A second comment")))


@in_browser
async def test_the_third_site_is_not_there() -> None:
    env = Errands(TOWN, template="price-to-forum", max_turns=20)
    try:
        observation, _ = await env.reset(seed=0)
        assert "http://tracker.test/" not in text_of(observation)
        refused = text_of((await env.step("goto [tracker.test]")).observation)
        assert refused.startswith("Only these sites can be opened: http://shop.test/, http://forum.test/")
        assert (await play(env)).reward == 1.0
    finally:
        await env.close()


@in_browser
async def test_the_oracle_solves_three_tasks_of_each_template() -> None:
    assert await missed(TOWN, TEMPLATES, range(3)) == []


@pytest.mark.full
@in_browser
@pytest.mark.timeout(7200)
async def test_the_oracle_solves_fifty_tasks_of_each_template() -> None:
    assert await missed(TOWN, TEMPLATES, range(50)) == []


@in_browser
@sampled(town, "recommended")
async def test_a_copy_at_every_step_ends_as_the_original(template: str) -> None:
    await check_copies(TOWN, template, 2)


@in_browser
@sampled(town, "recommended")
async def test_the_goal_reached_by_another_way_passes(template: str) -> None:
    await check_detours(TOWN, template, 3)
