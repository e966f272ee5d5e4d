"""The rows of the crafting worlds: every goal by the oracle, determinism, hostile actions, cost of a step."""

import hashlib
import json
import os
import random
import subprocess
import sys
from itertools import product
from multiprocessing import get_context
from time import process_time

from rows import Row

from palestra.checking.hostile import GROWING, SHORT
from palestra.core import Env
from palestra.registry import list_envs, make, spec
from palestra.trajectory import Task

IDS = [known.id for known in list_envs("craft:*")]
PIECES = [
    "get",
    "craft",
    "using",
    "inventory",
    "Action:",
    ",",
    " ",
    "\n",
    "1",
    "0",
    "99999999",
    "-1",
    "planks",
    "stick",
    "٣",
    "\ud800",
]


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` plays fewer episodes and actions."""
    count = 300 if quick else 10_000
    return [
        Row("goals of Minecraft that the oracle crafts, of 544", minecraft_solved(), ">= 544"),
        Row("share of invented tasks that the oracle solves", invented_solved(10 if quick else 200), ">= 1"),
        Row("different sha256 over workers and hash seeds", determinism(quick), "<= 1"),
        Row(f"{count} random actions per family, rewards out of range", surprises("random", count), "<= 0"),
        Row(f"{count} hostile actions per family, rewards out of range", surprises("hostile", count), "<= 0"),
        Row("step, mean over the oracle's plans, µs CPU", step_cost(200 if quick else 2000), "<= 30"),
    ]


def solved(env: Env, task: Task) -> float:
    """The score of the oracle."""
    env.reset(task=task)
    while True:
        step = env.step(env.oracle())
        if step.terminated or step.truncated:
            return step.reward


def minecraft_solved() -> float:
    total = 0.0
    for known in list_envs("craft:minecraft-depth*"):
        found = known.read_rows()
        assert found is not None
        with make(known.id) as env:
            total += sum(solved(env, Task(known.id, 0, index=index)) for index in range(len(found)))
    return total


def invented_solved(tasks: int) -> float:
    scores = []
    for known in list_envs("craft:invented-*"):
        with make(known.id) as env:
            scores += [solved(env, Task(known.id, seed)) for seed in range(tasks)]
    return sum(scores) / len(scores)


def surprises(kind: str, count: int) -> float:
    """Rewards out of range; an exception ends the benchmark."""
    rng = random.Random(0)
    texts = [*SHORT.values(), *(grow(300) for grow in GROWING.values())]
    wrong = taken = seed = 0
    while taken < count:
        id = IDS[seed % len(IDS)]
        with make(id) as env:
            env.reset(task=Task(id, seed))
            seed += 1
            ended = False
            while not ended and taken < count:
                made = rng.choice(texts) if taken % 2 else " ".join(rng.choices(PIECES, k=rng.randrange(12)))
                step = env.step(env.sample_random_action() if kind == "random" else made)
                taken += 1
                wrong += not 0.0 <= step.reward <= 1.0
                ended = step.terminated or step.truncated
    return wrong


def step_cost(steps: int) -> float:
    """CPU seconds of ``step`` alone, in millionths, over the commands of the oracle."""
    spent = 0.0
    taken = seed = 0
    envs: list[Env] = []
    for id in IDS:
        env = spec(id).factory()(**spec(id).kwargs)
        assert isinstance(env, Env)
        envs.append(env)
    while taken < steps:
        env = envs[seed % len(envs)]
        env.reset(seed=seed)
        actions, ended = [], False
        while not ended:
            actions.append(env.oracle())
            ended = env.step(actions[-1]).terminated
        env.reset(seed=seed)
        seed += 1
        at = process_time()
        for action in actions:
            env.step(action)
        spent += process_time() - at
        taken += len(actions)
    return spent / taken * 1e6


def episodes(share: list[tuple[str, int, str]]) -> list[str]:
    """One sha256 per episode."""
    found = []
    for id, seed, player in share:
        with make(id) as env:
            seen = [str(env.reset(task=Task(id, seed))[0])]
            ended = False
            while not ended:
                step = env.step(env.oracle() if player == "oracle" else env.sample_random_action())
                seen.append(repr(step[:4]))
                ended = step.terminated or step.truncated
            found.append(hashlib.sha256("\n".join(seen).encode()).hexdigest())
    return found


def digest(workers: int, seeds: int) -> str:
    """One sha256 over all episodes, played by ``workers`` processes."""
    plays = [(id, seed, player) for id in IDS for seed in range(seeds) for player in ("oracle", "random")]
    with get_context("fork").Pool(workers) as pool:
        parts = pool.map(episodes, [plays[place::workers] for place in range(workers)])
    ordered = [parts[place % workers][place // workers] for place in range(len(plays))]
    return hashlib.sha256("".join(ordered).encode()).hexdigest()


def determinism(quick: bool) -> float:
    """The number of different digests over 1, 2 and 8 workers and two hash seeds."""
    found = set()
    for workers, seed in [(1, "1"), (2, "4242")] if quick else product((1, 2, 8), ("1", "4242")):
        command = [sys.executable, __file__, str(workers), "1" if quick else "10"]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        found.add(json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout))
    return len(found)


if __name__ == "__main__":
    json.dump(digest(int(sys.argv[1]), int(sys.argv[2])), sys.stdout)
