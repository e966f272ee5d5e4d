import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.suite.games.crosswords import Crosswords, _clues


def runs(cells: dict[tuple[int, int], str]) -> set[str]:
    """Every stretch of two letters or more, across and down."""
    found = set()
    for flip in (False, True):
        grid = {(c, r) if flip else (r, c): letter for (r, c), letter in cells.items()}
        for row, column in grid:
            if (row, column - 1) not in grid and (row, column + 1) in grid:
                word, at = "", column
                while (row, at) in grid:
                    word += grid[row, at]
                    at += 1
                found.add(word)
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(False, 3, 30), (True, 3, 40), (False, 3, 20), (True, 6, 40), (False, 1, 6)]))
def test_words_cross_and_nothing_else_can_be_read(seed: int, level: tuple[bool, int, int]) -> None:
    hardcore, num_words, max_turns = level
    game = Crosswords(hardcore, num_words, max_turns)
    game.reset(seed=seed)
    assert len(game.solution) <= max_turns
    assert len(game.entries) == num_words
    assert runs(game.solution) == {entry.word.upper() for entry in game.entries}
    assert min(row for row, _ in game.solution) == min(column for _, column in game.solution) == 0
    # One piece: from any cell all others can be reached.
    reached, queue = {min(game.solution)}, [min(game.solution)]
    while queue:
        row, column = queue.pop()
        fresh = {(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)} & set(game.solution) - reached
        reached |= fresh
        queue += fresh
    assert reached == set(game.solution)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from("aeiorstnlc")), min_size=1, max_size=25),
)
def test_moves_follow_the_rules(seed: int, moves: list[tuple[int, int, str]]) -> None:
    game = Crosswords(False, 3, 20)
    game.reset(seed=seed)
    filled = dict[tuple[int, int], str]()
    for turn, (row, column, letter) in enumerate(moves, start=1):
        step = game.step(f"\\boxed{{{row} {column} {letter}}}")
        right = game.solution.get((row, column)) == letter.upper() and (row, column) not in filled
        if right:
            filled[row, column] = letter.upper()
        assert game.filled == filled
        assert sorted(mark for mark in game.view().split("\n", 2)[2] if mark.isalpha()) == sorted(filled.values())
        assert step.reward == (pytest.approx(1 / len(game.solution)) if right else 0.0)
        assert (step.terminated, step.truncated) == (False, turn == 20)
        if turn == 20:
            return


@pytest.mark.parametrize("hardcore", [False, True])
def test_clues_are_complete_and_do_not_give_the_word_away(hardcore: bool) -> None:
    clues = _clues(hardcore)
    assert len(dict(clues)) == len(clues) >= 90
    for word, clue in clues:
        assert word.isascii()
        assert word.isalpha()
        assert word.islower()
        assert 3 <= len(word) <= 8
        assert clue
        assert word not in clue.lower().replace("'", " ").replace(",", " ").split()
