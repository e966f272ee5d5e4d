import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.suite.games.word_search import WordSearch


def spelled(rows: list[str], row: int, column: int, end_row: int, end_column: int) -> str | None:
    """The letters from one cell to the other, ``None`` if they do not stand in one row or column."""
    if row == end_row:
        line = rows[row][min(column, end_column) : max(column, end_column) + 1]
        return line if column <= end_column else line[::-1]
    if column == end_column:
        line = "".join(one[column] for one in rows)[min(row, end_row) : max(row, end_row) + 1]
        return line if row <= end_row else line[::-1]
    return None


def rows_of(game: WordSearch) -> list[str]:
    lines = game.view().splitlines()[2:]
    return ["".join(mark for mark in line[4:] if mark.isalpha()) for line in lines]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.data())
def test_moves_follow_the_rules(seed: int, hardcore: bool, data: st.DataObject) -> None:
    game = WordSearch(5, 12, hardcore)
    game.reset(seed=seed)
    rows, words = rows_of(game), set(game.hidden)
    assert len(rows) == game.side
    assert {len(row) for row in rows} == {game.side}
    place = st.integers(0, game.side)
    lines = [tuple(line) for line in game.hidden.values()]
    turned = [(line[2], line[3], line[0], line[1]) for line in lines]
    moves = data.draw(st.lists(st.one_of(st.sampled_from(lines + turned), st.tuples(*[place] * 4)), min_size=1, max_size=14))
    tried, found = set[tuple[int, ...]](), set[str]()
    for turn, move in enumerate(moves, start=1):
        step = game.step(f"\\boxed{{{' '.join(map(str, move))}}}")
        inside = all(number < game.side for number in move)
        letters = spelled(rows, *move) if inside and move not in tried else None
        new = {letters, letters[::-1] if letters else None} & words - found
        tried.add(move)
        found |= {word for word in new if word}
        assert set(game.found) == found
        assert step.reward == (pytest.approx(1 / 5) if new else 0.0)
        done = found == words
        assert (step.terminated, step.truncated) == (done, not done and turn == 12)
        if done or turn == 12:
            return


def test_the_easy_game_lists_its_words_and_the_hard_one_does_not() -> None:
    easy, hard = WordSearch(5, 20, False), WordSearch(5, 20, True)
    for seed in range(5):
        told, _ = easy.reset(seed=seed)
        assert all(word in told for word in easy.hidden)
        told, _ = hard.reset(seed=seed)
        assert not any(word in told.split("The grid")[0] for word in hard.hidden)
