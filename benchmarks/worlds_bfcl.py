"""BFCL's multi-turn tasks: the oracle on all 800, the leaderboard's verdict, determinism, 20,000 actions, cost per step."""

from time import process_time

from rows import Row
from tests.envs.bfcl.differential import disagreements
from tests.envs.tool_worlds import digests_elsewhere, many_actions, oracle_plays

IDS = [f"tools:bfcl-{category}" for category in ("base", "miss-func", "miss-param", "long-context")]


def rows(quick: bool) -> list[Row]:
    began = process_time()
    tasks = 20 if quick else 200
    solved = [oracle_plays(id, range(tasks)) for id in IDS]
    seconds = process_time() - began
    right = sum(one.tasks - len(one.failed) for one in solved)
    differing, _ = disagreements(40 if quick else 2000, 0)
    workers = (2,) if quick else (1, 2, 8)
    digests = set(digests_elsewhere(IDS, 1 if quick else 20, workers).values())
    actions = 25 if quick else 2500
    for id in IDS:
        many_actions(id, "random", actions)
        many_actions(id, "hostile", actions)
    return [
        Row("tasks that the oracle solves", right, f">= {4 * tasks}"),
        Row("oracle, CPU ms per task", 1000 * seconds / (4 * tasks), ""),
        Row("verdicts that differ from the leaderboard's", len(differing), "<= 0"),
        Row("digests over workers and hash seeds", len(digests), "<= 1"),
        Row("random and hostile actions without an exception", 8 * actions, f">= {8 * actions}"),
    ]
