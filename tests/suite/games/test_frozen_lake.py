from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.frozen_lake import FrozenLake

WAY = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
MOVES = st.sampled_from(list(WAY))
Cell = tuple[int, int]


def lake_of(game: FrozenLake) -> dict[Cell, str]:
    return {(r, c): mark for r, line in enumerate(game.view().splitlines()[1:]) for c, mark in enumerate(line.split())}


def there(lake: dict[Cell, str], cell: Cell, move: str) -> Cell:
    after = (cell[0] + WAY[move][0], cell[1] + WAY[move][1])
    return after if after in lake else cell


@given(st.integers(0, 2**32), st.lists(MOVES, min_size=1, max_size=40))
def test_moves_follow_the_rules(seed: int, moves: list[str]) -> None:
    game = FrozenLake(5, 30)
    game.reset(seed=seed)
    lake = lake_of(game)
    cell = (0, 0)
    assert (lake[cell], lake[4, 4]) == ("P", "G")
    for turn, move in enumerate(moves, start=1):
        step = game.step(f"\\boxed{{{move}}}")
        cell = there(lake, cell, move)
        assert divmod(game.player, 5) == cell
        won, fell = lake[cell] == "G", lake[cell] == "O"
        assert (step.reward, step.terminated, step.truncated) == (float(won), won or fell, not won and not fell and turn == 30)
        if step.terminated or step.truncated:
            assert step.info["success"] == won
            return


@pytest.mark.parametrize("seed", range(8))
def test_the_oracle_on_slippery_ice_is_the_best_player(seed: int) -> None:
    slip, turns = 0.4, 18
    game = FrozenLake(3, turns, slip=slip, holes=0.3)
    game.reset(seed=seed)
    lake = lake_of(game)

    @cache
    def chance(cell: Cell, left: int) -> float:
        if lake[cell] in "GO" or not left:
            return float(lake[cell] == "G")
        return max(chance_of(cell, move, left) for move in WAY)

    def chance_of(cell: Cell, move: str, left: int) -> float:
        sides = [side for side in WAY if (WAY[side][0] == 0) != (WAY[move][0] == 0)]
        ways = [(move, 1 - slip), (sides[0], slip / 2), (sides[1], slip / 2)]
        return sum(share * chance(there(lake, cell, way), left - 1) for way, share in ways)

    action = game.oracle().removeprefix("\\boxed{").removesuffix("}")
    assert chance_of((0, 0), action, turns) == pytest.approx(chance((0, 0), turns), abs=1e-6)
