"""``collect``: the blocking form of ``rollout``."""

import sys
from collections.abc import Container, Sequence

from palestra.adapters.loop_thread import run_anywhere
from palestra.core import Tool
from palestra.foundation.notebooks import ProgressLine, in_notebook
from palestra.registry import WrapperFactory
from palestra.rollouts.defaults import CONCURRENCY, DEADLINE, RETRIES, TASKS_PER_ENV
from palestra.rollouts.options import AnyPolicy, RolloutOptions
from palestra.rollouts.scheduler import episode_keys, play_episodes
from palestra.rollouts.supply import Envs
from palestra.trajectory import Trajectory

__all__ = ["collect"]


def collect(
    envs: Envs,
    policy: AnyPolicy,
    *,
    progress: bool | None = None,
    n: int | None = None,
    group_size: int = 1,
    concurrency: int = CONCURRENCY,
    seed: int = 0,
    deadline: float = DEADLINE,
    max_turns: int | None = None,
    retries: int = RETRIES,
    wrappers: Sequence[WrapperFactory | str] = (),
    tools: Sequence[Tool | str] = (),
    cut_as_invalid: bool = False,
    skip: Container[tuple[int, int]] = (),
) -> list[Trajectory]:
    """Play episodes to the end and return all trajectories, in the order of the tasks and of the episodes per task.

    This is the blocking verb; it also works in a notebook. ``rollout`` is async and yields each trajectory as its episode ends.

    Args:
        envs: An id, a pattern (``"game:*-easy"``), a list of these, an environment class, or explicit ``Task`` objects.
        policy: A policy, a function of text, ``"random"`` or ``"oracle"``; or a mapping with one of these for each player.
        progress: Draw a progress bar on standard error; by default in a terminal and in a notebook.
        n: Tasks per environment; by default 100. If ``envs`` are explicit tasks: how many of them; by default all.
        group_size: Episodes per task.
        concurrency: Episodes played at the same time.
        seed: Tasks and all random choices are derived from this seed.
        deadline: Seconds per episode.
        max_turns: Truncate episodes after this many actions.
        retries: Further attempts per episode after infrastructure failures.
        wrappers: Wrappers of every environment, innermost first: classes, functions, or names such as ``TurnLimit?turns=3``.
        tools: Tools that the agent may call in every environment: objects, or names such as ``python`` or ``module:name``.
        cut_as_invalid: See ``rollout``.
        skip: Episodes, as (group, member), not to play.

    Example::

        trajectories = palestra.collect("game:Mastermind-v0-easy", "oracle", n=20)
    """
    show = sys.stderr.isatty() or in_notebook() if progress is None else progress
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
    trajectories = run_anywhere(_collect(envs, policy, show, options))
    return sorted(trajectories, key=lambda one: (one.group, one.member))


async def _collect(envs: Envs, policy: AnyPolicy, show: bool, options: RolloutOptions) -> list[Trajectory]:
    if not show:
        return [trajectory async for trajectory in play_episodes(envs, policy, options)]
    if in_notebook():
        return await _collect_in_notebook(envs, policy, options)
    from rich.console import Console
    from rich.progress import Progress

    collected: list[Trajectory] = []
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("playing", total=_total(envs, options))
        async for trajectory in play_episodes(envs, policy, options):
            collected.append(trajectory)
            bar.advance(task)
    return collected


async def _collect_in_notebook(envs: Envs, policy: AnyPolicy, options: RolloutOptions) -> list[Trajectory]:
    line, total, collected = ProgressLine("playing"), _total(envs, options), list[Trajectory]()
    async for trajectory in play_episodes(envs, policy, options):
        collected.append(trajectory)
        line.show(len(collected), total)
    return collected


def _total(envs: Envs, options: RolloutOptions) -> int | None:
    """The number of episodes; ``None`` if it is not known before they are played."""
    named = len(episode_keys(envs, options)[1])
    return named * (options.n or TASKS_PER_ENV) * options.group_size or None
