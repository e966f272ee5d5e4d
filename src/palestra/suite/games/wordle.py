"""Wordle: find a secret word from letters marked green, yellow and gray."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from palestra.authoring.picture import Row, Tile
from palestra.suite.games.game import Game, MoveOutcome, boxed, require
from palestra.suite.games.words import common_words, letters_only

__all__ = ["Wordle", "marks"]

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((3, 15), (4, 20), (5, 25))
"""Letters, turns."""

_FEW = 60
"""Number of candidates that can be compared with each other in a few milliseconds."""


class Wordle(Game[str]):
    """Guess a common English word. Every guess is marked letter by letter: G right place, Y elsewhere in the word, X not in it.

    A guess may be any letters of the right number. A place that turns green for the first time pays 0.5/letters, and the word
    pays 0.5 more: 1 in total. If ``word_length`` or ``max_turns`` is ``None``, each task draws both. The oracle knows the list
    of words and guesses among those that fit all marks so far.
    """

    def __init__(self, word_length: int | None = 5, max_turns: int | None = 25) -> None:
        if word_length is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(3 <= word_length <= 10 and max_turns >= 1, "word_length must be 3 to 10 and max_turns at least 1")
            self._levels = ((word_length, max_turns),)

    @property
    def floor(self) -> float:
        # A constant guess scores once, and only in tasks of its own length.
        return max(_best_blind_score(length) for length, _ in self._levels) / len(self._levels)

    def begin(self) -> None:
        self.length, self.max_turns = self.draw(self._levels)
        self.secret = self.draw(common_words(self.length)).upper()
        self.answers: dict[str, str] = {}
        self.green = [False] * self.length

    def rules(self) -> str:
        return (
            f"You are playing Wordle.\n"
            f"Find the secret English word of {self.length} letters within {self.max_turns} turns.\n"
            f"Each guess is marked letter by letter: G for the right letter in the right place, Y for a letter that stands "
            f"elsewhere in the word, X for a letter that does not (or not once more).\n"
            f"Think as long as you like, then give your guess inside \\boxed{{}}, for example "
            f"{boxed(common_words(self.length)[0].upper())}."
        )

    def read(self, answer: str) -> str | None:
        return letters_only(answer)

    def play(self, move: str) -> MoveOutcome:
        if len(move) != self.length:
            return MoveOutcome(f"At turn {self.turn}, you guessed {len(move)} letter(s), but the word has {self.length}.")
        said = f"At turn {self.turn}, you guessed {move}"
        if move in self.answers:
            return MoveOutcome(f"{said}, which you had guessed before.")
        marked = self.answers[move] = marks(move, self.secret)
        reward = self._newly_green(marked) if "G" in marked else 0.0
        if move == self.secret:
            return MoveOutcome(f"{said}, and that is the word. Well done!", reward + 0.5, solved=True)
        return MoveOutcome(f"{said}:\n{' '.join(move)}\n{' '.join(marked)}", reward)

    def _newly_green(self, marked: str) -> float:
        """Return the reward of places that were not green before."""
        fresh = [place for place, mark in enumerate(marked) if mark == "G" and not self.green[place]]
        for place in fresh:
            self.green[place] = True
        return 0.5 * len(fresh) / self.length

    def picture(self) -> Sequence[Row]:
        kinds = {"G": "good", "Y": "near", "X": "bad"}
        rows: list[Row] = [
            [Tile(letter, kinds[mark]) for letter, mark in zip(guess, marked, strict=True)]
            for guess, marked in self.answers.items()
        ]
        return [*rows, [Tile("_", "quiet")] * self.length]

    def oracle(self) -> str:
        fitting = [
            word
            for word in map(str.upper, common_words(self.length))
            if all(marks(guess, word) == marked for guess, marked in self.answers.items())
        ]
        return boxed(_telling(fitting))

    def sample_random_action(self) -> str:
        return boxed(self.draw_action(common_words(self.length)).upper())


def marks(guess: str, secret: str) -> str:
    """Return G, Y or X for every letter of ``guess``; a letter is marked Y as often as the secret still has it elsewhere."""
    left = [theirs for mine, theirs in zip(guess, secret, strict=True) if mine != theirs]
    marked = ""
    for mine, theirs in zip(guess, secret, strict=True):
        if mine == theirs:
            marked += "G"
        elif mine in left:
            left.remove(mine)
            marked += "Y"
        else:
            marked += "X"
    return marked


def _telling(fitting: Sequence[str]) -> str:
    """Return the word whose marks best separate the others; with many words, one of frequent letters."""
    if len(fitting) <= _FEW:
        return max(fitting, key=lambda guess: len({marks(guess, word) for word in fitting}))
    frequency = Counter(letter for word in fitting for letter in set(word))
    return max(fitting, key=lambda guess: sum(frequency[letter] for letter in set(guess)))


@cache
def _best_blind_score(length: int) -> float:
    """Return the mean score of the best first guess, a word or not."""
    words = common_words(length)
    places = [Counter(word[place] for word in words) for place in range(length)]

    def score(guess: str) -> float:
        greens = sum(there[letter] for there, letter in zip(places, guess, strict=True)) / len(words)
        return 0.5 * greens / length + 0.5 * (guess in words) / len(words)

    return max(map(score, ["".join(max(sorted(there), key=there.__getitem__) for there in places), *words]))
