import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.hangman import Hangman
from palestra.suite.games.words import common_words, letters_only


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


def test_the_floor_is_what_the_best_constant_letter_scores() -> None:
    words = common_words(7)
    best = max(sum(0.5 * word.count(letter) / 7 for word in words) / len(words) for letter in "abcdefghijklmnopqrstuvwxyz")
    assert Hangman(7, 20).floor == pytest.approx(best)


@pytest.mark.parametrize(
    ("answer", "word"), [(" c r\na n e ", "CRANE"), *((text, None) for text in ("", "naïve", "a1", "ſun", "ß"))]
)
def test_only_english_letters_are_read(answer: str, word: str | None) -> None:
    assert letters_only(answer) == word
