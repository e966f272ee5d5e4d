"""The floors of ScienceWorld: what a player scores who sends the same action again and again, without reading anything.

The actions are three that name something present in every room, and the most common ones of the shipped gold paths. Each is
sent three times, in games that are not for training.
"""

from collections import Counter

from rows import Row

from palestra.adapters import Guarded
from palestra.registry import make
from palestra.trajectory import Task
from palestra.worlds.science.gold import shipped_paths
from palestra.worlds.science.tasks import FLOORS

__all__ = ["floor_rows"]

ALWAYS_THERE = ("focus on air", "focus on agent", "focus on inventory")
REPEATS = 3


def floor_rows(names: list[str], games: int) -> list[Row]:
    """The best constant action of each task on some games of its test split, against the declared floor."""
    above = 0
    for name in names:
        action, score = best_constant(name, games)
        above += score > FLOORS.get(name, 0.0) + 1e-9
        if score > 0:
            print(f"science: {name}: {action!r} scores {score:.3f} on {games} games, the floor is {FLOORS.get(name, 0.0):g}")
    return [Row(f"tasks of {len(names)} where a constant action scores above the declared floor", above, "<= 0")]


def best_constant(name: str, games: int) -> tuple[str, float]:
    """The constant action with the highest mean score, and that score. An action without points in two games is dropped."""
    best = ("", 0.0)
    with make(f"science:{name}-test") as env:
        for action in constants(name):
            scores: list[float] = []
            while len(scores) < games and (len(scores) < 2 or any(scores)):
                scores.append(repeated(env, Task(f"science:{name}-test", len(scores)), action))
            best = max(best, (action, sum(scores) / games), key=lambda one: one[1])
    return best


def constants(name: str) -> list[str]:
    """The actions to try: what is always there, the five most common of the gold paths, and the three most common last ones."""
    paths = [path for game, path in shipped_paths().items() if game.task == name]
    common = Counter(action for path in paths for action in sorted(set(path))).most_common(5)
    last = Counter(path[-1] for path in paths).most_common(3)
    return list(dict.fromkeys([*ALWAYS_THERE, *(action for action, _ in (*common, *last))]))


def repeated(env: Guarded, task: Task, action: str) -> float:
    """The score of an action that is sent three times."""
    env.reset(task=task)
    score = 0.0
    for _ in range(REPEATS):
        step = env.step(f"Action: {action}")
        score += step.reward
        if step.terminated or step.truncated:
            break
    return score
