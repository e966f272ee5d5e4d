from collections import deque
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.envs.games.lights_out import LightsOut

Lights = frozenset[tuple[int, int]]


def pressed(lights: Lights, row: int, column: int, size: int) -> Lights:
    near = {(row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)}
    return lights ^ {(r, c) for r, c in near if 0 <= r < size and 0 <= c < size}


def lights_of(game: LightsOut) -> Lights:
    lines = game.view().splitlines()[1:]
    return frozenset((r, c) for r, line in enumerate(lines) for c, mark in enumerate(line.split()) if mark == "*")


@cache
def fewest_presses(size: int) -> dict[Lights, int]:
    dark: Lights = frozenset()
    away, queue = {dark: 0}, deque([dark])
    while queue:
        lights = queue.popleft()
        for row in range(size):
            for column in range(size):
                after = pressed(lights, row, column, size)
                if after not in away:
                    away[after] = away[lights] + 1
                    queue.append(after)
    return away


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


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([3, 4]), st.lists(st.tuples(*[st.integers(0, 2)] * 2), max_size=5))
def test_the_oracle_needs_the_fewest_presses(seed: int, size: int, moves: list[tuple[int, int]]) -> None:
    game = LightsOut(size, 40)
    game.reset(seed=seed)
    for row, column in moves:
        if game.step(f"\\boxed{{{row} {column}}}").terminated:
            return
    best, before = fewest_presses(size)[lights_of(game)], game.turn
    while not game.step(game.oracle()).terminated:
        pass
    assert game.turn - before == best
