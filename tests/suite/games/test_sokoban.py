from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.suite.games.sokoban import Sokoban
from palestra.suite.games.warehouse import Position, solve

Cell = tuple[int, int]
WAY = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class Room:
    """A warehouse read off the board as a player sees it, and played with sets of cells."""

    def __init__(self, view: str) -> None:
        marks = {(r, c): mark for r, line in enumerate(view.splitlines()[1:]) for c, mark in enumerate(line.split())}
        self.walls = {cell for cell, mark in marks.items() if mark == "#"}
        self.goals = {cell for cell, mark in marks.items() if mark in "O√S"}
        self.boxes = frozenset(cell for cell, mark in marks.items() if mark in "X√")
        [self.player] = [cell for cell, mark in marks.items() if mark in "PS"]

    def moved(self, player: Cell, boxes: frozenset[Cell], move: str) -> tuple[Cell, frozenset[Cell]]:
        dr, dc = WAY[move]
        there, beyond = (player[0] + dr, player[1] + dc), (player[0] + 2 * dr, player[1] + 2 * dc)
        if there in self.walls or (there in boxes and (beyond in self.walls or beyond in boxes)):
            return player, boxes
        return there, boxes - {there} | {beyond} if there in boxes else boxes

    def solvable(self) -> bool:
        """Whether any sequence of moves solves it, by trying them all."""
        start = (self.player, self.boxes)
        seen, queue = {start}, deque([start])
        while queue:
            state = queue.popleft()
            if state[1] == self.goals:
                return True
            for move in WAY:
                after = self.moved(*state, move)
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
        return False


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(list(WAY)), min_size=1, max_size=30))
def test_moves_follow_the_rules(seed: int, moves: list[str]) -> None:
    game = Sokoban((6, 7), 3, 25)
    game.reset(seed=seed)
    room = Room(game.view())
    player, boxes = room.player, room.boxes
    assert len(boxes) == len(room.goals) == 3
    for turn, move in enumerate(moves, start=1):
        step = game.step(f"\\boxed{{{move}}}")
        player, boxes = room.moved(player, boxes, move)
        now = Room(game.view())
        assert (now.player, now.boxes, now.goals, now.walls) == (player, boxes, room.goals, room.walls)
        solved = boxes == room.goals
        assert (step.terminated, step.truncated) == (solved, not solved and turn == 25)
        assert step.reward == pytest.approx(1.0 if solved else len(boxes & room.goals) / 3 if turn == 25 else 0.0)
        if step.terminated or step.truncated:
            return


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(list(WAY)), max_size=20))
def test_the_solver_finds_a_way_where_there_is_one(seed: int, moves: list[str]) -> None:
    game = Sokoban((6, 6), 2, 50)
    game.reset(seed=seed)
    for move in moves:
        if game.step(f"\\boxed{{{move}}}").terminated:
            return
    room = Room(game.view())
    way = solve(6, game.floor_cells, game.goals, Position(game.boxes, game.player))
    assert (way is not None) == room.solvable()
    state = (room.player, room.boxes)
    for move in reversed(way or []):
        state = room.moved(*state, move)
    assert way is None or state[1] == room.goals
