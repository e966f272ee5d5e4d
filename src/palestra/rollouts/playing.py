"""``play``: one episode, for a program that owns the loop over episodes, such as another trainer."""

from collections.abc import Mapping, Sequence

from palestra.core import Tool
from palestra.errors import UsageError
from palestra.registry import WrapperFactory
from palestra.rollouts.defaults import DEADLINE, RETRIES
from palestra.rollouts.episode import EpisodeKey
from palestra.rollouts.options import AnyPolicy, RolloutOptions, check_whole_number
from palestra.rollouts.scheduler import EpisodeRunner
from palestra.trajectory import Task, Trajectory

__all__ = ["play"]


async def play(
    task: Task,
    policy: AnyPolicy,
    *,
    group: int = 0,
    member: int = 0,
    seed: int = 0,
    deadline: float = DEADLINE,
    max_turns: int | None = None,
    retries: int = RETRIES,
    wrappers: Sequence[WrapperFactory | str] = (),
    tools: Sequence[Tool | str] = (),
    cut_as_invalid: bool = False,
) -> Trajectory:
    """Play one episode and return its trajectory.

    The environment is made for this episode and closed exactly once. A failure does not raise an exception: ``stop`` and
    ``failures`` of the trajectory say what happened. To play many episodes of expensive environments, keep them in the pool of
    an ``EpisodeRunner``, or use ``rollout``.

    Args:
        task: The task to play. ``Task("game:GuessTheNumber-v0", seed=3)`` is enough.
        policy: A policy, a function of text, ``"random"`` or ``"oracle"``.
        group: The number of the group that the episode belongs to. It is recorded, and seeds the policy.
        member: The number of the episode in its group. It is recorded, and seeds the policy.
        seed: The policy's random choices are derived from this seed, the group and the member.
        deadline: Seconds for the episode, from building the environment to closing it.
        max_turns: Truncate the episode after this many actions; by default only the environment's own limit applies.
        retries: Further attempts after infrastructure failures.
        wrappers: Wrappers of the environment, innermost first: classes, functions, or names such as ``TurnLimit?turns=3``.
        tools: Tools that the agent may call: objects, or names such as ``python`` or ``module:name``.
        cut_as_invalid: See ``rollout``.

    Raises:
        UsageError: Several players acted. Use ``rollout``, which yields one trajectory per player.

    Example::

        trajectory = await palestra.play(palestra.Task("game:GuessTheNumber-v0", 3), policy)
    """
    for name, number in (("group", group), ("member", member)):
        check_whole_number(name, number)
    options = RolloutOptions(
        seed=seed,
        deadline=deadline,
        max_turns=max_turns,
        retries=retries,
        wrappers=wrappers,
        tools=tools,
        cut_as_invalid=cut_as_invalid,
    )
    if isinstance(policy, Mapping):
        raise UsageError("play() returns the trajectory of one player; use rollout() for several policies")
    async with EpisodeRunner(policy, options) as runner:
        trajectories = await runner.play(EpisodeKey(task, seed, group, member))
    if len(trajectories) > 1:
        names = ", ".join(one.player for one in trajectories)
        raise UsageError(f'"{task.env}" has several players ({names}); use rollout(), which yields one trajectory per player')
    return trajectories[0]
