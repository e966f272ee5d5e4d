"""Random and hostile actions, counted: how many were played, what went wrong, and what whole episodes scored."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from time import process_time
from typing import Any, NamedTuple

from rows import Row

from palestra.adapters import Guarded
from palestra.foundation.seeding import derive
from palestra.registry import make
from palestra.trajectory import Task

__all__ = ["Hostile", "Played", "mishap_rows", "mishaps"]

Hostile = Callable[[Any, Guarded], str]
"""Takes a generator of random numbers and an environment, and returns a hostile action."""


class Played(NamedTuple):
    """What was played, and what was seen."""

    actions: int
    errors: int
    """Exceptions, rewards out of range, and steps of more CPU time than allowed."""
    scores: list[tuple[str, float]]
    """The id and the sum of the rewards of each episode that came to its end."""


def mishap_rows(ids: Sequence[str], actions: int, hostile: Hostile, longest: float = math.inf) -> list[Row]:
    """The rows of a world: random actions, then hostile ones, each with the number that was played and the errors seen."""
    found = []
    for kind, how in (("random", None), ("hostile", hostile)):
        played = mishaps(ids, actions, how, longest)
        found.append(Row(f"{kind} actions played", played.actions, f">= {actions}"))
        found.append(Row(f"errors in the {kind} actions", played.errors, "<= 0"))
    return found


def mishaps(ids: Sequence[str], actions: int, hostile: Hostile | None = None, longest: float = math.inf) -> Played:
    """Play ``actions`` actions in episodes of ``ids`` in turn: random ones, or those that ``hostile`` returns.

    Args:
        ids: The ids of the environments. The seeds of their tasks are 0, 1, ….
        actions: The number of actions. The last episode may be cut off.
        hostile: What makes an action; ``None`` for the environment's own random actions.
        longest: CPU seconds of this process that a step may take. A longer step is an error.
    """
    chance = derive(0, "mishaps")
    done = errors = 0
    scores = []
    for seed, id in enumerate(cycle(ids)):
        if done >= actions:
            break
        with make(id) as env:
            act = partial(hostile, chance, env) if hostile else env.sample_random_action
            turns, failed, score = _episode(env, Task(id, seed), act, actions - done, longest)
        done, errors = done + turns, errors + failed
        if score is not None:
            scores.append((id, score))
    return Played(done, errors, scores)


def _episode(env: Guarded, task: Task, act: Callable[[], str], most: int, longest: float) -> tuple[int, int, float | None]:
    """Play up to ``most`` actions of an episode. Return their number, the errors, and the score if the episode ended."""
    low, high = env.unwrapped.reward_range
    score, turn, errors = 0.0, 0, 0
    try:
        env.reset(task=task)
        for turn in range(1, most + 1):
            action = act()
            began = process_time()
            step = env.step(action)
            errors += not low <= step.reward <= high or process_time() - began > longest
            score += step.reward
            if step.terminated or step.truncated:
                return turn, errors, score
    except Exception as error:  # noqa: BLE001 - any exception counts
        print(f"{task.env}, seed {task.seed}, action {turn}: {type(error).__name__}: {error}")
        return max(turn, 1), errors + 1, None
    return turn, errors, None
