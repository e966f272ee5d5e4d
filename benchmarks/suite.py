r"""What a reset and a step of every game cost, beside GEM's, on the same levels in the same run.

    python benchmarks/suite.py            # a few minutes
    python benchmarks/suite.py --quick    # under a minute: fewer resets
    bash benchmarks/peers/build.sh        # once, to have GEM beside ours

Both sides play random actions of their own on seeds 0, 1, 2, …; times are CPU seconds, medians over resets and over steps.
GEM's word games are lent our word list; games that it cannot play here are shown without a ratio. Left out: anything that needs
a data set.
"""

import argparse
import json
import statistics
import subprocess
from pathlib import Path
from time import process_time
from typing import NamedTuple

from rows import Row, finish

from palestra.core import Env
from palestra.envs.games.words import common_words, rare_words
from palestra.registry import spec

PEERS = Path(__file__).parent / "peers"
GAMES = (
    *("GuessTheNumber", "Mastermind", "Minesweeper", "Wordle", "FifteenPuzzle", "Hangman", "Sudoku", "TowerofHanoi"),
    *("Game2048", "Sokoban", "Crosswords", "WordSearch"),
)
IDS = [f"game:{name}-v0-{level}" for name in GAMES for level in ("easy", "hard")]
FAR_FASTER = (
    "game:Sudoku-v0-hard",
    "game:Sokoban-v0-easy",
    "game:Sokoban-v0-hard",
    "game:WordSearch-v0-easy",
    "game:WordSearch-v0-hard",
)
"""Whose resets must be twenty times faster."""


class Cost(NamedTuple):
    """CPU seconds."""

    reset: float
    step: float


def ours(id: str, resets: int) -> Cost:
    """The medians of ours. One episode is played before, to load word lists and tables."""
    known = spec(id)
    env = known.factory()(**known.kwargs)
    assert isinstance(env, Env)
    play(env, 10**6, [], [])
    reset_times: list[float] = []
    step_times: list[float] = []
    for seed in range(resets):
        play(env, seed, reset_times, step_times)
    return Cost(statistics.median(reset_times), statistics.median(step_times))


def play(env: Env, seed: int, reset_times: list[float], step_times: list[float]) -> None:
    at = process_time()
    env.reset(seed=seed)
    reset_times.append(process_time() - at)
    for _ in range(10):
        action = env.sample_random_action()
        at = process_time()
        step = env.step(action)
        step_times.append(process_time() - at)
        if step.terminated or step.truncated:
            return


def sokoban_tail(resets: int) -> float:
    """The 99th percentile of Sokoban's hard resets, in milliseconds."""
    known = spec("game:Sokoban-v0-hard")
    env = known.factory()(**known.kwargs)
    assert isinstance(env, Env)
    times = []
    for seed in range(resets):
        at = process_time()
        env.reset(seed=seed)
        times.append(process_time() - at)
    return 1000 * statistics.quantiles(times, n=100)[98]


def lend_words() -> None:
    """Put our word list where GEM looks for NLTK's, which it would download."""
    folder = PEERS / ".venv-gem" / "nltk_data" / "corpora" / "words"
    folder.mkdir(parents=True, exist_ok=True)
    words = [word for length in range(3, 12) for word in (*common_words(length), *rare_words(length))]
    for name in ("en", "en-basic"):
        (folder / name).write_text("\n".join(words) + "\n")


def theirs(seconds: float) -> dict[str, Cost | None]:
    """GEM's medians; empty if it is not built."""
    python = PEERS / ".venv-gem" / "bin" / "python"
    if not python.exists():
        print("peers: not built (benchmarks/peers/build.sh)")
        return {}
    lend_words()
    command = [str(python), str(PEERS / "gem_suite.py"), str(seconds), *IDS]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    return {id: Cost(cost["reset"], cost["step"]) if cost else None for id, cost in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer resets: under 50 s")
    quick = parser.parse_args().quick
    gem = theirs(0.2 if quick else 2.0)
    rows = []
    for id in IDS:
        mine, other = ours(id, 20 if quick else 200), gem.get(id)
        rows += [Row(f"{id} reset, µs", mine.reset * 1e6, ""), Row(f"{id} step, µs", mine.step * 1e6, "")]
        if other is not None:
            least = ">= 20" if id in FAR_FASTER else ">= 1"
            rows.append(Row(f"{id} reset, GEM over ours", other.reset / mine.reset, least))
            rows.append(Row(f"{id} step, GEM over ours", other.step / mine.step, ">= 1"))
    rows.append(Row("Sokoban-hard reset p99, ms", sokoban_tail(100 if quick else 1000), "<= 20"))
    finish(rows)


if __name__ == "__main__":
    main()
