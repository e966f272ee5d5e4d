"""Every built-in id that needs no download, and the fingerprints of their episodes.

Run as a script, ``python every_id.py WORKERS`` plays some tasks of each in so many processes and prints one sha256 an id.
The episodes of one process are alive together and take their steps in turns, so whatever one of them leaves in a module or in a
global generator changes another, and with another number of processes it changes other ones.
"""

import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from palestra.core import Step
from palestra.envs.reasoning.ids import SLOW
from palestra.registry import EnvSpec, list_envs, make
from palestra.trajectory import Task, text_of

SMALL_WIKI = Path(__file__).parent / "games" / "small_wiki.jsonl"

LONGEST = 200


def playable() -> list[EnvSpec]:
    """The specs of all levels; ids without a level mean one of them."""
    os.environ.setdefault("PALESTRA_WIKI_CORPUS", str(SMALL_WIKI))
    known = [*list_envs("game:*"), *list_envs("rg:*"), *list_envs("math:Sums"), *list_envs("code:HumanEval*")]
    return [one for one in known if not one.missing() and (not one.level or one.id.endswith(f"-{one.level}"))]


Play = tuple[str, int, str]
"""An id, a seed and a player."""


def plays() -> list[Play]:
    return [
        (known.id, seed, player)
        for known in playable()
        for seed in range(1 if known.namespace == "code" or known.id.removeprefix("rg:") in SLOW else 3)
        for player in ("random", "oracle")
    ]


def frames(play: Play) -> Iterator[str]:
    """An episode, frame by frame."""
    id, seed, player = play
    with make(id) as env:
        observation, info = env.reset(task=Task(id, seed))
        yield repr((text_of(observation), sorted(info)))
        for _ in range(LONGEST):
            step: Step = env.step(env.oracle() if player == "oracle" else env.sample_random_action())
            yield repr((text_of(step.observation), *step[1:4], sorted(step.info)))
            if step.terminated or step.truncated:
                return


def played_together(share: list[Play]) -> dict[Play, str]:
    """The sha256 of each play, all of them under way at once."""
    running = {play: frames(play) for play in share}
    hashers = {play: hashlib.sha256() for play in share}
    while running:
        for play, episode in list(running.items()):
            frame = next(episode, None)
            if frame is None:
                del running[play]
            else:
                hashers[play].update(frame.encode("utf-8", "surrogatepass"))
    return {play: hasher.hexdigest() for play, hasher in hashers.items()}


def digests(workers: int) -> dict[str, str]:
    """One sha256 for every id, played by ``workers`` processes."""
    every = plays()
    found: dict[Play, str] = {}
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for part in pool.map(played_together, [every[place::workers] for place in range(workers)]):
            found.update(part)
    whole: dict[str, str] = {}
    for play in every:
        whole[play[0]] = hashlib.sha256((whole.get(play[0], "") + found[play]).encode()).hexdigest()
    return whole


if __name__ == "__main__":
    json.dump(digests(int(sys.argv[1])), sys.stdout)
