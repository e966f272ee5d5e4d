"""A task of WebArena-Verified: its goal in Palestra's browser, its requests recorded, its package as the grader.

The answer is the JSON that the benchmark asks for. An episode seeded with ``s`` plays the task at place ``s`` of the list, so
that seeds 0 to 811 play each of its own tasks once.
"""

from collections.abc import Mapping
from typing import Any

from palestra.core import Step
from palestra.errors import EnvError, UsageError
from palestra.trajectory import StopReason
from palestra.worlds.web.arena.playing import Arena
from palestra.worlds.web.arena.recording import Recording
from palestra.worlds.web.arena.worker import ArenaTask, Judge, Package, shared_judge
from palestra.worlds.web.sites.errands import Errand
from palestra.worlds.web.sites.hosts import Sites

__all__ = ["WebArenaVerified"]

_ANSWER = (
    'End with stop and one JSON object in its brackets: {"task_type": "RETRIEVE", "MUTATE" or "NAVIGATE", "status": "SUCCESS" '
    'or the kind of error, "retrieved_data": a list for RETRIEVE, otherwise null, "error_details": null or a reason}.'
)


class WebArenaVerified(Arena):
    """Tasks of WebArena-Verified.

    Args:
        addresses: Name of a site, such as ``shopping``, to its address, which begins with ``http://``.
        data: A file of tasks in the format of the package. Without it, the package has 812 tasks.
        options: Arguments of ``Arena``.
    """

    def __init__(self, addresses: Mapping[str, str], *, data: str = "", **options: Any) -> None:
        super().__init__(addresses, **options)
        self._package = Package(self.addresses, data)
        self._judge: Judge | None = None

    async def _drawn(self, seed: int) -> tuple[Errand, int]:
        if self._judge is None:
            self._judge = await self._stack.enter_async_context(shared_judge(self._package))
        playable = [task for task in await self._judge.tasks() if task.starts]
        if not playable:
            raise UsageError("no task has only sites whose address is known: see the argument addresses")
        self.arena: ArenaTask = playable[self.task.seed % len(playable)]
        return self._errand(self.arena.id, f"{self.arena.goal}\n{_ANSWER}", self.arena.starts, seed)

    def _new_sites(self) -> Sites:
        return Recording(self._origins())

    async def _graded(self, answer: str, *, stopped: bool) -> Step:
        assert self._judge is not None
        sites = self._visit.sites
        assert isinstance(sites, Recording)
        sites.require_alive()
        info: dict[str, Any] = {"success": False, "template": self.errand.template}
        if not stopped:  # without an answer there is nothing to grade
            return Step("You have used all actions.", 0.0, False, True, {**info, "stop_reason": StopReason.TURN_LIMIT})
        if not sites.entries:
            raise EnvError("the episode has no request to grade")
        verdict = await self._judge.grade(self.arena.id, answer, sites.entries)
        info = {**info, "success": verdict.score >= 1.0, "graded": verdict.status}
        return Step("The episode has ended.", verdict.score, True, False, info)

    async def close(self) -> None:
        self._judge = None
        await super().close()
