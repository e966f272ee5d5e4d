import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.games.wordle import Wordle, marks
from palestra.envs.games.words import common_words

PAIRS = st.integers(1, 6).flatmap(lambda length: st.tuples(*[st.text("ABC", min_size=length, max_size=length)] * 2))


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


@given(PAIRS)
def test_letters_are_marked_as_in_the_newspaper(pair: tuple[str, str]) -> None:
    assert marks(*pair) == slow_marks(*pair)


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


def test_the_floor_is_what_the_best_constant_word_scores() -> None:
    words = [word.upper() for word in common_words(3)]

    def score(guess: str) -> float:
        return sum(0.5 * slow_marks(guess, secret).count("G") / 3 + 0.5 * (guess == secret) for secret in words) / len(words)

    floor = Wordle(3, 15).floor
    assert floor >= max(map(score, words[::3])) - 1e-9
    assert floor <= max(map(score, words)) + 0.05  # a string of the commonest letters may beat every real word
    assert Wordle(None, None).floor < floor


def test_the_oracle_takes_the_guess_that_tells_the_most() -> None:
    turns = []
    for word in common_words(3)[::9]:
        game = Wordle(3, 15)
        game.reset(seed=0)
        game.secret = word.upper()
        while not game.step(game.oracle()).terminated:
            pass
        turns.append(game.turn)
    assert sum(turns) / len(turns) < 5.5  # it takes 4.7; with the guess that tells the least, 6.2
