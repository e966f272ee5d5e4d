"""minigrid's bot, made to know the map and to return.

minigrid's bot explores: it opens doors and turns around to find what the mission names. The bot of an oracle may know every
cell that no locked door hides, so it walks straight there. minigrid's bot also never returns on some tasks, because it pushes
and pops the same subgoals forever; here, a plan that grows too often within one call raises ``Stuck``.

In ``PickupDistDebug``, picking up a wrong object fails the mission, and minigrid's bot picks up what is in its way.
``OpeningBot`` opens a box in the way instead: it is gone then.

Importing this module imports minigrid.
"""

from collections import deque
from typing import Any

from minigrid.envs.babyai.core.verifier import PickupInstr
from minigrid.utils.baby_ai_bot import BabyAIBot, DropSubgoal, GoNextToSubgoal

from palestra.worlds.babyai.sight import AHEAD
from palestra.worlds.babyai.world import FORWARD, LEFT, PICK_UP, RIGHT, TOGGLE

__all__ = ["GuardedBot", "KnowingBot", "OpeningBot", "Stuck"]

_MOST_SUBGOALS = 2000
"""Most subgoals that one call may push. On tasks that the bot solves, it pushes fewer than 100."""

State = tuple[int, int, int, int]
Cell = tuple[int, int]
Search = tuple[list[Cell] | None, Cell | None, dict[Cell, Cell | None]]


class Stuck(AssertionError):
    """The bot changes its plan without end."""


class _Plan(list[Any]):
    """The stack of subgoals, which counts how often it grows."""

    grown = 0

    def append(self, subgoal: Any) -> None:
        self.grown += 1
        if self.grown > _MOST_SUBGOALS:
            raise Stuck
        super().append(subgoal)


class GuardedBot(BabyAIBot):
    """minigrid's bot, which raises ``Stuck`` instead of planning forever, and may start with an object in hand."""

    def __init__(self, mission: Any) -> None:
        super().__init__(mission)  # type: ignore[no-untyped-call,unused-ignore]
        self.stack: _Plan = _Plan(self.stack)
        if mission.carrying is not None:
            self._process_obs()  # type: ignore[no-untyped-call,unused-ignore]
            self.stack.append(DropSubgoal(self))
            self.stack.append(GoNextToSubgoal(self, self._find_drop_pos()))  # type: ignore[no-untyped-call,unused-ignore]

    def replan(self, action_taken: int | None = None) -> int:
        self.stack.grown = 0
        return int(super().replan(action_taken))  # type: ignore[no-untyped-call,unused-ignore]

    def mind(self) -> tuple[Any, ...]:
        """Return the bot's own state, which decides its next action together with the state of the world.

        The bot never forgets a cell that it has seen, so the number of seen cells stands for the set of them.
        """
        return int(self.vis_mask.sum()), repr(self.stack)

    def _check_erroneous_box_opening(self, action: int | None) -> None:
        """Accept that the agent opens a box. If the mission needed it, an assertion of the bot fails later."""


