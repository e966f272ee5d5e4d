r"""What a reset and a step of every game cost, beside GEM's, on the same levels in the same run.

    python benchmarks/suite.py            # a few minutes
    python benchmarks/suite.py --quick    # under a minute: fewer rounds
    bash benchmarks/peers/build.sh        # once, to have GEM beside ours

Ours and GEM's take turns on one core, round by round, so that a busy machine hits both alike; a ratio is the median of the
rounds' ratios. A round is some resets with new seeds (seeding included on both sides) and up to ten random steps after each;
its figures are medians of CPU seconds. Both sides render their boards in every step. GEM's word games are lent our word list.
Left out: anything that needs a data set.
"""

import argparse
import json
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import IO, NamedTuple

from rows import Row, finish, stay_on_one_core

from palestra.core import Env
from palestra.registry import spec
from palestra.suite.games.words import common_words, rare_words

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
ROUND = 200
"""Resets in a round: so many that caches are as warm as they are in a rollout."""
SLOW = {"game:Sokoban-v0-hard": 1, "game:Sokoban-v0-easy": 5, "game:Sudoku-v0-hard": 2, "game:WordSearch-v0": 10}
"""Resets in a round of GEM's where 200 would take long, by the beginning of the id."""
STEPS = 10


class Cost(NamedTuple):
    """CPU seconds."""

    reset: float
    step: float


class Game:
    """One id of ours, made once. An episode is played before, to load word lists and tables."""

    def __init__(self, id: str) -> None:
        known = spec(id)
        env = known.factory()(**known.kwargs)
        assert isinstance(env, Env)
        self.env = env
        self.seed = 0
        self.measured(1)

    def measured(self, count: int) -> Cost:
        """The medians of ``count`` resets and their steps."""
        resets: list[float] = []
        steps: list[float] = []
        for _ in range(count):
            at = process_time()
            self.env.reset(seed=self.seed)
            resets.append(process_time() - at)
            self.seed += 1
            for _ in range(STEPS):
                action = self.env.sample_random_action()
                at = process_time()
                step = self.env.step(action)
                steps.append(process_time() - at)
                if step.terminated or step.truncated:
                    break
        return Cost(statistics.median(resets), statistics.median(steps))


class Gem:
    """GEM in a process of its own, asked line by line."""

    def __init__(self, questions: IO[str], answers: IO[str]) -> None:
        self._questions, self._answers = questions, answers

    def measured(self, id: str, count: int) -> Cost | None:
        """The medians of ``count`` resets and their steps; ``None`` where it cannot play."""
        self._questions.write(f"{id} {count}\n")
        self._questions.flush()
        said = json.loads(self._answers.readline())
        return Cost(said["reset"], said["step"]) if said else None


@contextmanager
def gem() -> Iterator[Gem | None]:
    """GEM, if it is built."""
    python = PEERS / ".venv-gem" / "bin" / "python"
    if not python.exists():
        print("peers: not built (benchmarks/peers/build.sh)")
        yield None
        return
    lend_words()
    command = [str(python), str(PEERS / "gem_suite.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield Gem(child.stdin, child.stdout)
        child.stdin.close()


def lend_words() -> None:
    """Put our word list where GEM looks for NLTK's, which it would download."""
    folder = PEERS / ".venv-gem" / "nltk_data" / "corpora" / "words"
    folder.mkdir(parents=True, exist_ok=True)
    words = [word for length in range(3, 12) for word in (*common_words(length), *rare_words(length))]
    for name in ("en", "en-basic"):
        (folder / name).write_text("\n".join(words) + "\n")


def compared(id: str, peer: Gem | None, rounds: int) -> list[Row]:
    """The rows of one id."""
    game = Game(id)
    slow = next((count for start, count in SLOW.items() if id.startswith(start)), ROUND)
    pairs = [(game.measured(min(ROUND, 10 * slow)), peer.measured(id, slow) if peer else None) for _ in range(rounds)]
    reset, step = (statistics.median(mine[field] for mine, _ in pairs) for field in (0, 1))
    rows = [Row(f"{id} reset, µs", reset * 1e6, ""), Row(f"{id} step, µs", step * 1e6, "")]
    both = [(mine, other) for mine, other in pairs if other is not None]
    if both:
        least = ">= 20" if id in FAR_FASTER else ">= 1"
        ratios = [statistics.median(other[field] / mine[field] for mine, other in both) for field in (0, 1)]
        rows.append(Row(f"{id} reset, GEM over ours", ratios[0], least))
        rows.append(Row(f"{id} step, GEM over ours", ratios[1], ">= 1"))
    return rows


def sokoban_tail(resets: int) -> float:
    """The 99th percentile of Sokoban's hard resets, in milliseconds."""
    game = Game("game:Sokoban-v0-hard")
    times = []
    for seed in range(resets):
        at = process_time()
        game.env.reset(seed=seed)
        times.append(process_time() - at)
    return 1000 * statistics.quantiles(times, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under 50 s")
    parser.add_argument("ids", nargs="*", help="parts of the ids to measure; all if none is given")
    chosen = parser.parse_args()
    stay_on_one_core()
    ids = [id for id in IDS if not chosen.ids or any(part in id for part in chosen.ids)]
    with gem() as peer:
        rows = [row for id in ids for row in compared(id, peer, 5 if chosen.quick else 15)]
    rows.append(Row("Sokoban-hard reset p99, ms", sokoban_tail(100 if chosen.quick else 1000), "<= 20"))
    finish(rows)


if __name__ == "__main__":
    main()
