"""The functions that play episodes for a program: ``rollout``, ``collect`` and ``play``.

``rollout``  async     yields each trajectory as its episode ends.
``collect``  blocking  plays all episodes and returns the list of trajectories. It also works in a notebook.
``play``     async     plays one episode, for a program that owns the loop over episodes, such as another trainer.
"""

import sys
from collections.abc import AsyncGenerator, Mapping
from typing import Unpack

from palestra.adapters.loop_thread import run_anywhere
from palestra.errors import UsageError
from palestra.foundation.notebooks import ProgressLine, in_notebook
from palestra.rollouts.defaults import TASKS_PER_ENV
from palestra.rollouts.episode import EpisodeKey
from palestra.rollouts.keywords import EpisodeKeywords, RolloutKeywords, shows_keywords
from palestra.rollouts.options import AnyPolicy, RolloutOptions, check_whole_number
from palestra.rollouts.scheduler import EpisodeRunner, episode_keys, play_episodes
from palestra.rollouts.supply import Envs
from palestra.trajectory import Task, Trajectory

__all__ = ["collect", "play", "rollout"]


@shows_keywords
def rollout(envs: Envs, policy: AnyPolicy, **options: Unpack[RolloutKeywords]) -> AsyncGenerator[Trajectory, None]:
    """Play episodes and yield each trajectory as its episode ends, in the order of completion.

    Async: iterate with ``async for``. ``collect`` blocks and returns all trajectories as a list, in the order of the tasks.
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
            the reward it pays. By default the environment does not see the turn, and the turn pays 0. The episode ends as cut
            either way.
        skip: Episodes, as (group, member), not to play: a resumed run has them already.

    Example::

        async for trajectory in palestra.rollout("game:*-easy", "random", n=10):
            print(trajectory.task.env, trajectory.reward)
    """
    return play_episodes(envs, policy, RolloutOptions(**options))


@shows_keywords
def collect(
    envs: Envs, policy: AnyPolicy, *, progress: bool | None = None, **options: Unpack[RolloutKeywords]
) -> list[Trajectory]:
    """Play episodes to the end and return all trajectories, in the order of the tasks and of the episodes per task.

    Blocking: it returns when the last episode has ended. It also works in a notebook, where an event loop runs already.
    ``rollout`` is async and yields each trajectory as its episode ends.

    Args:
        envs: An id, a pattern (``"game:*-easy"``), a list of these, an environment class, or explicit ``Task`` objects.
        policy: A policy, a function of text, ``"random"`` or ``"oracle"``; or a mapping with one of these for each player.
        progress: Draw a progress bar on standard error; by default in a terminal and in a notebook.
        options: The keywords of ``rollout``, such as ``n``, ``group_size`` and ``max_turns``.

    Example::

        trajectories = palestra.collect("game:Mastermind-v0-easy", "oracle", n=20)
    """
    show = sys.stderr.isatty() or in_notebook() if progress is None else progress
    trajectories = run_anywhere(_collect(envs, policy, show, RolloutOptions(**options)))
    return sorted(trajectories, key=lambda trajectory: (trajectory.group, trajectory.member))


async def _collect(envs: Envs, policy: AnyPolicy, show: bool, options: RolloutOptions) -> list[Trajectory]:
    if not show:
        return [trajectory async for trajectory in play_episodes(envs, policy, options)]
    collected: list[Trajectory] = []
    # The number of episodes; None if it is not known before they are played.
    total = len(episode_keys(envs, options)[1]) * (options.n or TASKS_PER_ENV) * options.group_size or None
    if in_notebook():
        line = ProgressLine("playing")
        async for trajectory in play_episodes(envs, policy, options):
            collected.append(trajectory)
            line.show(len(collected), total)
        return collected
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("playing", total=total)
        async for trajectory in play_episodes(envs, policy, options):
            collected.append(trajectory)
            bar.advance(task)
    return collected


@shows_keywords
async def play(
    task: Task,
    policy: AnyPolicy,
    *,
    group: int = 0,
    member: int = 0,
    cut_as_invalid: bool = False,
    **options: Unpack[EpisodeKeywords],
) -> Trajectory:
    """Play one episode and return its trajectory.

    Async: ``await`` it. The environment is made for this episode and closed exactly once. A failure does not raise an
    exception: ``stop`` and ``failures`` of the trajectory say what happened. To play many episodes of expensive environments,
    keep them in the pool of an ``EpisodeRunner``, or use ``rollout``.

    Args:
        task: The task to play. ``Task("game:GuessTheNumber-v0", seed=3)`` is enough.
        policy: A policy, a function of text, ``"random"`` or ``"oracle"``.
        group: The number of the group that the episode belongs to. It is recorded, and seeds the policy.
        member: The number of the episode in its group. It is recorded, and seeds the policy.
        cut_as_invalid: As in ``rollout``.
        options: The keywords of ``rollout`` that concern one episode: ``seed``, ``deadline``, ``max_turns``, ``retries``,
            ``wrappers`` and ``tools``. The policy's random choices are derived from ``seed``, the group and the member.

    Raises:
        UsageError: Several players acted. Use ``rollout``, which yields one trajectory per player.

    Example::

        trajectory = await palestra.play(palestra.Task("game:GuessTheNumber-v0", 3), policy)
    """
    for name, number in (("group", group), ("member", member)):
        check_whole_number(name, number)
    settings = RolloutOptions(cut_as_invalid=cut_as_invalid, **options)
    if isinstance(policy, Mapping):
        raise UsageError("play() returns the trajectory of one player; use rollout() for several policies")
    async with EpisodeRunner(policy, settings) as runner:
        trajectories = await runner.play(EpisodeKey(task, settings.seed, group, member))
    if len(trajectories) > 1:
        names = ", ".join(trajectory.player for trajectory in trajectories)
        raise UsageError(f'"{task.env}" has several players ({names}); use rollout(), which yields one trajectory per player')
    return trajectories[0]
