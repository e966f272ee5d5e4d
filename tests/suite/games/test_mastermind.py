import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.mastermind import Mastermind


def slow_pegs(guess: tuple[int, ...], code: tuple[int, ...]) -> tuple[int, int]:
    """Peg by peg, as one does it on the table."""
    mine: list[int | None] = list(guess)
    theirs: list[int | None] = list(code)
    black = white = 0
    for place in range(len(code)):
        if mine[place] == theirs[place]:
            black += 1
            mine[place] = theirs[place] = None
    for number in mine:
        if number is not None and number in theirs:
            white += 1
            theirs[theirs.index(number)] = None
    return black, white


GUESSES = st.one_of(*[st.lists(st.integers(1, 6), min_size=3, max_size=3)] * 5, st.lists(st.integers(0, 7), max_size=4))


@given(st.integers(0, 2**32), st.lists(GUESSES, min_size=1, max_size=12), st.booleans())
def test_the_answers_and_rewards_are_true(seed: int, guesses: list[list[int]], duplicates: bool) -> None:
    game = Mastermind(3, 6, 10, duplicates)
    game.reset(seed=seed)
    assert duplicates or len(set(game.code)) == 3
    best, seen = 0, set[tuple[int, ...]]()
    for turn, guess in enumerate(map(tuple, guesses), start=1):
        step = game.step(f"\\boxed{{{', '.join(map(str, guess))}}}")
        if not guess:
            assert step[1:4] == (-0.1, True, False)
            return
        legal = len(guess) == 3 and all(1 <= number <= 6 for number in guess) and guess not in seen
        black, white = slow_pegs(guess, game.code) if legal else (0, 0)
        assert step.reward == pytest.approx(max(0, black - best) / 3)
        assert not legal or black == 3 or f"{black} black and {white} white" in str(step.observation)
        best = max(best, black)
        seen |= {guess} if legal else set()
        assert (step.terminated, step.truncated) == (black == 3, black != 3 and turn == 10)
        if black == 3 or turn == 10:
            return


def test_the_random_level_draws_gems_three() -> None:
    game, seen = Mastermind(None, None, None), set[tuple[int, int, int]]()
    for seed in range(60):
        game.reset(seed=seed)
        seen.add((game.length, game.numbers, game.max_turns))
    assert seen == {(2, 4, 10), (4, 6, 20), (4, 8, 30)}
