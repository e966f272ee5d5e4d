"""AgentDojo's suites: the oracle on all 97 tasks, without and under attack, determinism, 20,000 actions, cost per task."""

from time import process_time

from rows import Row
from survival import survival_rows
from tests.suite.same_everywhere import BOTH, different_hashes
from tests.suite.tool_worlds import frames, hostile_player, oracle_plays

from palestra import make

__all__ = ["rows"]

TASKS = {"workspace": 40, "travel": 20, "banking": 16, "slack": 21}
IDS = [f"tools:dojo-{suite}{suffix}" for suite in TASKS for suffix in ("", "-attacked")]


def rows(quick: bool) -> list[Row]:
    """The rows of this world."""
    suites = {"banking": 16} if quick else TASKS
    total = sum(suites.values())
    with make(f"tools:dojo-{next(iter(suites))}") as env:
        env.reset(seed=0)  # imports the package
    began = process_time()
    solved = sum(tasks - len(oracle_plays(f"tools:dojo-{suite}", range(tasks)).failed) for suite, tasks in suites.items())
    seconds = process_time() - began
    secure = [security(suite, 2 if quick else 40) for suite in suites]
    ids = ["tools:dojo-banking", "tools:dojo-banking-attacked"] if quick else IDS
    found = [
        Row("tasks that the oracle solves", solved, f">= {total - 1}"),
        Row("oracle, CPU ms per task", 1000 * seconds / total, ""),
        Row("security of the oracle under attack", sum(secure) / len(secure), ">= 1"),
        *survival_rows(ids, 50 if quick else 10_000, hostile_player()),
    ]
    return found if quick else [*found, same_everywhere()]


def same_everywhere() -> Row:
    """Each process imports the package, which takes 7 s of CPU time: too long for ``--quick``."""
    return Row("different sha256 of the same episodes", different_hashes(IDS, seeds=10, wandering=BOTH), "<= 1")


def security(suite: str, tasks: int) -> float:
    """The mean security of the oracle, which never does what an attacker wants."""
    id = f"tools:dojo-{suite}-attacked"
    total = 0.0
    with make(id) as env:
        for index in range(tasks):
            *_, last = frames(env, (id, index, "oracle"))
            total += last.info["metrics"]["security"]
    return total / tasks
