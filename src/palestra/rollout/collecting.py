"""``rollout`` for callers who block."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Unpack

from palestra.rollout.scheduler import AnyPolicy, RolloutOptions, rollout
from palestra.rollout.supply import Envs
from palestra.trajectory import Trajectory
from palestra.views import LoopThread

__all__ = ["collect"]


def collect(
    envs: Envs, policy: AnyPolicy, *, progress: bool | None = None, **options: Unpack[RolloutOptions]
) -> list[Trajectory]:
    """Play episodes to the end and return all trajectories, in the order of tasks and members.

    Shows a progress bar on a terminal, unless ``progress`` says otherwise. Works inside a notebook too.
    """
    show = sys.stderr.isatty() if progress is None else progress
    trajectories = _run_anywhere(_collect(envs, policy, show, options))
    return sorted(trajectories, key=lambda one: (one.group, one.member))


async def _collect(envs: Envs, policy: AnyPolicy, show: bool, options: RolloutOptions) -> list[Trajectory]:
    if not show:
        return [trajectory async for trajectory in rollout(envs, policy, **options)]
    from rich.progress import Progress

    n = options.get("n")
    total = None if n is None else n * options.get("group_size", 1)
    collected: list[Trajectory] = []
    with Progress() as bar:
        task = bar.add_task("playing", total=total)
        async for trajectory in rollout(envs, policy, **options):
            collected.append(trajectory)
            bar.advance(task)
    return collected


def _run_anywhere(work: Coroutine[Any, Any, list[Trajectory]]) -> list[Trajectory]:
    """Run ``work`` here, or on the background loop if this thread has an event loop already (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    thread = LoopThread.hold()
    try:
        return thread.run(work)
    finally:
        thread.release()
