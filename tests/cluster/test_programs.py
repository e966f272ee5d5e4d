"""Agents on a cluster: a gateway per worker, the same episodes as in one process, and nothing lost with a worker."""

from typing import Any

import pytest

from palestra.agents import Program
from palestra.rollouts import RolloutOptions, rollout
from palestra.testing.scripted import ByteRenderer, ScriptedEngine
from tests.agents.test_program import GAME, guess
from tests.cluster import chaos
from tests.cluster.chaos import digest

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.alone]


def program(name: str) -> Program:
    return Program(f"tests.agents.programs:{name}", ScriptedEngine(guess), ByteRenderer())


@pytest.mark.parametrize(("name", "episodes"), [("stepping", 60), ("with_helpers", 40), ("plain", 6)])
async def test_a_program_plays_the_same_episodes_on_workers_as_in_one_process(ray: Any, name: str, episodes: int) -> None:
    expected = [one async for one in rollout(GAME, program(name), n=episodes, seed=3)]
    async with chaos.dispatcher(2) as workers:
        played = [one async for one in workers.rollout(GAME, program(name), RolloutOptions(n=episodes, seed=3))]
        assert len(workers.workers) == 2
    assert not any(one.failures for one in (*expected, *played))
    assert all(one.segments for one in played)
    assert digest(played) == digest(expected)


async def test_killed_workers_cost_no_episode_of_an_agent(ray: Any) -> None:
    outcome = await chaos.kill_ray_workers(4, policy=program("stepping"))
    assert outcome.kills == 4
    assert outcome.unaccounted == 0
    assert digest(outcome.played) == digest(
        await chaos.played_here(outcome.issued, f"{chaos.HERE}:Patient", program("stepping"))
    )
