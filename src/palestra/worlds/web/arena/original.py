"""A task of WebArena: its goal in Palestra's browser, graded as WebArena defines it.

118 of its 812 tasks need a language model that reads the answer. Without a judge they are not graded at all, since an episode
that only sometimes has a score would bias a mean: such an episode is an error of the grader, and its reset says so before
anything is played. The tasks stay in the list, so that a seed means the same task with a judge and without one. An episode
seeded with ``s`` plays the task at place ``s`` of the list, so that seeds 0 to 811 play each task once. At the turn limit, the
answer is empty, and the checks of pages and addresses are made.
"""

from collections.abc import Callable, Mapping
from typing import Any

from palestra.authoring.graders import FunctionGrader
from palestra.core import Step
from palestra.errors import GraderError, UsageError
from palestra.foundation.references import resolve
from palestra.trajectory import StopReason
from palestra.worlds.web.arena.grading import Ending, answer_passes, pages_pass
from palestra.worlds.web.arena.playing import Arena
from palestra.worlds.web.arena.tasks import WebTask, read_tasks
from palestra.worlds.web.arena.worker import original_tasks
from palestra.worlds.web.browsers import answered
from palestra.worlds.web.sites.errands import Errand
from palestra.worlds.web.sites.page import ROUNDS, open_page, rest

__all__ = ["WebArena"]

PAGES_SECONDS = 300.0
"""The grader of a task may open several pages."""
_ANSWER = "End with stop, and the answer in its brackets if the task asks for one. Write N/A if the task cannot be done."


class WebArena(Arena):
    """Tasks of WebArena.

    Args:
        addresses: Name of a site, such as ``shopping``, to its address, which begins with ``http://``.
        data: A file of tasks in the format of WebArena. Without it, they come from the package webarena-verified.
        judge: A function, or its ``module:name``, plain or async: ``judge(answer, row)`` returns whether the answer means
            ``row["answer"]``, for the task ``row["question"]``. If ``row["kind"]`` is ``"reason"``, the task cannot be done,
            and the answer must name this reason. A plain function runs in a thread. A judge that does not answer within 300 s
            is an error of the grader.
        staff: Name and password of an administrator of the shop: some tasks are graded by the shop's REST API.
        options: Arguments of ``Arena``.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        *,
        data: str = "",
        judge: str | Callable[[str, dict[str, Any]], Any] | None = None,
        staff: tuple[str, str] = ("admin", "admin1234"),
        **options: Any,
    ) -> None:
        super().__init__(addresses, **options)
        self._data = data
        function = resolve(judge) if isinstance(judge, str) else judge
        self._judge = None if function is None else FunctionGrader(function, in_thread=True)
        self._staff = staff
        self._all: list[WebTask] = []

    async def _drawn(self, seed: int) -> tuple[Errand, int]:
        if not self._all:
            self._all = read_tasks(self._data or await original_tasks(), dict(self.addresses))
        playable = [task for task in self._all if task.starts]
        if not playable:
            raise UsageError("no task has only sites whose address is known: see the argument addresses")
        self.arena = playable[self.task.seed % len(playable)]
        if self.arena.needs_judge and self._judge is None:
            raise GraderError(
                f"task {self.arena.id} of WebArena is not graded: a judge has to read its answer, see the argument judge"
            )
        return self._errand(self.arena.id, f"{self.arena.goal}\n{_ANSWER}", self.arena.starts, seed)

    async def _graded(self, answer: str, *, stopped: bool) -> Step:
        visit = self._visit
        visit.sites.require_alive()
        shop = dict(self.addresses).get("shopping", "")
        page = visit.tab.page

        async def opened(address: str) -> str:
            problem = await open_page(page, address, visit.access)
            for _ in range(0 if problem else ROUNDS):
                await rest(page, visit.access)
            return problem

        ending = Ending(page, visit.sites, opened, lambda: rest(page, visit.access), shop.rstrip("/"), self._staff)
        success = await answer_passes(self.arena, answer, self._judge)  # a judge has a deadline of its own
        if success:
            async with answered(PAGES_SECONDS):
                success = await pages_pass(self.arena, ending)
        info: dict[str, Any] = {"success": success, "template": self.errand.template}
        if stopped:
            return Step("The episode has ended.", float(success), True, False, info)
        info["stop_reason"] = StopReason.TURN_LIMIT
        return Step("You have used all actions.", float(success), False, True, info)
