"""The same episodes in any number of processes and with any hash seed, small in tests and at full size in ``benchmarks/``.

Run as a script, ``python same_everywhere.py WORKERS SEEDS WANDERING ID…`` plays the first SEEDS seeds of each id in WORKERS
processes and prints one sha256 for all episodes. The first WANDERING turns are random; the oracle finishes.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context

from palestra.registry import make
from palestra.trajectory import Task, text_of

LONGEST = 60
"""Turns after which an episode counts as played."""
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
            hasher.update(repr((action, *step[:4])).encode())
            if step.terminated or step.truncated:
                break
    return hasher.hexdigest()


def fingerprints(workers: int, seeds: int, wandering: int, ids: Sequence[str]) -> str:
    """One sha256 over all episodes, played by ``workers`` processes."""
    plays = list(product(ids, range(seeds), [wandering]))
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return hashlib.sha256("".join(pool.map(fingerprint, *zip(*plays, strict=True), chunksize=3)).encode()).hexdigest()


def different_hashes(ids: Sequence[str], *, seeds: int, wandering: int, cases: Iterable[tuple[int, str]] = EVERY_CASE) -> int:
    """How many different hashes the cases give, each in a process of its own."""
    found = set()
    for workers, hash_seed in cases:
        variables = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, __file__, str(workers), str(seeds), str(wandering), *ids]
        found.add(subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout)
    return len(found)


if __name__ == "__main__":
    print(fingerprints(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