class KnowingBot(GuardedBot):
    """A bot that knows every cell except those behind locked doors, and walks through closed doors."""

    def __init__(self, mission: Any) -> None:
        self._locked: list[Any] | None = None
        """The locked doors at the border of what the bot knows; ``None`` before it has looked."""
        super().__init__(mission)

    def _process_obs(self) -> None:
        super()._process_obs()  # type: ignore[no-untyped-call,unused-ignore]
        # What the bot knows grows only when a locked door opens, and it forgets nothing.
        if self._locked is None or not all(door.is_locked for door in self._locked):
            self._locked = self._look_around()

    def _look_around(self) -> list[Any]:
        """Mark the cells that no locked door hides as seen, and return the locked doors among them."""
        grid = self.mission.grid
        x, y = self.mission.agent_pos
        todo = [(int(x), int(y))]
        known, locked = set(todo), []
        while todo:
            x, y = todo.pop()
            self.vis_mask[x, y] = True
            cell = grid.get(x, y)
            if cell is not None and cell.type == "door" and cell.is_locked:
                locked.append(cell)
            elif cell is None or cell.type != "wall":
                # The cell of the agent is never at the border, and a wall surrounds the grid, so no neighbor is outside.
                near = [there for there in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)) if there not in known]
                known.update(near)
                todo.extend(near)
        return locked

    def _breadth_first_search(self, initial_states: list[State], accept_fn: Any, ignore_blockers: bool) -> Search:
        cells, width, seen = self.mission.grid.grid, self.mission.grid.width, self.vis_mask.tolist()
        before: dict[Cell, Cell | None] = {}
        # minigrid's numbers are NumPy's, which are slower to add and to look up.
        starts = ((int(x), int(y), int(off_x), int(off_y)) for x, y, off_x, off_y in initial_states)
        queue: deque[tuple[State, Cell | None]] = deque((state, None) for state in starts)
        while queue:
            (x, y, off_x, off_y), previous = queue.popleft()
            if (x, y) in before:
                continue
            cell, before[x, y] = cells[y * width + x], previous
            if accept_fn((x, y), cell):
                return _way_back((x, y), before), (x, y), before
            if not seen[x][y] or _blocks(cell, ignore_blockers):
                continue
            for step in ((off_x, off_y), (off_y, off_x), (-off_y, -off_x), (-off_x, -off_y)):
                there = (x + step[0], y + step[1])
                if there not in before:
                    queue.append(((*there, *step), (x, y)))
        return None, None, before

    def _shortest_path(self, accept_fn: Any, try_with_blockers: bool = False) -> Any:
        # The bot looks behind closed doors when it misses an object. This one knows what is there.
        if accept_fn.__name__ == "unopened_unlocked_door":
            return None, None, False
        return super()._shortest_path(accept_fn, try_with_blockers)  # type: ignore[no-untyped-call,unused-ignore]


class OpeningBot:
    """A bot for a mission that only one object may be picked up for: it opens the boxes in its way, and moves nothing."""

    def __init__(self, mission: Any) -> None:
        self.mission = mission
        if not isinstance(mission.instrs, PickupInstr):
            raise Stuck

    def mind(self) -> tuple[Any, ...]:
        """Return an empty state: the world alone decides the bot's next action."""
        return ()

    def replan(self, action_taken: int | None = None) -> int:
        """Return the next primitive action. It is the first of a shortest way, so the past does not matter."""
        wanted = {(int(x), int(y)) for x, y in (thing.cur_pos for thing in self.mission.instrs.desc.obj_set)}
        grid, (x, y) = self.mission.grid, self.mission.agent_pos
        start = (int(x), int(y), int(self.mission.agent_dir))
        first: dict[tuple[int, int, int], int | None] = {start: None}
        queue = deque([start])
        while queue:
            x, y, direction = place = queue.popleft()
            ahead = x + AHEAD[direction][0], y + AHEAD[direction][1]
            if ahead in wanted:
                begun = first[place]
                return PICK_UP if begun is None else begun
            near = {LEFT: (x, y, (direction - 1) % 4), RIGHT: (x, y, (direction + 1) % 4)}
            thing = grid.get(*ahead)
            if thing is None or thing.type == "box":
                near[FORWARD if thing is None else TOGGLE] = (*ahead, direction)
            for action, there in near.items():
                if there not in first:
                    first[there] = action if first[place] is None else first[place]
                    queue.append(there)
        raise Stuck


def _way_back(cell: Cell | None, before: dict[Cell, Cell | None]) -> list[Cell]:
    way: list[Cell] = []
    while cell is not None:
        way.append(cell)
        cell = before[cell]
    return way


def _blocks(cell: Any, ignore_blockers: bool) -> bool:
    """Return whether the bot cannot walk on from ``cell``. It opens closed doors, and can move other objects."""
    if cell is None:
        return False
    if cell.type == "door":
        return bool(cell.is_locked)
    return cell.type == "wall" or not ignore_blockers
