import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.wordle import Wordle


def slow_marks(guess: str, secret: str) -> str:
    """Greens first, then yellows from left to right, crossing letters of the secret out."""
    secret_letters: list[str | None] = list(secret)
    marked = ["X"] * len(guess)
    for place, letter in enumerate(guess):
        if secret[place] == letter:
            marked[place], secret_letters[place] = "G", None
    for place, letter in enumerate(guess):
        if marked[place] == "X" and letter in secret_letters:
            marked[place] = "Y"
            secret_letters[secret_letters.index(letter)] = None
    return "".join(marked)


@given(st.integers(0, 2**32), st.lists(st.text("aeinrst", min_size=1, max_size=5), min_size=1, max_size=12))
def test_rewards_count_new_green_places(seed: int, guesses: list[str]) -> None:
    game = Wordle(3, 10)
    game.reset(seed=seed)
    green, seen = set[int](), set[str]()
    for turn, guess in enumerate(guesses, start=1):
        step = game.step(f"\\boxed{{{guess}}}")
        legal = len(guess) == 3 and guess not in seen
        marked = slow_marks(guess.upper(), game.secret) if legal else ""
        now = {place for place, mark in enumerate(marked) if mark == "G"}
        found = marked == "GGG"
        assert step.reward == pytest.approx(0.5 * len(now - green) / 3 + 0.5 * found)
        assert found or not legal or " ".join(marked) in str(step.observation)
        green |= now
        seen |= {guess} if legal else set()
        assert (step.terminated, step.truncated) == (found, not found and turn == 10)
        if found or turn == 10:
            return
