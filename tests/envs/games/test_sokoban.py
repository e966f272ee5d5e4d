from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.envs.games.bitsets import bits
from palestra.envs.games.sokoban import Sokoban
from palestra.envs.games.warehouse import Position, solve

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


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([((6, 6), 2, 20), ((8, 8), 4, 50), ((8, 8), 5, 50)]))
def test_the_known_way_solves_every_warehouse_in_time(seed: int, level: tuple[tuple[int, int], int, int]) -> None:
    game = Sokoban(*level)
    game.reset(seed=seed)
    room = Room(game.view())
    state = (room.player, room.boxes)
    assert game.way is not None
    assert level[2] // 4 <= len(game.way) <= level[2] * 4 // 5
    assert not room.boxes & room.goals
    rows, columns = level[0]
    edge = {(r, c) for r in range(rows) for c in range(columns) if r in (0, rows - 1) or c in (0, columns - 1)}
    assert edge <= room.walls
    for move in reversed(game.way):
        state = room.moved(*state, move)
    assert state[1] == room.goals


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


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(list(WAY)), max_size=15))
def test_the_oracle_recovers_where_it_can(seed: int, moves: list[str]) -> None:
    game = Sokoban((6, 6), 2, 200)
    game.reset(seed=seed)
    for move in moves:
        if game.step(f"\\boxed{{{move}}}").terminated:
            return
    hope = Room(game.view()).solvable()
    step = game.step(game.oracle())
    while hope and not step.terminated:
        step = game.step(game.oracle())
        assert not step.truncated


def test_floors_are_connected_and_rooms_differ() -> None:
    game, rooms = Sokoban((8, 8), 4, 50), set[tuple[int, int]]()
    for seed in range(30):
        game.reset(seed=seed)
        rooms.add((game.floor_cells, game.goals))
        cells = set(bits(game.floor_cells))
        reached, queue = {min(cells)}, [min(cells)]
        while queue:
            cell = queue.pop()
            fresh = {cell + 1, cell - 1, cell + 8, cell - 8} & cells - reached
            reached |= fresh
            queue += fresh
        assert reached == cells
    assert len(rooms) == 30
