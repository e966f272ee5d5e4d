"""``rollout``: the streaming verb.

Every ``import palestra`` passes here, so what plays the episodes, and the types of the arguments, are imported late.
"""

from collections.abc import AsyncGenerator, Container, Sequence
from typing import TYPE_CHECKING

from palestra.rollouts.defaults import CONCURRENCY, DEADLINE, RETRIES

if TYPE_CHECKING:
    from palestra.core import Tool
    from palestra.registry.specs import WrapperFactory
    from palestra.rollouts.options import AnyPolicy
    from palestra.rollouts.supply import Envs
    from palestra.trajectory import Trajectory

__all__ = ["rollout"]


def rollout(
    envs: "Envs",
    policy: "AnyPolicy",
    *,
    n: int | None = None,
    group_size: int = 1,
    concurrency: int = CONCURRENCY,
    seed: int = 0,
    deadline: float = DEADLINE,
    max_turns: int | None = None,
    retries: int = RETRIES,
    wrappers: "Sequence[WrapperFactory | str]" = (),
    tools: "Sequence[Tool | str]" = (),
    cut_as_invalid: bool = False,
    skip: Container[tuple[int, int]] = (),
) -> "AsyncGenerator[Trajectory, None]":
    """Play episodes and yield each trajectory as its episode ends, in the order of completion.

    This is the async, streaming verb. ``collect`` blocks and returns all trajectories as a list, in the order of the tasks.
    An episode with several players yields one trajectory per player. A failed episode is yielded too: its ``stop`` and
    ``failures`` say what happened.

    Args:
        envs: An id, a pattern (``"game:*-easy"``), a list of these, an environment class, or explicit ``Task`` objects.
        policy: A policy, a function of text, ``"random"`` or ``"oracle"``; or a mapping with one of these for each player.
        n: Tasks per environment; by default 100. If ``envs`` are explicit tasks: how many of them; by default all.
        group_size: Episodes per task. The episodes of one task share a group number.
        concurrency: Episodes played at the same time.
        seed: Tasks and all random choices are derived from this seed.
        deadline: Seconds per episode, from building the environment to closing it.
        max_turns: Truncate episodes after this many actions; by default only the environment's own limit applies.
        retries: Further attempts per episode after infrastructure failures.
        wrappers: Wrappers of every environment, innermost first: classes, functions, or names such as ``TurnLimit?turns=3``.
        tools: Tools that the agent may call in every environment: objects, or names such as ``python`` or ``module:name``.
        cut_as_invalid: When the token limit or the context cuts a turn, step the environment with an empty action and record
            the reward it pays. By default the environment does not see the turn, and the turn pays 0.
        skip: Episodes, as (group, member), not to play: a resumed run has them already.

    Example::

        async for trajectory in palestra.rollout("game:*-easy", "random", n=10):
            print(trajectory.task.env, trajectory.reward)
    """
    from palestra.rollouts.options import RolloutOptions
    from palestra.rollouts.scheduler import play_episodes

    options = RolloutOptions(
        n=n,
        group_size=group_size,
        concurrency=concurrency,
        seed=seed,
        deadline=deadline,
        max_turns=max_turns,
        retries=retries,
        wrappers=wrappers,
        tools=tools,
        cut_as_invalid=cut_as_invalid,
        skip=skip,
    )
    return play_episodes(envs, policy, options)
