# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra", "gem-llm==0.1.0"]
# ///
"""Palestra's environments for a program that uses GEM: ``uv run --find-links dist examples/train_with_gem.py``.

Two lines are new in a program of yours: the import and ``register_in_gem``. Everything else is GEM's own idiom, as ROLL and
Oat use it. The learner here is a table of guesses, so that the file runs in seconds on a CPU.
"""

import random
import re

import gem

from palestra.bridges.gem import register_in_gem

register_in_gem("game:*")
ENV = "palestra:game:GuessTheNumber-v0-easy"
EPISODES, WORKERS = 400, 4


def bounds(observations: list[str]) -> tuple[int, int]:
    """Read from the answers so far between which numbers the secret lies."""
    low, high = 1, 10
    for text in observations[1:]:
        for number in map(int, re.findall(r"higher than (\d+)", text)):
            low = max(low, number + 1)
        for number in map(int, re.findall(r"lower than (\d+)", text)):
            high = min(high, number - 1)
    return low, max(low, high)


def main() -> None:
    """Learn which share of the interval to guess at: an epsilon-greedy bandit over nine shares."""
    chance = random.Random(0)
    paid: dict[int, list[float]] = {share: [] for share in range(1, 10)}
    env = gem.make_vec([ENV] * WORKERS, seed=0)
    shown, _ = env.reset(seed=0)
    seen, arms = [[text] for text in shown], [chance.choice(list(paid)) for _ in range(WORKERS)]
    totals, ended = [0.0] * WORKERS, []
    while len(ended) < EPISODES:
        guesses = []
        for worker in range(WORKERS):
            low, high = bounds(seen[worker])
            guesses.append(f"\\boxed{{{low + (high - low) * arms[worker] // 10}}}")
        shown, rewards, terminated, truncated, _ = env.step(guesses)
        for worker in range(WORKERS):
            totals[worker] += float(rewards[worker])
            if not (terminated[worker] or truncated[worker]):
                seen[worker].append(shown[worker])
                continue
            paid[arms[worker]].append(totals[worker])
            ended.append(totals[worker])
            greedy = max(paid, key=lambda share: sum(paid[share]) / max(1, len(paid[share])))
            explore = chance.random() < 1 - len(ended) / EPISODES
            seen[worker], totals[worker] = [shown[worker]], 0.0
            arms[worker] = chance.choice(list(paid)) if explore else greedy
    half = EPISODES // 4
    print(f"mean reward: first {sum(ended[:half]) / half:.2f}, last {sum(ended[-half:]) / half:.2f}")


if __name__ == "__main__":
    main()
