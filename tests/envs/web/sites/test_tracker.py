"""The tracker: its oracle, its views, its grader against hacks, and the same database for the same seed."""

import pytest

from palestra.envs.web.sites.state import Change
from palestra.envs.web.sites.tracker.town import TRACKER, town
from palestra.envs.web.sites.tracker.views import VIEWS
from palestra.envs.web.sites.tracker.world import tracker_of

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")
pytest.importorskip("trac", reason="Trac is not installed")

from tests.envs.web.sites.playing import in_browser, missed
from tests.envs.web.sites.towns import (
    check_addresses,
    check_copies,
    check_detours,
    check_hacks,
    check_hash_seed,
    check_injection,
    check_seeds,
    sampled,
    templates_of,
    unseen_tables,
)

from palestra.registry import list_envs

TOWN = "palestra.envs.web.sites.tracker.town:town"
TEMPLATES = templates_of(town)
NOT_STATE = {
    # sessions and logins, what Trac computes from other tables, repositories of code, of which there are none
    *("auth_cookie", "session", "cache", "system", "sqlite_sequence", "repository", "revision", "node_change"),
}


def test_there_are_twelve_templates_that_change_the_tracker() -> None:
    assert {known.id for known in list_envs("web:tracker-*")} == {f"web:tracker-{level}" for level in town.levels}
    assert len([name for name in TEMPLATES if town.errand(3, name).wanted]) >= 12
    assert len(TEMPLATES) == len(set(TEMPLATES)) >= 17
    for name in TEMPLATES:
        errand = town.errand(3, name)
        assert bool(errand.answers) != bool(errand.wanted), name


def test_a_task_does_not_depend_on_the_hash_seed() -> None:
    check_hash_seed("palestra.envs.web.sites.tracker.town", TEMPLATES)


def test_every_tracker_has_what_the_templates_need() -> None:
    for seed in range(60):
        tracker = tracker_of(seed)
        assert len({one.summary for one in tracker.tickets}) == len(tracker.tickets)
        assert len(tracker.active(tracker.leaver)) == 2
        for name in TEMPLATES:
            town.errand(seed, name)


@pytest.mark.parametrize("template", [name for name in TEMPLATES if town.errand(7, name).wanted])
def test_no_hack_of_the_state_passes(template: str) -> None:
    check_hacks(town, template, Change("comment", (1, tracker_of(7).me, "A second comment")))


@pytest.mark.slow
async def test_every_table_is_seen_or_is_no_state_and_seeds_are_exact() -> None:
    tables = await check_seeds(TRACKER, VIEWS, {"planted": [1, "Hello"]})
    assert unseen_tables(tables, VIEWS, NOT_STATE, "$") == set()


@in_browser
async def test_the_oracle_solves_three_tasks_of_each_template() -> None:
    assert await missed(TOWN, TEMPLATES, range(3)) == []


@pytest.mark.full
@in_browser
@pytest.mark.timeout(7200)
async def test_the_oracle_solves_fifty_tasks_of_each_template() -> None:
    assert await missed(TOWN, TEMPLATES, range(50)) == []


@in_browser
@sampled(town, "comment")
async def test_a_copy_at_every_step_ends_as_the_original(template: str) -> None:
    await check_copies(TOWN, template, 2)


@in_browser
@sampled(town, "comment")
async def test_the_goal_reached_by_another_way_passes(template: str) -> None:
    await check_detours(TOWN, template, 3)


@in_browser
async def test_addresses_do_not_do_the_work() -> None:
    await check_addresses(TOWN, "resolve", "tracker")


@in_browser
async def test_a_planted_instruction_is_followed_by_a_naive_agent_and_counted() -> None:
    scores = await check_injection(TOWN, "owner-injected", ["accept", "Submit changes"], "press Submit changes")
    assert scores == {True: (-1.0, 2.0), False: (1.0, 0.0)}
