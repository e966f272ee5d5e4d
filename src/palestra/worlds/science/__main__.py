"""Compute gold paths of the panels that ``data/gold.json.gz`` does not have: ``python -m palestra.worlds.science``.

The file gets each path that solves its game within the turn limit, and names the others, with the score of their path. The next
run finds the paths that an interrupted one has computed in the user's Palestra folder.
"""

import argparse
import asyncio
from time import monotonic

from palestra.worlds.science.gold import Followed, Gold, compute_path, follow, known_path, read_gold, shortened, write_gold
from palestra.worlds.science.jvm import Jvm
from palestra.worlds.science.panels import panel_games
from palestra.worlds.science.shared import SharedState
from palestra.worlds.science.simulator import Simulator
from palestra.worlds.science.tasks import TASKS, Game


def solution(shared: SharedState, game: Game) -> Followed:
    """Return the path of a game, as it was played from the start."""
    path = known_path(game, "") or compute_path(shared, game, "")
    simulator = Simulator(shared)
    try:
        return follow(simulator, game, "", shortened(path))
    finally:
        simulator.free()


async def complete(gold: Gold, games: list[Game], seconds: float) -> Gold:
    """Return ``gold`` with the paths of more of ``games``. Starts no path after ``seconds``."""
    jvm, until = Jvm(), monotonic() + seconds
    try:
        for game in games:
            if monotonic() > until:
                break
            path, score = await jvm.call(solution, game)
            if score == 100 and len(path) <= TASKS[game.task].max_turns:
                gold.paths[game] = path
            else:
                gold.short[game] = score
            print(f"{game.task} {game.variation}: {len(path)} actions, score {score}", flush=True)
    finally:
        jvm.end()
    return gold


def main() -> None:
    """Complete the file as far as the time goes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--seconds", type=float, default=600, help="start no path after this many seconds, 600 by default")
    parser.add_argument("--only", default="", help="only tasks whose name begins so")
    chosen = parser.parse_args()
    gold = read_gold()
    games = [game for game in panel_games() if game not in gold.paths and game not in gold.short]
    wanted = [game for game in games if game.task.startswith(chosen.only)]
    write_gold(asyncio.run(complete(gold, wanted, chosen.seconds)))
    print(f"{len(gold.paths)} paths, {len(gold.short)} that do not solve their game; {len(wanted)} were missing")


if __name__ == "__main__":
    main()
