"""BFCL's multi-turn tasks: the oracle on all 800, the leaderboard's verdict, determinism, 20,000 actions, cost per step."""

from time import process_time

from rows import Row
from survival import survival_rows
from tests.suite.same_everywhere import BOTH, EVERY_CASE, different_hashes
from tests.suite.tool_worlds import hostile_player, oracle_plays
from tests.worlds.bfcl.differential import disagreements

IDS = [f"tools:bfcl-{category}" for category in ("base", "miss-func", "miss-param", "long-context")]


def rows(quick: bool) -> list[Row]:
    began = process_time()
    tasks = 20 if quick else 200
    solved = [oracle_plays(id, range(tasks)) for id in IDS]
    seconds = process_time() - began
    right = sum(one.tasks - len(one.failed) for one in solved)
    differing, _ = disagreements(40 if quick else 2000, 0)
    cases = [(2, "0"), (2, "1")] if quick else EVERY_CASE
    different = different_hashes(IDS, seeds=1 if quick else 20, wandering=BOTH, cases=cases)
    return [
        Row("tasks that the oracle solves", right, f">= {4 * tasks}"),
        Row("oracle, CPU ms per task", 1000 * seconds / (4 * tasks), ""),
        Row("verdicts that differ from the leaderboard's", len(differing), "<= 0"),
        Row("different sha256 of the same episodes", different, "<= 1"),
        *survival_rows(IDS, 100 if quick else 10_000, hostile_player()),
    ]
