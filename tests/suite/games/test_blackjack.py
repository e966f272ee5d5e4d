from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.blackjack import Blackjack

NAMES = ["A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K"]


def slow_total(cards: list[int]) -> int:
    """The best total over all ways to count the aces; the smallest where all are too much."""
    ways = product(*[(1, 11) if card == 0 else (min(card + 1, 10),) for card in cards])
    totals = sorted(map(sum, ways))
    return max((total for total in totals if total <= 21), default=totals[0])


@given(st.integers(0, 2**32), st.lists(st.booleans(), min_size=25, max_size=25), st.booleans())
def test_moves_follow_the_rules(seed: int, hits: list[bool], open_dealer: bool) -> None:
    game = Blackjack(open_dealer)
    observation, _ = game.reset(seed=seed)
    shown = str(observation).rsplit("Dealer: ", 1)[1].split()
    assert shown == [NAMES[card] for card in game.dealer] if open_dealer else [NAMES[game.dealer[0]], "?"]
    for hit in hits:
        before = list(game.hand)
        step = game.step("\\boxed{hit}" if hit else "\\boxed{stand}")
        mine = slow_total(game.hand)
        if hit:
            assert game.hand[:-1] == before
            assert (step.reward, step.terminated, step.truncated) == (0.0, mine > 21, False)
        else:
            theirs = slow_total(game.dealer)
            assert theirs >= 17 > slow_total(game.dealer[:-1]) or len(game.dealer) == 2
            expected = 1.0 if theirs > 21 or mine > theirs else 0.5 if mine == theirs else 0.0
            assert (step.reward, step.terminated, step.truncated) == (expected, True, False)
            assert step.info["success"] == (expected == 1.0)
        if step.terminated:
            return
    pytest.fail("a hand has an end")
