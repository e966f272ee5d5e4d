"""A learner, its workers and a replica, each a process that Ray placed."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palestra.cluster.config import ClusterConfig, Pool
from palestra.cluster.learner import LearnerActor, Learning, _say_if_short, train_on_cluster
from palestra.durable.ledger import Ledger
from palestra.errors import UsageError
from palestra.recipes.config import TrainConfig
from tests.cluster.learning import learning, metrics, train_under_fire

pytestmark = [pytest.mark.torch, pytest.mark.ray, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

GAME = "game:GuessTheNumber-v0-easy"


@pytest.fixture(scope="module")
def config(tiny_model: Path) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(tiny_model)},
        "envs": {GAME: 1.0},
        "steps": 4,
        "staleness": 1,
        "play": {"tasks": 4, "group_size": 2, "max_tokens": 6},
        "engine": {"batch": 16, "rows": 16},
        "advantage": {"method": "rebn", "discount": 0.9},
        "checkpoint_every": 1,
    }
    return msgspec.convert(data, TrainConfig)


@pytest.mark.gate
@pytest.mark.parametrize(("replicas", "ranks"), [(1, 1), (0, 2)])
async def test_a_run_on_ray_accounts_for_everything_and_no_token_is_too_old(
    ray: Any, config: TrainConfig, tmp_path: Path, replicas: int, ranks: int
) -> None:
    run = msgspec.structs.replace(learning(config, tmp_path), replicas=replicas, ranks=ranks)
    shown: list[int] = []
    assert await train_on_cluster(run, show=lambda metrics: shown.append(metrics["step"])) == 0
    assert shown == [1, 2, 3, 4]
    with Ledger(tmp_path / "ledger") as ledger:
        books = ledger.audit()
    assert books.balanced
    assert books.issued == books.committed == 4 * 4 * 2
    assert [one["step"] for one in metrics(tmp_path)] == [1, 2, 3, 4]
    assert all(one["staleness"] <= 1 for one in metrics(tmp_path))


async def test_a_run_that_can_teach_nothing_is_refused_before_its_first_step(
    ray: Any, config: TrainConfig, tmp_path: Path
) -> None:
    play = msgspec.structs.replace(config.play, max_tokens=1)
    run = learning(msgspec.structs.replace(config, play=play), tmp_path)
    with pytest.raises(UsageError, match="preflight failed"):
        await train_on_cluster(msgspec.structs.replace(run, check=True))
    assert metrics(tmp_path) == []


# If a rank is killed, the learner ends itself, and Ray starts it again, as it does if the learner is killed.
@pytest.mark.parametrize(
    ("victim", "ranks", "lives"),
    [pytest.param("LearnerActor", 1, 2, marks=pytest.mark.full), ("Rank", 2, 2), ("Replica", 1, 1)],
)
async def test_a_killed_learner_or_replica_costs_time_and_no_episode(
    ray: Any, config: TrainConfig, tmp_path: Path, victim: str, ranks: int, lives: int
) -> None:
    run = msgspec.structs.replace(learning(msgspec.structs.replace(config, steps=6), tmp_path), ranks=ranks)
    kills, deaths = await train_under_fire(run, 0.2, (victim,), most=1)
    assert (kills, deaths) == (1, lives - 1)
    with Ledger(tmp_path / "ledger") as ledger:
        books = ledger.audit()
    assert books.balanced
    assert books.committed == 6 * 4 * 2
    assert {one["step"] for one in metrics(tmp_path)} == set(range(1, 7))


async def test_who_lost_the_connection_and_asks_again_joins_the_run(config: TrainConfig, tmp_path: Path) -> None:
    begun, free = 0, asyncio.Event()

    class Waiting(LearnerActor):
        async def _train(self, learning: Learning) -> int:
            nonlocal begun
            begun += 1
            await free.wait()
            return 7

    actor, run = Waiting(), learning(config, tmp_path)
    lost, joined = (asyncio.create_task(actor.train(run)) for _ in range(2))
    await asyncio.sleep(0)
    lost.cancel()
    free.set()
    assert await joined == 7
    assert begun == 1


def test_a_run_says_what_it_waits_for() -> None:
    pools = (Pool(workers=3, cpus=0.5),)
    gpu = {"num_gpus": 1}
    run = Learning(b"", "", ClusterConfig(pools=pools), replicas=2, ranks=4, learner=gpu, replica=gpu)
    assert run.needs == {"CPU": 7.5, "GPU": 6}
    with pytest.warns(UserWarning, match="this run needs 6 GPUs and the cluster has 2: it waits"):
        _say_if_short(run.needs, {"CPU": 8.0, "GPU": 2.0})
