"""Blackjack: one hand against the dealer, with the best play known exactly."""

from functools import cache

from palestra.suite.games.game import Game, MoveOutcome, boxed

__all__ = ["Blackjack", "best_score", "worth"]

_NAMES = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")

_CHANCES = {value: 4 / 13 if value == 10 else 1 / 13 for value in range(1, 11)}
"""The probability of each value of the next card; an ace counts 1 here."""

_MOST_CARDS = 21
"""Most cards of a hand: twenty-one aces."""

Hand = tuple[int, bool]
"""The best total of a hand, and whether an ace in it counts 11."""


class Blackjack(Game[str]):
    """Hit or stand against a dealer who draws to 17. Every card is drawn from a full deck.

    A win pays 1, a draw 0.5 and a loss 0; only a win is a success. With ``open_dealer`` both cards of the dealer are visible,
    otherwise one. The oracle plays optimally: its mean score is 0.477 with one visible card and 0.517 with two.
    """

    def __init__(self, open_dealer: bool = False) -> None:
        self._open_dealer = open_dealer

    @property
    def ceiling(self) -> float:
        # Exact: the score of optimal play, averaged over all deals.
        return _score_of_best_play(self._open_dealer)

    def begin(self) -> None:
        self.max_turns = _MOST_CARDS
        self.hand = [self._card(), self._card()]
        self.dealer = [self._card(), self._card()]
        self.finished = False

    def _card(self) -> int:
        return int(self.rng.integers(len(_NAMES)))

    def rules(self) -> str:
        shown = "Both cards" if self._open_dealer else "One of the two cards"
        return (
            f"You are playing Blackjack, one hand.\n"
            f"Cards from 2 to 10 count their number, J, Q and K 10, an ace 11 or, if that would be too much, 1. Get nearer to "
            f"21 than the dealer, but never above it. 'hit' takes another card; 'stand' ends your turn, and then the dealer "
            f"draws until 17 or more. A higher total wins, equal totals are a draw.\n"
            f"{shown} of the dealer can be seen. Every card is drawn from all thirteen with equal chance.\n"
            f"Think as long as you like, then give {boxed('hit')} or {boxed('stand')}."
        )

    def view(self) -> str:
        dealer = self.dealer if self._open_dealer or self.finished else self.dealer[:1]
        hidden = "" if len(dealer) > 1 else " ?"
        return f"You: {_names_of(self.hand)} (total {worth(self.hand)[0]})\nDealer: {_names_of(dealer)}{hidden}"

    def read(self, answer: str) -> str | None:
        word = answer.lower()
        return word if word in ("hit", "stand") else None

    def play(self, move: str) -> MoveOutcome:
        if move == "hit":
            self.hand.append(self._card())
            total = worth(self.hand)[0]
            said = f"At turn {self.turn}, you took {_NAMES[self.hand[-1]]}."
            return MoveOutcome(f"{said} That is too much: you lose.", over=True) if total > 21 else MoveOutcome(said)
        self.finished = True
        while worth(self.dealer)[0] < 17:
            self.dealer.append(self._card())
        mine, theirs = worth(self.hand)[0], worth(self.dealer)[0]
        said = f"At turn {self.turn}, you stood at {mine}, and the dealer came to {theirs}."
        if theirs > 21 or mine > theirs:
            return MoveOutcome(f"{said} You win!", 1.0, solved=True)
        if mine == theirs:
            return MoveOutcome(f"{said} A draw.", 0.5, over=True)
        return MoveOutcome(f"{said} You lose.", over=True)

    def oracle(self) -> str:
        hand, dealer = worth(self.hand), worth(self.dealer if self._open_dealer else self.dealer[:1])
        return boxed("hit" if _hitting(hand, dealer) > _standing(hand, dealer) else "stand")

    def sample_random_action(self) -> str:
        return boxed(self.draw_action(("hit", "stand")))

    def constant_answers(self) -> list[str]:
        return [boxed("stand"), boxed("hit")]


def worth(cards: list[int]) -> Hand:
    """Return the value of ``cards`` (0 for an ace to 12 for a king)."""
    hand: Hand = (0, False)
    for card in cards:
        hand = _with(hand, min(card + 1, 10))
    return hand


def best_score(hand: Hand, dealer: Hand) -> float:
    """Return the mean score of optimal play from here. ``dealer`` is what the player sees of the dealer's cards."""
    if hand[0] > 21:
        return 0.0
    return max(_hitting(hand, dealer), _standing(hand, dealer))


@cache
def _score_of_best_play(open_dealer: bool) -> float:
    def dealt(count: int) -> dict[Hand, float]:
        hands: dict[Hand, float] = {(0, False): 1.0}
        for _ in range(count):
            grown: dict[Hand, float] = {}
            for hand, likely in hands.items():
                for value, chance in _CHANCES.items():
                    after = _with(hand, value)
                    grown[after] = grown.get(after, 0.0) + likely * chance
            hands = grown
        return hands

    seen = dealt(2 if open_dealer else 1)
    return sum(mine * theirs * best_score(hand, dealer) for hand, mine in dealt(2).items() for dealer, theirs in seen.items())


def _names_of(cards: list[int]) -> str:
    return " ".join(_NAMES[card] for card in cards)


def _with(hand: Hand, value: int) -> Hand:
    """Return ``hand`` with one more card; an ace has ``value`` 1."""
    total, soft = hand
    total += value
    if value == 1 and not soft and total + 10 <= 21:
        return total + 10, True
    if soft and total > 21:
        return total - 10, False
    return total, soft


@cache
def _hitting(hand: Hand, dealer: Hand) -> float:
    return sum(chance * best_score(_with(hand, value), dealer) for value, chance in _CHANCES.items())


@cache
def _standing(hand: Hand, dealer: Hand) -> float:
    def score(theirs: int) -> float:
        return 1.0 if theirs > 21 or hand[0] > theirs else 0.5 if hand[0] == theirs else 0.0

    return sum(chance * score(theirs) for theirs, chance in _ends(dealer).items())


@cache
def _ends(dealer: Hand) -> dict[int, float]:
    """Return the probability of each final total of the dealer, seen at ``dealer``; all above 21 count as 22."""
    if dealer[0] >= 17:
        return {min(dealer[0], 22): 1.0}
    ends: dict[int, float] = {}
    for value, chance in _CHANCES.items():
        for total, then in _ends(_with(dealer, value)).items():
            ends[total] = ends.get(total, 0.0) + chance * then
    return ends
