import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.games.hangman import Hangman
from palestra.envs.games.words import common_words


@given(
    st.integers(0, 2**32), st.lists(st.sampled_from([*"aeiourstlnbcd", "cat", "dog", "the", "fours"]), min_size=1, max_size=12)
)
def test_moves_follow_the_rules(seed: int, guesses: list[str]) -> None:
    game = Hangman(3, 10)
    game.reset(seed=seed)
    secret, tried, shown = game.secret, set[str](), ["_"] * 3
    for turn, guess in enumerate(map(str.upper, guesses), start=1):
        step = game.step(f"\\boxed{{{guess}}}")
        before = shown.count("_")
        if guess == secret:
            shown = list(secret)
        elif len(guess) == 1 and guess not in tried:
            shown = [letter if letter == guess else mark for letter, mark in zip(secret, shown, strict=True)]
        tried.add(guess)
        won = "_" not in shown
        assert step.reward == pytest.approx(0.5 * (before - shown.count("_")) / 3 + 0.5 * won)
        assert f"The word: {' '.join(shown)}" in str(step.observation)
        assert (step.terminated, step.truncated) == (won, not won and turn == 10)
        if won or turn == 10:
            return


def solved_share(length: int, turns: int, words: tuple[str, ...]) -> float:
    solved = 0
    for word in words:
        game = Hangman(length, turns)
        game.reset(seed=0)
        game.secret = word.upper()
        step = game.step(game.oracle())
        while not (step.terminated or step.truncated):
            step = game.step(game.oracle())
        solved += step.info["success"]
    return solved / len(words)


@pytest.mark.slow
def test_the_oracle_is_as_strong_as_it_says() -> None:
    assert solved_share(7, 20, common_words(7)[::90]) == 1.0
    assert solved_share(5, 15, common_words(5)[::70]) == 1.0
    assert solved_share(3, 10, common_words(3)) == pytest.approx(0.84, abs=0.01)


def test_the_floor_is_what_the_best_constant_letter_scores() -> None:
    words = common_words(7)
    best = max(sum(0.5 * word.count(letter) / 7 for word in words) / len(words) for letter in "abcdefghijklmnopqrstuvwxyz")
    assert Hangman(7, 20).floor == pytest.approx(best)


def test_hardcore_draws_rare_words_too() -> None:
    game, rare = Hangman(7, 20, hardcore=True), 0
    for seed in range(30):
        game.reset(seed=seed)
        rare += game.secret.lower() not in common_words(7)
    assert rare > 5
