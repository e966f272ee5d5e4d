"""The same episodes in any number of processes and with any hash seed, small in tests and at full size in ``benchmarks/``.

Run as a script, ``python same_everywhere.py WORKERS SEEDS WANDERING ID…`` plays the first SEEDS seeds of each id in WORKERS
processes and prints one sha256 for all episodes. The first WANDERING turns are random; the oracle finishes. With several
numbers (``0,60``) every seed is played once with each.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context

from palestra.registry import make, spec
from palestra.trajectory import Task, text_of

LONGEST = 60
"""Turns after which an episode counts as played."""
BOTH = (0, LONGEST)
"""Turns of random play: an episode of the oracle, and one of random actions."""
EVERY_CASE = tuple(product((1, 2, 8), ("0", "1")))
"""Numbers of workers and hash seeds."""


def fingerprint(id: str, seed: int, wandering: int) -> str:
    """The sha256 of an episode: random play for ``wandering`` turns, which the oracle finishes."""
    hasher = hashlib.sha256()
    with make(id) as env:
        observation, _ = env.reset(task=Task(id, seed))
        hasher.update(text_of(observation).encode())
        for turn in range(LONGEST):
            action = env.sample_random_action() if turn < wandering else env.oracle()
            step = env.step(action)
            hasher.update(repr((action, *step)).encode())
            if step.terminated or step.truncated:
                break
    return hasher.hexdigest()


def fingerprints(workers: int, seeds: int, wandering: Iterable[int], ids: Sequence[str]) -> str:
    """One sha256 over all episodes, played by ``workers`` processes."""
    plays = list(product(ids, range(seeds), wandering))
    for id in ids:
        spec(id).read_rows()  # imports AgentDojo, which takes 12 s of CPU time, once and not in every worker
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return hashlib.sha256("".join(pool.map(fingerprint, *zip(*plays, strict=True), chunksize=3)).encode()).hexdigest()


def different_hashes(
    ids: Sequence[str], *, seeds: int, wandering: int | Iterable[int], cases: Iterable[tuple[int, str]] = EVERY_CASE
) -> int:
    """How many different hashes the cases give, each in a process of its own."""
    turns = [wandering] if isinstance(wandering, int) else wandering
    for id in ids:
        spec(id).factory()  # raises here if a package is missing, so that the test is skipped: a child could only fail
    arguments = [str(seeds), ",".join(map(str, turns)), *ids]
    found = set()
    for workers, hash_seed in cases:
        variables = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, __file__, str(workers), *arguments]
        found.add(subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout)
    return len(found)


if __name__ == "__main__":
    print(fingerprints(int(sys.argv[1]), int(sys.argv[2]), list(map(int, sys.argv[3].split(","))), sys.argv[4:]))
