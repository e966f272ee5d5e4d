"""The same with Ray's own processes. Serially: one machine has room for one Ray."""

import os
import subprocess
import sys
from typing import Any

import pytest

from palestra.cluster import ClusterConfig, Dispatcher, Pool
from palestra.cluster.rays import RayProvider, connect
from palestra.rollouts import RolloutOptions, collect
from palestra.serve import EnvServer
from palestra.serve.tokens import new_token
from tests.cluster import chaos
from tests.cluster.chaos import digest

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.alone]

GAMES = ["game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "game:TowerofHanoi-v0-easy", "game:Sudoku-v0-easy"]


async def test_local_served_and_ray_runs_of_the_same_tasks_are_the_same(ray: Any) -> None:
    expected = digest(collect(GAMES, "random", n=125, seed=3, progress=False))
    async with chaos.dispatcher(2) as workers:
        played = [t async for t in workers.rollout(GAMES, "random", RolloutOptions(n=125, seed=3))]
        assert len(workers.workers) == 2
    assert digest(played) == expected
    token = new_token()
    async with EnvServer("game:*", token) as server:
        served = [f"remote:{server.url}#{game}" for game in GAMES]
        async with chaos.dispatcher(
            2, runtime_env={"env_vars": {"PALESTRA_TOKEN": token, "PALESTRA_TOKEN_HOST": "127.0.0.1"}}
        ) as workers:
            played = [t async for t in workers.rollout(served, "random", RolloutOptions(n=125, seed=3))]
    assert digest(played) == expected


def test_workers_do_not_give_way_to_everything_else(ray: Any) -> None:
    assert ray.get(ray.remote(lambda: os.nice(0)).remote()) == os.nice(0)


@pytest.mark.gate
async def test_killed_workers_and_actors_cost_time_and_nothing_else(ray: Any) -> None:
    outcome = await chaos.kill_ray_workers(6)
    assert outcome.kills == 6
    assert outcome.unaccounted == 0
    assert digest(outcome.played) == digest(await chaos.played_here(outcome.issued, f"{chaos.HERE}:Patient"))


async def test_environments_go_where_their_resources_are(ray: Any) -> None:
    pools = (Pool(match="*Sudoku*", workers=1, cpus=2.0, runtime_env={"env_vars": {"MARK": "1"}}), Pool(workers=1))
    async with Dispatcher(RayProvider(), ClusterConfig(pools=pools)) as workers:
        played = [t async for t in workers.rollout(GAMES, "random", RolloutOptions(n=10, seed=3))]
        assert len(workers.workers) == 2
    assert digest(played) == digest(collect(GAMES, "random", n=10, seed=3, progress=False))


@pytest.mark.gate
def test_nobody_enters_without_the_token(ray: Any) -> None:
    address = ray.get_runtime_context().gcs_address
    code = f"from palestra.cluster.rays import connect; connect({address!r}); print('in')"
    for token, works in ((os.environ["RAY_AUTH_TOKEN"], True), ("0" * 64, False)):
        environment = {**os.environ, "RAY_AUTH_TOKEN": token}
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, env=environment, capture_output=True, text=True, timeout=300
        )
        assert ("in" in done.stdout.split()) == works, done.stderr


def test_switching_authentication_off_is_remarked_upon(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.warns(UserWarning, match="run code on it"):
        connect()


async def test_killed_hosts_of_environments_cost_next_to_nothing() -> None:
    outcome = await chaos.kill_env_workers(300)
    assert outcome.kills > 5
    assert outcome.unaccounted == 0
    assert outcome.completed >= 0.99
