r"""Programming problems. The agent writes code into a fenced block; a judge runs hidden tests on it in a box.

One answer ends the episode: its reward is 1 if every hidden test passes. In the ``-feedback`` form the agent may test its code
first: each code block runs on the *public* tests, which are part of the problem, and the agent sees the results. A message
with ``\boxed{submit}`` submits its code, or the latest code before it, to the hidden tests; so does the last turn. A
submission is final.
"""

from contextlib import AsyncExitStack
from typing import Any

from palestra.core import AsyncEnv, Step
from palestra.errors import Unsupported
from palestra.grading import fenced_code, last_boxed
from palestra.grading.code import CodeJudge
from palestra.sandbox.shared import shared_sandbox
from palestra.suite.data.drawing import DataSource, draw_row
from palestra.suite.problems import Problem, problem_of
from palestra.trajectory import Task

__all__ = ["Coding"]

_HOW = "\n\nWrite your whole solution in Python into one block that begins with ```python and ends with ```."
_HOW_TO_TRY = (
    "\nYou have {turns} messages. The code of each is run on the tests shown above and you are told how that went. "
    "When you are sure, write \\boxed{{submit}}: the code of that message, or your latest, is judged by hidden tests. "
    "Your last message is judged in any case."
)
_LANGUAGES = ("python", "py", "python3", "")


class Coding(AsyncEnv):
    """Solve one problem of the data set ``data``, at once or, with ``feedback``, in up to ``max_turns`` messages."""

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)
    counts_turns = True
    max_turns: int

    def __init__(self, data: DataSource, split: str = "", feedback: bool = False, max_turns: int = 1) -> None:
        self._data = data
        self._split = split
        self._feedback = feedback
        self.max_turns = max_turns
        self._stack = AsyncExitStack()
        self._judge: CodeJudge | None = None

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        self._begin(seed, task)
        drawn = draw_row(self._data, self._split, self.task, self.rng)
        self._problem: Problem = problem_of(drawn.row)
        self._turn = 0
        self._latest: str | None = None
        how = _HOW + (_HOW_TO_TRY.format(turns=self.max_turns) if self._feedback else "")
        return f"{self._problem.text}{how}", {"max_turns": self.max_turns, "data": drawn.provenance}

    async def step(self, action: str) -> Step:
        self._turn += 1
        code = fenced_code(action, *_LANGUAGES)
        self._latest = code or self._latest
        submitted = not self._feedback or self._turn >= self.max_turns or (last_boxed(action) or "").lower() == "submit"
        if not submitted:
            return Step(await self._tried(code), 0.0, False, False, {})
        if self._latest is None:
            told = "There is no ```python block to judge."
            return Step(told, 0.0, True, False, {"success": False, "format_error": True})
        verdict = await self._problem.hidden(await self._opened(), self._latest)
        return Step("", float(verdict.ok), True, False, {"success": verdict.ok, "killed_by": verdict.killed_by})

    async def _tried(self, code: str | None) -> str:
        if code is None:
            return "There is no ```python block in your message."
        told = await self._problem.public(await self._opened(), code)
        return told or "This problem shows no tests that can be run; your code was kept."

    async def _opened(self) -> CodeJudge:
        if self._judge is None:
            sandbox = await self._stack.enter_async_context(shared_sandbox())
            self._judge = CodeJudge(sandbox=sandbox, lenient=True)
        return self._judge

    async def close(self) -> None:
        self._judge = None
        await self._stack.aclose()

    async def oracle(self) -> str:
        if self._problem.solution is None:
            raise Unsupported(f"{self._data} has no solutions to show: there is no oracle()")
        return f"```python\n{self._problem.solution}\n```\n\\boxed{{submit}}"

    async def sample_random_action(self) -> str:
        """A program that says a small number, whatever it is asked."""
        return f"```python\n{self._problem.guess(int(self.action_rng.integers(10)))}\n```\n\\boxed{{submit}}"
