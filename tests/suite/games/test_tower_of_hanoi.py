import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.tower_of_hanoi import TOWERS, TowerOfHanoi

State = tuple[str, ...]
"""The tower of every disk, the smallest first."""

PAIRS = [(source, target) for source in TOWERS for target in TOWERS]


def moved(state: State, source: str, target: str) -> State | None:
    """The state after a legal move, ``None`` if it is illegal."""
    tops = {tower: min((disk for disk, at in enumerate(state) if at == tower), default=99) for tower in TOWERS}
    if source == target or tops[source] == 99 or tops[target] < tops[source]:
        return None
    return tuple(target if disk == tops[source] else at for disk, at in enumerate(state))


def state_of(game: TowerOfHanoi) -> State:
    return tuple(next(tower for tower in TOWERS if disk in game.towers[tower]) for disk in range(1, game.disks + 1))


@given(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=25), st.integers(1, 4), st.permutations(TOWERS))
def test_moves_follow_the_rules(pairs: list[tuple[str, str]], disks: int, towers: list[str]) -> None:
    start, goal = towers[:2]
    game = TowerOfHanoi(disks, 20, start, goal)
    game.reset(seed=0)
    state: State = (start,) * disks
    for turn, (source, target) in enumerate(pairs, start=1):
        step = game.step(f"\\boxed{{{source} {target}}}")
        state = moved(state, source, target) or state
        assert state_of(game) == state
        assert all(stack == tuple(sorted(stack, reverse=True)) for stack in game.towers.values())
        if set(state) == {goal}:
            assert step[1:4] == (1.0, True, False)
            return
        if turn == 20:
            assert step.reward == pytest.approx(state.count(goal) / disks)
            assert step[2:4] == (False, True)
            return
        assert step[1:4] == (0.0, False, False)


@pytest.mark.parametrize("answer", ["A C", "a c", "AC", "A,C", "A, C", "A -> C", "A->C", "a to c", "A → C"])
def test_ways_to_write_a_move(answer: str) -> None:
    game = TowerOfHanoi(3, 10)
    game.reset(seed=0)
    assert "moved disk 1 from tower A to tower C" in str(game.step(f"\\boxed{{{answer}}}").observation)
