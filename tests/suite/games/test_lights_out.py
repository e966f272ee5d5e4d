from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.lights_out import LightsOut

Lights = frozenset[tuple[int, int]]


def pressed(lights: Lights, row: int, column: int, size: int) -> Lights:
    near = {(row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)}
    return lights ^ {(r, c) for r, c in near if 0 <= r < size and 0 <= c < size}


def lights_of(game: LightsOut) -> Lights:
    lines = game.view().splitlines()[1:]
    return frozenset((r, c) for r, line in enumerate(lines) for c, mark in enumerate(line.split()) if mark == "*")


@given(st.integers(0, 2**32), st.integers(2, 6), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1))
def test_moves_follow_the_rules(seed: int, size: int, moves: list[tuple[int, int]]) -> None:
    game = LightsOut(size, 40)
    game.reset(seed=seed)
    lights = lights_of(game)
    assert lights
    for turn, (row, column) in enumerate(moves[:40], start=1):
        step = game.step(f"\\boxed{{{row} {column}}}")
        if row < size and column < size:
            lights = pressed(lights, row, column, size)
        assert lights_of(game) == lights
        won = not lights
        assert (step.reward, step.terminated, step.truncated) == (float(won), won, not won and turn == 40)
        if won:
            return
