"""The household tasks at full size: oracle, search by text, random and hostile actions, determinism, cost per step."""

from time import process_time
from typing import Any

from house_searcher import Searcher
from mishaps import mishap_rows
from rows import Row
from tests.suite.same_everywhere import different_hashes

from palestra import make
from palestra.adapters import Guarded
from palestra.checking.hostile import SHORT
from palestra.foundation.seeding import derive
from palestra.trajectory import Task
from palestra.worlds.house.commands import possible_commands
from palestra.worlds.house.env import Household
from palestra.worlds.house.goals import TASKS

__all__ = ["rows"]

LEVELS = [f"house:{task}-{level}" for task in TASKS for level in ("easy", "hard")]
TEXTS = list(SHORT.values())
VERBS = ("{}", "go to {}", "open {}", "take {} from {}", "move {} to {}", "heat {} with {}", "use {}", "examine {}")


def rows(quick: bool) -> list[Row]:
    """The rows of this world."""
    tasks, actions = (10, 500) if quick else (200, 10_000)
    solved = {id: sum(solves(id, seed) for seed in range(tasks)) for id in LEVELS}
    found = [Row(f"{id}: solved by the oracle, share of {tasks} tasks", solved[id] / tasks, ">= 1") for id in LEVELS]
    found += [Row(f"{id}: solved by random play, share of {tasks} tasks", random_share(id, tasks), "") for id in LEVELS]
    found += [Row(f"{id}: solved by a player that reads only the text", searched(id, tasks), ">= 1") for id in LEVELS]
    found += mishap_rows([id for id in LEVELS if id.endswith("-hard")], actions, hostile_text, longest=0.05)
    found.append(Row("different sha256 of the same episodes", same_everywhere(quick), "<= 1"))
    found.append(Row("CPU per step, µs", step_cost(5 if quick else 40), "<= 30"))
    return found


def finish(env: Guarded, act: str) -> float:
    """The reward of the last step of an episode."""
    while True:
        step = env.step(env.oracle() if act == "oracle" else env.sample_random_action())
        if step.terminated or step.truncated:
            return step.reward


def solves(id: str, seed: int) -> bool:
    with make(id) as env:
        env.reset(task=Task(id, seed))
        return finish(env, "oracle") == 1.0


def random_share(id: str, tasks: int) -> float:
    with make(id) as env:
        total = 0.0
        for seed in range(tasks):
            env.reset(task=Task(id, seed))
            total += finish(env, "random")
    return total / tasks


def searched(id: str, tasks: int) -> float:
    with make(id) as env:
        return sum(Searcher(env).play(str(env.reset(task=Task(id, seed))[0])) for seed in range(tasks)) / tasks


def hostile_text(chance: Any, env: Guarded) -> str:
    """A verb with a hostile text, or with a piece of a possible command."""
    action = env.sample_random_action()
    text = TEXTS[int(chance.random() * len(TEXTS))]
    word = VERBS[int(chance.random() * len(VERBS))]
    cut = action[: int(chance.random() * len(action))]
    return word.replace("{}", text if chance.random() < 0.7 else cut)


def same_everywhere(quick: bool) -> int:
    """How many different hashes 1, 2 and 8 workers with two hash seeds give."""
    if quick:
        return different_hashes(LEVELS, seeds=2, wandering=15, cases=[(1, "0"), (2, "1")])
    return different_hashes(LEVELS, seeds=50, wandering=15)


def step_cost(rounds: int) -> float:
    """The least mean CPU time of a step over some rounds: random play and then the oracle's commands, on the hard levels."""
    best = float("inf")
    for _ in range(rounds):
        spent, steps = 0.0, 0
        for number, task in enumerate(TASKS):
            env = Household(task, "hard", 50)
            env.reset(seed=number)
            actions = recorded(env)
            env.reset(seed=number)
            began = process_time()
            for action in actions:
                env.step(action)
            spent += process_time() - began
            steps += len(actions)
        best = min(best, spent / steps * 1e6)
    return best


def recorded(env: Household) -> list[str]:
    """The actions of an episode: 30 random ones, then the oracle's."""
    actions = []
    chance = derive(1, "recorded")
    for turn in range(49):
        listed = possible_commands(env.house)
        actions.append(listed[int(chance.random() * len(listed))] if turn < 30 else env.oracle())
        if env.step(actions[-1]).terminated:
            break
    return actions
