import re

from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.suite.games.maze import Maze

WAY = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
Cell = tuple[int, int]


def seen(observation: object) -> tuple[Cell, list[str]]:
    """Where the player is and which ways are open, from the text alone."""
    found = re.search(r"You are in row (\d+), column (\d+)\. Open ways: (.+)\.", str(observation))
    assert found is not None
    return (int(found[1]), int(found[2])), found[3].split(", ")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 8))
def test_any_two_cells_have_exactly_one_way(seed: int, size: int) -> None:
    game = Maze(size)
    game.reset(seed=seed)
    passages = {
        frozenset([cell, (cell[0] + WAY[way][0], cell[1] + WAY[way][1])]) for cell in game.ways for way in game.ways[cell]
    }
    assert set(game.ways) == {(row, column) for row in range(size) for column in range(size)}
    assert sum(map(len, game.ways.values())) == 2 * len(passages) == 2 * (size**2 - 1)
    reached, queue = {(0, 0)}, [(0, 0)]
    while queue:
        cell = queue.pop()
        fresh = {other for passage in passages if cell in passage for other in passage} - reached
        reached |= fresh
        queue += fresh
    assert reached == set(game.ways)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(list(WAY)), min_size=1, max_size=35))
def test_moves_follow_the_ways(seed: int, moves: list[str]) -> None:
    game = Maze(4)
    observation, info = game.reset(seed=seed)
    cell, ways = seen(observation)
    for turn, move in enumerate(moves, start=1):
        step = game.step(f"\\boxed{{{move}}}")
        if move in ways:
            cell = (cell[0] + WAY[move][0], cell[1] + WAY[move][1])
        now, ways = seen(step.observation)
        assert now == cell
        won = cell == game.exit
        assert (step.reward, step.terminated, step.truncated) == (float(won), won, not won and turn == info["max_turns"])
        if step.terminated or step.truncated:
            return
