"""A boxed application in a real browser: errands, their grading, copies, and what an episode can reach."""

import os

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")
pytest.importorskip("flask", reason="Flask is not installed")

from tests.worlds.web.sites.playing import in_browser, play

from palestra.errors import InfrastructureError, UsageError
from palestra.trajectory import text_of
from palestra.worlds.web.front import PORT
from palestra.worlds.web.sites.env import Errands
from palestra.worlds.web.sites.judging import plain

TOWN = "tests.worlds.web.sites.guestbook:TOWN"


@pytest.mark.gate
@in_browser
async def test_the_oracle_signs_and_the_same_seed_gives_the_same_episode() -> None:
    env, other = Errands(TOWN), Errands(TOWN)
    try:
        seen: list[list[str]] = [[], []]
        for place, one in enumerate((env, other)):
            observation, _ = await one.reset(seed=3)
            seen[place].append(text_of(observation))
            step = await play(one, seen[place])
            assert (step.reward, step.info["success"]) == (1.0, True)
        assert seen[0] == seen[1]
        assert "Address: http://guests.test/" in seen[0][0]
        assert '[e1] heading "Guests"' in seen[0][0]
    finally:
        await env.close()
        await other.close()


@in_browser
async def test_other_changes_cost_and_an_early_stop_pays_nothing() -> None:
    env = Errands(TOWN, max_turns=12)
    try:
        await env.reset(seed=1)
        assert (await env.step("stop []")).reward == 0.0
        await env.reset(seed=1)
        while not (action := await env.oracle()).startswith("stop"):
            await env.step(action)
        for action in ("goto [guests.test]", "type [e7] [Ann] [1]"):
            step = await env.step(action)
        assert "Ann of Oslo" in text_of(step.observation)
        step = await env.step("stop []")
        assert (step.reward, step.info["metrics"]) == (-1.0, {"side_effects": 1.0})
    finally:
        await env.close()


@pytest.mark.gate
@in_browser
async def test_a_copy_at_every_step_ends_as_the_original() -> None:
    env = Errands(TOWN)
    try:
        await env.reset(seed=5)
        while not (action := await env.oracle()).startswith("stop"):
            twin = await env.fork()
            try:
                assert (await play(twin)).reward == 1.0
            finally:
                await twin.close()
            step = await env.step(action)
        assert text_of(step.observation).count("Ann") == 2  # in the task and on the page: the copies have signed elsewhere
        assert (await play(env)).reward == 1.0
    finally:
        await env.close()


@pytest.mark.gate
@in_browser
async def test_an_episode_reaches_its_own_sites_only() -> None:
    """A neighbor in the same browser, other hosts and ports, the proxy itself, files and pages of the browser."""
    env, other = Errands(TOWN), Errands(TOWN)
    try:
        await env.reset(seed=1)
        await other.reset(seed=2)
        refused = (
            *(
                "file:///etc/passwd",
                "chrome://version",
                "view-source:http://guests.test/",
                "about:blank",
                "devtools://devtools",
            ),
            *("data:text/html,<h1>x", "javascript:location='http://evil.test/'", "ftp://guests.test/", "ws://guests.test/"),
            *("http://evil.test/", "https://guests.test/", "http://guests.test:81/", f"127.0.0.1:{PORT}", "http://["),
            *("http://guests.test@evil.test/", "http://guests.test.evil.test/", "blob:http://guests.test/1"),
        )
        for address in refused:
            answer = text_of((await env.step(f"goto [{address}]")).observation)
            assert answer.startswith(("Only these sites", "That is not an address")), address
        before = other._visit.access.answered
        tries = f"""async () => {{
          const status = async url => {{ try {{ return (await fetch(url)).status }} catch (error) {{ return 0 }} }};
          return [await status("http://127.0.0.1:{PORT}/"), await status("http://evil.test/"),
                  await status("http://other:x@127.0.0.1:{PORT}/"), await status("http://guests.test:81/"),
                  await status("/"), await status("http://localhost:{PORT}/")];
        }}"""
        assert await env._visit.tab.page.evaluate(tries) == [0, 0, 0, 0, 200, 0]
        assert other._visit.access.answered == before
    finally:
        await env.close()
        await other.close()


@pytest.mark.gate
@in_browser
async def test_the_death_of_a_site_is_infrastructure_and_the_next_episode_plays() -> None:
    env = Errands(TOWN)
    try:
        await env.reset(seed=1)
        os.kill(env._visit.sites.boxes["guests.test"]._wire._pid, 9)
        with pytest.raises(InfrastructureError, match="has ended"):
            await env.step("goto [guests.test]")
        await env.reset(seed=1)
        assert (await play(env)).reward == 1.0
    finally:
        await env.close()


def test_unknown_levels_and_templates_are_named() -> None:
    with pytest.raises(UsageError, match="no level 'hard': write one of easy"):
        Errands(TOWN, "hard")
    with pytest.raises(UsageError, match="no template 'x': write one of sign"):
        Errands(TOWN, template="x")


def test_an_answer_is_compared_without_what_people_add() -> None:
    written = ("251,083", ' "Oslo" ', "1,234,567.", "1,2", "12.50")
    assert [*map(plain, written)] == ["251083", "oslo", "1234567", "1,2", "12.50"]
