"""GEM's resets and steps in CPU seconds, asked for over standard input; runs in the peers' venv.

A line ``ID RESETS`` comes in, a line of JSON goes out: the medians of so many resets and of their steps, or ``null`` where GEM
cannot play here. Seeds go on from one question to the next.
"""

import json
import random
import statistics
import sys
from time import process_time

import gem

STEPS = 10


class Game:
    """One id, made once."""

    def __init__(self, id):
        self.env = gem.make(id)
        self.id = id
        self.seed = 0

    def measured(self, count):
        resets, steps = [], []
        for _ in range(count):
            at = process_time()
            self.env.reset(seed=self.seed)
            resets.append(process_time() - at)
            self.seed += 1
            for _ in range(STEPS):
                action = self.chosen()
                at = process_time()
                _, _, terminated, truncated, _ = self.env.step(action)
                steps.append(process_time() - at)
                if terminated or truncated:
                    break
        return {"reset": statistics.median(resets), "step": statistics.median(steps)}

    def chosen(self):
        """A random action; of the same kind as ours where GEM has none."""
        if "Hanoi" in self.id:
            return f"\\boxed{{{' '.join(random.sample('ABC', 2))}}}"
        if "Sudoku" in self.id:
            board = self.env.unwrapped.board
            side = range(len(board))
            row, column = random.choice([(row, column) for row in side for column in side if not board[row][column]])
            return f"\\boxed{{{row + 1} {column + 1} {random.choice(side) + 1}}}"
        return self.env.sample_random_action()


def main():
    games = {}
    for line in sys.stdin:
        id, count = line.split()
        try:
            if id not in games:
                games[id] = Game(id)
                games[id].measured(1)
            said = games[id].measured(int(count))
        except Exception as error:  # noqa: BLE001 - a game raises anything; it is printed
            said = None
            print(f"{id}: {error!r}", file=sys.stderr, flush=True)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
