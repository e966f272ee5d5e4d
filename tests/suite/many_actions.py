"""Thousands of actions in a world: how many were taken, and what went wrong."""

from collections.abc import Callable
from typing import Any, NamedTuple

from palestra.core import Step
from palestra.registry import make
from palestra.trajectory import Task

__all__ = ["Player", "Survived", "many_actions", "random_player"]

_MOST_FAULTS = 20
"""After so many faults no more actions are taken."""

Player = Callable[[Any, dict[str, Any]], str]
"""Returns the next action from the environment and the ``info`` of its reset."""


class Survived(NamedTuple):
    """What became of many actions."""

    actions: int
    """Steps that returned what they may return."""
    episodes: int
    faults: list[str]
    """Exceptions, rewards out of range, and steps that both terminate and truncate."""


def random_player(env: Any, info: dict[str, Any]) -> str:
    """A random action of the environment's own."""
    return str(env.sample_random_action())


def many_actions(id: str, count: int, player: Player = random_player, tasks: int = 0) -> Survived:
    """Take ``count`` actions, in the first ``tasks`` tasks again and again or, without a number, each time in the next one.

    A fault counts as an action that failed. The environment is made anew after it.
    """
    actions = episodes = 0
    faults: list[str] = []
    env, ended = make(id), True
    while actions + len(faults) < count and len(faults) < _MOST_FAULTS:
        try:
            if ended:
                _, info = env.reset(task=Task(id, episodes % tasks if tasks else episodes))
                env.seed_actions(episodes)
                episodes += 1
            step = env.step(player(env, info))
            ended = _has_ended(step, env.unwrapped.reward_range)
            actions += 1
        except Exception as error:  # noqa: BLE001 - any exception counts
            faults.append(f"{id}, episode {episodes}: {type(error).__name__}: {error}")
            env.close()
            env, ended = make(id), True
    env.close()
    return Survived(actions, episodes, faults)


def _has_ended(step: Step, reward_range: tuple[float, float]) -> bool:
    low, high = reward_range
    assert low <= step.reward <= high, f"the reward {step.reward} is not between {low} and {high}"
    assert not (step.terminated and step.truncated), "the step terminates and truncates"
    return step.terminated or step.truncated
