"""Hangman: find a secret word letter by letter."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache

from palestra.suite.games.game import Game, MoveOutcome, boxed, require
from palestra.suite.games.words import common_words, letters_only, rare_words

__all__ = ["Hangman"]

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((3, 10), (5, 15), (7, 20))
"""Letters, turns."""

_STRENGTH = {(3, 10): 0.8869}
"""Score of the oracle where it cannot find every word, averaged over all 274 words."""

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Hangman(Game[str]):
    """Guess letters of a word, or the word itself. Only the number of turns is limited; wrong letters have no other cost.

    Each revealed letter pays 0.5/letters, and the complete word pays 0.5 more: 1 in total. ``hardcore`` adds rare words. If
    ``word_length`` or ``max_turns`` is ``None``, each task draws both. The oracle knows the list of words and guesses the
    letter that separates the remaining ones best. It finds every word of 5 and 7 letters, but only 84 % of the words of 3
    letters, because many of them are alike.
    """

    def __init__(self, word_length: int | None = 7, max_turns: int | None = 20, hardcore: bool = False) -> None:
        if word_length is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(3 <= word_length <= 10 and max_turns >= 1, "word_length must be 3 to 10 and max_turns at least 1")
            self._levels = ((word_length, max_turns),)
        self.hardcore = hardcore

    @property
    def ceiling(self) -> float | None:
        if self.hardcore or not any(level in _STRENGTH for level in self._levels):
            return None
        return sum(_STRENGTH.get(level, 1.0) for level in self._levels) / len(self._levels)

    @property
    def floor(self) -> float:
        # The same letter at every turn counts once and is then refused.
        def score(letter: str) -> float:
            return sum(0.5 * _share(letter, length, self.hardcore) for length, _ in self._levels) / len(self._levels)

        return max(map(score, _ALPHABET))

    def begin(self) -> None:
        self.length, self.max_turns = self.draw(self._levels)
        self.secret = self.draw(_words(self.length, self.hardcore))
        self.board = ["_"] * self.length
        self.tried: list[str] = []
        """The guessed letters and words, in order."""

    def rules(self) -> str:
        return (
            f"You are playing Hangman.\n"
            f"Find the secret English word of {self.length} letters within {self.max_turns} turns. Guess one letter, and it is "
            f"shown wherever it stands in the word; or guess the whole word.\n"
            f"Think as long as you like, then give your guess inside \\boxed{{}}, for example {boxed('A')} or "
            f"{boxed(_words(self.length, False)[0])}."
        )

    def view(self) -> str:
        tried = " ".join(self.tried)
        return f"The word: {' '.join(self.board)}" + (f"\nGuessed so far: {tried}" if tried else "")

    def read(self, answer: str) -> str | None:
        return letters_only(answer)

    def play(self, move: str) -> MoveOutcome:
        if len(move) not in (1, self.length):
            return MoveOutcome(f"At turn {self.turn}, you guessed {len(move)} letters, but the word has {self.length}.")
        said = f"At turn {self.turn}, you guessed {move}, "
        if move in self.tried:
            return MoveOutcome(f"{said}which you had guessed before.")
        self.tried.append(move)
        if len(move) > 1 and move != self.secret:
            return MoveOutcome(f"{said}which is not the word.")
        fresh = [place for place, letter in enumerate(self.secret) if letter in move and self.board[place] == "_"]
        for place in fresh:
            self.board[place] = self.secret[place]
        reward = 0.5 * len(fresh) / self.length
        if "_" not in self.board:
            return MoveOutcome(f"{said}and the word is complete. Well done!", reward + 0.5, solved=True)
        return MoveOutcome(f"{said}which stands in the word {len(fresh)} time(s).", reward)

    def oracle(self) -> str:
        # In a place that is still hidden, none of the tried letters can stand.
        gone = "".join(guess for guess in self.tried if len(guess) == 1)
        pattern = "".join(self.board).replace("_", f"[^{gone}]" if gone else ".")
        fits = re.compile(pattern).fullmatch
        fitting = [word for word in _words(self.length, self.hardcore) if fits(word) and word not in self.tried]
        last = self.turn + 1 == self.max_turns
        return boxed(fitting[0] if last or len(fitting) <= 2 else _telling(fitting, self.tried))

    def sample_random_action(self) -> str:
        if self.action_rng.random() < 0.1:
            return boxed(self.draw_action(_words(self.length, self.hardcore)))
        return boxed(self.draw_action(_ALPHABET))


@cache
def _words(length: int, hardcore: bool) -> tuple[str, ...]:
    listed = common_words(length) + (rare_words(length) if hardcore else ())
    return tuple(word.upper() for word in listed)


@cache
def _share(letter: str, length: int, hardcore: bool) -> float:
    """Return the average share of ``letter`` in a word."""
    words = _words(length, hardcore)
    return sum(word.count(letter) for word in words) / (length * len(words))


def _telling(fitting: Sequence[str], tried: Collection[str]) -> str:
    """Return the letter that leaves the fewest words to choose from, on average over the words that fit."""
    shown = {letter: Counter[int]() for letter in _ALPHABET if letter not in tried}
    for word in fitting:
        places: dict[str, int] = {}
        for place, letter in enumerate(word):
            places[letter] = places.get(letter, 0) | 1 << place
        for letter, where in places.items():
            if letter in shown:
                shown[letter][where] += 1

    def left(letter: str) -> int:
        # Words that show the letter in the same places, or nowhere, stay together.
        together = shown[letter].values()
        return sum(count * count for count in together) + (len(fitting) - sum(together)) ** 2

    return min(shown, key=left)
