"""Episodes of deep search for the tests, and their fingerprints.

Run as a script, ``python episodes.py WORKERS TASKS`` plays TASKS tasks in WORKERS processes and prints one sha256. The
episodes of a process are under way at once.
"""

import asyncio
import hashlib
import multiprocessing
import sys

from palestra.core import Step
from palestra.envs.deepsearch.env import DeepSearch
from palestra.trajectory import text_of

SMALL = 600
"""Documents of the world that the tests search."""
TURNS = 30


async def played(env: DeepSearch, seed: int, player: str = "oracle") -> list[Step]:
    """The steps of an episode."""
    await env.reset(seed=seed)
    steps: list[Step] = []
    while len(steps) < TURNS and not (steps and steps[-1].terminated):
        steps.append(await env.step(await (env.oracle() if player == "oracle" else env.sample_random_action())))
    return steps


async def _fingerprint(seed: int) -> str:
    digest = hashlib.sha256()
    for player in ("oracle", "random"):
        for step in await played(DeepSearch(hops=2 + seed % 5, documents=SMALL), seed, player):
            digest.update(repr((text_of(step.observation), *step[1:4])).encode())
    return digest.hexdigest()


def _share(seeds: list[int]) -> dict[int, str]:
    async def together() -> list[str]:
        return list(await asyncio.gather(*map(_fingerprint, seeds)))

    return dict(zip(seeds, asyncio.run(together()), strict=True))


def digest(workers: int, tasks: int) -> str:
    """One sha256 for ``tasks`` tasks, played by ``workers`` processes."""
    found: dict[int, str] = {}
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for part in pool.map(_share, [list(range(place, tasks, workers)) for place in range(workers)]):
            found.update(part)
    return hashlib.sha256("".join(found[seed] for seed in range(tasks)).encode()).hexdigest()


if __name__ == "__main__":
    print(digest(int(sys.argv[1]), int(sys.argv[2])))
