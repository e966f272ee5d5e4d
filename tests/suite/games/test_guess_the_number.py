import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.guess_the_number import GuessTheNumber


@given(st.integers(0, 2**32), st.lists(st.integers(0, 14), min_size=1, max_size=8), st.integers(1, 8))
def test_the_answers_are_true(seed: int, guesses: list[int], max_turns: int) -> None:
    game = GuessTheNumber(2, 12, max_turns)
    game.reset(seed=seed)
    target, seen = game.target, set[int]()
    for turn, guess in enumerate(guesses, start=1):
        step = game.step(f"\\boxed{{{guess}}}")
        inside = 2 <= guess <= 12
        if guess == target:
            assert step[1:4] == (1.0, True, False)
            return
        word = "outside" if not inside else "before" if guess in seen else "higher" if guess < target else "lower"
        assert word in str(step.observation)
        if inside:
            seen.add(guess)
        if turn == max_turns:
            assert step.reward == pytest.approx(1 - abs(guess - target) / 10 if inside else 0.0)
            assert step[2:4] == (False, True)
            return
        assert step[1:4] == (0.0, False, False)


def test_the_random_level_draws_gems_ranges() -> None:
    game, seen = GuessTheNumber(None, None, None), set[int]()
    for seed in range(300):
        game.reset(seed=seed)
        assert 1 <= game.low <= 10
        assert 5 <= game.high - game.low <= 50
        assert game.low <= game.target <= game.high
        assert game.max_turns == math.ceil(math.sqrt(game.high - game.low)) + 1
        seen.add(game.high - game.low)
    assert len(seen) > 40
