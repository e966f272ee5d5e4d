import asyncio
import contextlib
import sys
from collections import Counter

import pytest

from palestra import Task
from palestra.errors import UsageError
from palestra.registry import Need, list_envs, register, unregister
from palestra.rollouts.supply import EPISODES_PER_ENV, Supply, tasks_of
from palestra.wrappers import TurnLimit
from tests.rollouts.faulty import Pooled, Slow
from tests.test_core import Dice

POOLED = Task("tests.rollouts.faulty:Pooled", 1)
DICE = "tests.test_core:Dice"


async def test_light_environments_are_built_for_one_episode() -> None:
    async with Supply([lambda env: TurnLimit(env, 2)]) as supply:
        env = await supply.acquire(Task(DICE))
        assert isinstance(env, TurnLimit)
        await supply.give_back(Task(DICE), env, sound=True)
        assert await supply.acquire(Task(DICE)) is not env


async def test_costly_ones_are_kept_until_they_are_worn_out() -> None:
    Pooled.begin()
    async with Supply() as supply:
        for _ in range(EPISODES_PER_ENV + 1):
            await supply.give_back(POOLED, await supply.acquire(POOLED), sound=True)
        assert (Pooled.built, Pooled.closed) == (2, 1)
    assert Pooled.closed == 2


async def test_one_that_failed_is_closed_at_once() -> None:
    Pooled.begin()
    async with Supply() as supply:
        await supply.give_back(POOLED, await supply.acquire(POOLED), sound=False)
        assert Pooled.closed == 1
        await supply.acquire(POOLED)
    assert Pooled.built == 2


@pytest.mark.parametrize("plan", ["ill", "raise in healthy", "hang in healthy"])
@pytest.mark.filterwarnings("ignore:a pooled Pooled failed its health check")
async def test_one_that_is_not_healthy_is_closed_and_replaced(plan: str) -> None:
    Pooled.begin()
    async with Supply() as supply:
        await supply.give_back(POOLED, await supply.acquire(POOLED), sound=True)
        Pooled.plan = plan
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await supply.acquire(POOLED)
        assert (Pooled.built, Pooled.closed) == (1 if "hang" in plan else 2, 1)


@pytest.mark.parametrize(
    ("plan", "told"), [("raise in close", "failed: RuntimeError"), ("hang in close", "took more than 0.05 s")]
)
async def test_every_pooled_one_is_closed_even_if_one_will_not(plan: str, told: str) -> None:
    Pooled.begin(plan)
    supply = Supply(patience=0.05)
    async with supply:
        lent = [await supply.acquire(POOLED) for _ in range(3)]
        late = lent.pop()
        for env in lent:
            await supply.give_back(POOLED, env, sound=True)
        with pytest.warns(UserWarning, match=f"closing a pooled Pooled {told}"):
            await supply.__aexit__(None, None, None)
    assert Pooled.closed == 2
    Pooled.plan = ""
    await supply.give_back(POOLED, late, sound=True)
    assert Pooled.closed == 3, "what comes back after the end is not kept"


@pytest.mark.parametrize(("left", "seconds"), [(None, 0.05), (KeyError, 0.01)])
async def test_a_rollout_that_was_left_waits_less_for_environments_that_hang(
    monkeypatch: pytest.MonkeyPatch, left: type[BaseException] | None, seconds: float
) -> None:
    monkeypatch.setattr(sys.modules["palestra.rollouts.supply"], "STOPPED_PATIENCE", 0.01)
    Pooled.begin("hang in close")
    supply = Supply(patience=0.05)
    await supply.give_back(POOLED, await supply.acquire(POOLED), sound=True)
    with pytest.warns(UserWarning, match=f"took more than {seconds:g} s"):
        await supply.__aexit__(left, None, None)


def test_tasks_are_drawn_in_turn_and_do_not_depend_on_the_company() -> None:
    tasks, specs = tasks_of([DICE, "game:GuessTheNumber-v0"], 3, seed=3)
    drawn = list(tasks)
    assert [task.env for task in drawn] == [DICE, "game:GuessTheNumber-v0"] * 3
    assert [env_spec.id for env_spec in specs] == [DICE, "game:GuessTheNumber-v0"]
    assert [task for task in drawn if task.env == DICE] == list(tasks_of(DICE, 3, seed=3)[0])
    assert len({task.seed for task in drawn}) == 6


def test_an_id_named_twice_is_played_twice_as_often_on_other_tasks() -> None:
    drawn = list(tasks_of([DICE, DICE, "game:GuessTheNumber-v0"], 20, seed=0)[0])
    assert sum(task.env == DICE for task in drawn) == 40
    assert len(set(drawn)) == 60


def test_a_pattern_means_every_id_that_matches_and_can_run_here() -> None:
    tasks, specs = tasks_of(["game:Maze-v0*", DICE], 2, seed=3)
    ids = ["game:Maze-v0", *(env_spec.id for env_spec in list_envs("game:Maze-v0-*"))]
    assert sorted(env_spec.id for env_spec in specs) == sorted([*ids, DICE])
    assert len(list(tasks)) == 2 * len(specs)
    with pytest.raises(UsageError, match='no environment matches "game:Nothing-'):
        tasks_of("game:Nothing-*", 1, 0)
    missing = Need(label="Something", module="nowhere.to.be.found")
    for name, needs in (("here", ()), ("lacking", (missing,))):
        register(f"pattern:{name}", Dice, needs=needs)
    try:
        with pytest.warns(UserWarning, match="left out, because they cannot run here .*: pattern:lacking"):
            assert [env_spec.id for env_spec in tasks_of("pattern:*", 1, 0)[1]] == ["pattern:here"]
        with pytest.raises(UsageError, match="pattern:lacking cannot run here"):
            tasks_of("pattern:l*", 1, 0)
    finally:
        unregister("pattern:here")
        unregister("pattern:lacking")


def test_a_class_or_the_very_tasks() -> None:
    tasks, (env_spec,) = tasks_of(Slow, 2, seed=0)
    assert [task.env for task in tasks] == ["tests.rollouts.faulty:Slow"] * 2
    assert env_spec.entry is Slow
    given = [Task(DICE, i) for i in range(5)]
    assert list(tasks_of(given, None, 0)[0]) == given
    assert list(tasks_of(iter(given), 2, 0)[0]) == given[:2]
    assert next(tasks_of(lambda: Dice(), 1, 0)[0]).env.endswith("<lambda>")
    drawn, _ = tasks_of([DICE, "math:Sums"], None, 0)
    assert Counter(task.env for task in drawn) == {DICE: 100, "math:Sums": 100}
    with pytest.raises(UsageError, match="expected ids or Tasks to play, got a int"):
        list(tasks_of([7], None, 0)[0])  # type: ignore[arg-type]
