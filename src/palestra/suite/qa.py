r"""Questions with answers in words: open-domain questions, and statements that follow or do not.

The last ``\boxed{…}`` or, if there is none, the last ``<answer>…</answer>`` is the answer. It is right if it equals an
accepted answer, except for case, punctuation and articles. The first answer ends the episode. With the ``-search`` ids the
agent can search before it answers.
"""

import copy
from collections import Counter
from typing import Any

from palestra.core import Env, Step
from palestra.grading import exact_match, stated_answer
from palestra.grading.text import normalize
from palestra.suite.data.drawing import DataSource, draw_row, rows_of
from palestra.trajectory import Task

__all__ = ["QuestionAnswering"]

_HOW = "\n\nPut your final answer, as short as it can be, into \\boxed{}."
_FEW = 50
"""Different answers of a split above which none of them is worth guessing."""


class QuestionAnswering(Env):
    """Answer one question of the data set ``data``. The reward is 1 for an accepted answer and 0 for any other.

    Args:
        data: The data set.
        split: The split; empty for that of the task.
        instruction: The text after the question, instead of the usual one; empty for none.
        percent: The questions ask for percentages, so ``5%`` and ``5`` are equal.
        hyphens: Hyphens and slashes inside words count, so ``re-sign`` and ``resign`` differ.
    """

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)

    def __init__(
        self,
        data: DataSource,
        split: str = "",
        instruction: str | None = None,
        *,
        percent: bool = False,
        hyphens: bool = False,
    ) -> None:
        self._data = data
        self._split = split
        self._percent, self._hyphens = percent, hyphens
        self._instruction = _HOW if instruction is None else f"\n\n{instruction}" if instruction else ""

    @property
    def floor(self) -> float:
        """The share of the commonest answer: half, where the answer is yes or no."""
        _, rows = rows_of(self._data, self._split, self.task)
        counts = Counter(normalize(_accepted(row["answer"])[0]) for row in rows.rows)
        return counts.most_common(1)[0][1] / len(rows) if len(counts) <= _FEW else 0.0

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        drawn = draw_row(self._data, self._split, self.task, self.rng)
        self._answers = _accepted(drawn.row["answer"])
        return f"{str(drawn.row['question']).strip()}{self._instruction}", {"data": drawn.provenance}

    def step(self, action: str) -> Step:
        answer = stated_answer(action)
        if answer is None:
            return Step("There is no \\boxed{} answer.", 0.0, True, False, {"success": False, "format_error": True})
        right = exact_match(answer, self._answers, percent=self._percent, hyphens=self._hyphens)
        return Step("", float(right), True, False, {"success": right})

    def oracle(self) -> str:
        return f"\\boxed{{{self._answers[0]}}}"

    def sample_random_action(self) -> str:
        """The answer to another question."""
        _, rows = rows_of(self._data, self._split, self.task)
        other = rows[int(self.action_rng.integers(len(rows)))]
        return f"\\boxed{{{_accepted(other['answer'])[0]}}}"

    def fork(self) -> "QuestionAnswering":
        return copy.deepcopy(self)


def _accepted(answer: Any) -> list[str]:
    """The accepted answers, of which there may be one, given as itself, or several."""
    return [str(one) for one in answer] if isinstance(answer, list | tuple) and answer else [str(answer)]
