"""TextWorld's challenges: oracle, constant replies and random play, determinism, 20,000 actions, cost per step over TextWorld.

Games are made once and kept in the Palestra folder (``PALESTRA_HOME``). To make one takes a few seconds of CPU time; the full
size needs about 250 games.
"""

from collections import Counter
from time import process_time

from rows import Row, interleaved
from survival import survival_rows
from tests.suite.same_everywhere import different_hashes
from tests.worlds.textworld.plays import LEVELS, bare_game, hostile_player, oracle_wins

from palestra import make
from palestra.trajectory import Task

__all__ = ["rows"]

SMALL = ["text:coin-easy", "text:simple-easy"]


def rows(quick: bool) -> list[Row]:
    """The rows of this world."""
    ids, tasks, actions, games = (SMALL, 1, 100, 1) if quick else (LEVELS, 17, 10_000, 3)
    found = [Row(f"{id}: won by the oracle, of {tasks} games", oracle_wins(id, range(tasks)), f">= {tasks}") for id in ids]
    if not quick:
        found += [Row(f"{id}: best constant reply of the oracle's, {tasks} games", constant(id, tasks), "") for id in ids]
        found += [Row(f"{id}: random commands, {tasks} games", random_score(id, tasks), "") for id in ids]
        different = different_hashes(ids, seeds=3, wandering=8)
        found.append(Row("different sha256 of the same episodes", different, "<= 1"))
    found += survival_rows(ids, actions, hostile_player(), games)
    bare, ours, ratio = cost(ids, 3 if quick else 11)
    found.append(Row("CPU per step of TextWorld, µs", bare * 1e6, ""))
    found.append(Row("CPU per step, µs", ours * 1e6, ""))
    found.append(Row("CPU per step over TextWorld, same commands", ratio, "<= 1.3"))
    return found


def solution(id: str, seed: int) -> list[str]:
    """The commands of the oracle."""
    commands = []
    with make(id) as env:
        env.reset(task=Task(id, seed))
        ended = False
        while not ended:
            commands.append(env.oracle())
            step = env.step(commands[-1])
            ended = step.terminated or step.truncated
    return commands


def constant(id: str, tasks: int) -> float:
    """The best mean score of a command that is repeated, among the twelve that are in most of the oracle's solutions."""
    frequent = Counter(command for seed in range(tasks) for command in set(solution(id, seed)))
    return max(mean_score(id, tasks, command) for command, _ in frequent.most_common(12))


def mean_score(id: str, tasks: int, command: str) -> float:
    total = 0.0
    with make(id) as env:
        for seed in range(tasks):
            env.reset(task=Task(id, seed))
            for _ in range(6):  # more repetitions change nothing
                step = env.step(command)
                total += step.reward
                if step.terminated or step.truncated:
                    break
    return total / tasks


def random_score(id: str, tasks: int) -> float:
    total = 0.0
    with make(id) as env:
        for seed in range(tasks):
            env.reset(task=Task(id, seed))
            ended = False
            while not ended:
                step = env.step(env.sample_random_action())
                total += step.reward
                ended = step.terminated or step.truncated
    return total / tasks


def cost(ids: list[str], rounds: int) -> tuple[float, float, float]:
    """CPU seconds per step of TextWorld and of ours with the same commands, and their ratio: ``look`` between the oracle's."""
    commands = {id: [part for command in solution(id, 0) for part in ("look", command.lower())][:20] for id in ids}
    steps = sum(map(len, commands.values()))

    def spent(bare: bool) -> float:
        total = 0.0
        for id in ids:
            with make(id) as env:
                env.reset(task=Task(id, 0))
                game = bare_game(env.unwrapped) if bare else env
                began = process_time()
                for command in commands[id]:
                    game.step(command)
                total += process_time() - began
                if bare:
                    game.close()
        return total / steps

    return interleaved(lambda: spent(True), lambda: spent(False), rounds)
