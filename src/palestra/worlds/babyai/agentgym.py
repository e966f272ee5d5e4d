"""BabyAI by the rules of AgentGym, for comparison with published scores. The wording is ours. The rules and defects are:

- Level 4 has rooms of size 4, as ``GoToObjS6`` had in older versions of minigrid.
- ``then`` and ``after you`` in a mission become ``and``, so the order of its parts is hidden.
- Picking up is called ``pick up`` in the instruction, but only ``pickup`` is an action.
- A path may lead through cells that are not in view and through closed doors, and in three of the four directions through a
  row or column next to the view. A macro stops when the view does not change.
- The number of an object counts all objects of its kind in the description, but only the reachable ones in the actions.
- The episode ends only if the reward of the last primitive action is above 0.5; minigrid's step limit does not end it.
- An action that is not possible costs a turn, but no step.
- Every turn adds the reward of the last primitive action to the score. An action that is not possible adds it once more.

The sum of an episode's rewards is AgentGym's score.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

from palestra.core import Step
from palestra.trajectory import StopReason
from palestra.worlds.babyai.actions import Moves, line_of
from palestra.worlds.babyai.sets import BabyAISet
from palestra.worlds.babyai.sight import AHEAD, Cell, Place, Sight, Thing, state_of
from palestra.worlds.babyai.telling import scene
from palestra.worlds.babyai.world import DROP, FORWARD, LEFT, PICK_UP, RIGHT, TOGGLE, World

__all__ = ["AgentGymBabyAI", "AgentGymSight", "agentgym_moves", "without_order"]

_TURNS = 20
_CHECK = "check available actions"
_SOLID = ("wall", "box", "ball", "key")


def without_order(mission: str) -> str:
    """Return ``mission`` as AgentGym shows it, without the order of its parts."""
    return mission.replace("then", "and").replace("after you", "and")


class AgentGymSight(Sight):
    """What AgentGym makes of the view: doors are called by their state, and unseen cells count as free."""

    sign_of_rows = -1

    def kind_of(self, thing: object) -> str:
        state = state_of(thing)
        color, _, kind = super().kind_of(thing).partition(" ")
        return f"{color} {state} {kind}" if state else f"{color} {kind}"

    def is_free(self, cell: Cell) -> bool:
        x, y, direction = self.place
        ahead_x, ahead_y = AHEAD[direction]
        off_x, off_y = cell[0] - x, cell[1] - y
        ahead, right = off_x * ahead_x + off_y * ahead_y, off_y * ahead_x - off_x * ahead_y
        thing = self.cells.get(cell)
        # AgentGym's ranges of coordinates have one place too many where they count down from the far left corner of the view.
        near, far_right = -int(direction in (0, 1)), 3 + int(direction in (1, 2))
        return near <= ahead <= 6 and -3 <= right <= far_right and (thing is None or thing.type not in _SOLID)

    @cached_property
    def _ways(self) -> dict[Place, tuple[int, Place]]:
        # Places come in the order in which AgentGym's search finds them. Of equally short ways to a place, it keeps the last.
        reached: dict[Place, tuple[int, Place]] = {self.place: (-1, self.place)}
        by_first, by_last = [self.place], [self.place]
        while by_first:
            found = dict.fromkeys(there for place in by_first for _, there in self._next(place) if there not in reached)
            ways: dict[Place, tuple[int, Place]] = {}
            for place in by_last:
                for action, there in self._next(place):
                    if there in found:
                        ways.pop(there, None)
                        ways[there] = (action, place)
            reached |= {there: ways[there] for there in found}
            by_first, by_last = list(found), list(ways)
        return reached

    def _next(self, place: Place) -> Iterator[tuple[int, Place]]:
        x, y, direction = place
        forward = (x + AHEAD[direction][0], y + AHEAD[direction][1])
        if self.is_free(forward):
            yield FORWARD, (*forward, direction)
        yield LEFT, (x, y, (direction - 1) % 4)
        yield RIGHT, (x, y, (direction + 1) % 4)


def agentgym_moves(sight: Sight) -> Moves:
    """Return the actions that AgentGym lists."""
    moves: Moves = {"turn left": [LEFT], "turn right": [RIGHT]}
    faced = sight.faced.type if sight.faced is not None else ""
    if faced not in ("wall", "box"):
        moves["move forward"] = [FORWARD]
    if sight.carried is not None and faced not in _SOLID:
        moves["drop"] = [DROP]
    reachable: dict[str, int] = {}
    for thing in sight.things:
        way = sight.way_to_face(thing.cell)
        if way is None:
            continue
        reachable[thing.kind] = reachable.get(thing.kind, 0) + 1
        moves |= _moves_at(thing, f"{thing.kind} {reachable[thing.kind]}", way, sight)
    moves[_CHECK] = []
    return moves


def _moves_at(thing: Thing, name: str, way: list[int], sight: Sight) -> Moves:
    moves: Moves = {f"go to {name}": way}
    if not thing.is_door:
        if sight.carried is None:
            moves[f"pickup {name}"] = [*way, PICK_UP]
        return moves
    if thing.state == "open":
        moves[f"go through {thing.name}"] = [*way, FORWARD]
        return moves
    key = sight.carried
    if thing.state == "closed" or (key is not None and key.type == "key" and thing.kind.startswith(f"{key.color} ")):
        moves[f"toggle and go through {thing.name}"] = [*way, TOGGLE, FORWARD]
        if not way:
            moves["toggle"] = [TOGGLE]
    return moves


class AgentGymBabyAI(BabyAISet):
    """AgentGym's tasks by its own rules.

    Args:
        split: ``test`` for the panel of 90, ``train`` for the tasks of the training.
        max_turns: The turn limit; by default 20, with which AgentGym-RL evaluates.
    """

    reward_range: ClassVar[tuple[float, float]] = (-20.0, 20.0)
    score_range: ClassVar[tuple[float, float]] = (-float("inf"), float("inf"))  # every turn adds to it

    def __init__(self, split: str = "test", *, max_turns: int | None = None) -> None:
        super().__init__(split, max_turns=_TURNS if max_turns is None else max_turns)

    @property
    def ceiling(self) -> float | None:
        """The oracle's mean score: with 20 turns it leaves 5 of the panel's 90 tasks unsolved, and 36 of 814 in training."""
        return 0.8952 if self.tasks.split == "test" else 0.9021

    def build(self, level: str) -> World:
        return World("GoToObjS4" if level == "GoToObjS6" else level, encoded=True)

    def rules(self) -> str:
        self._last = 0.0  # the reward of the last primitive action
        return (
            f"You explore rooms and act on objects. Your goal: {without_order(self.mission)}\n"
            "You can turn left, turn right, move forward, go to an object, pick up an object, drop it, go through a door, "
            "toggle and go through a closed door, toggle the door ahead, and check available actions. Name an object by color, "
            f'kind and number. Write "Action:" and then one action, within {self.max_turns} turns.'
        )

    def step(self, action: str) -> Step:
        self.turn += 1
        words = line_of(action)
        primitives = self.moves.get(words)
        said, done = "", False
        if "check" in words:
            said = "These actions are possible."
        elif primitives is None:
            said = "That is not an action here."
        elif not primitives:
            said = "This changes nothing."
        else:
            self._last, terminated = self._run_all(primitives)
            done = terminated and self._last > 0.5
            self._look()
            said = "You have done it." if terminated else ""
        if done:
            return Step(self._shown(said), self._last, True, False, {"success": True})
        if self.turn >= self.max_turns:
            return Step(self._shown(said), self._last, False, True, {"success": False, "stop_reason": StopReason.TURN_LIMIT})
        return Step(self._shown(said), self._last, False, False, {})

    def _run_all(self, primitives: list[int]) -> tuple[float, bool]:
        """Take primitive actions until the view does not change. Return the reward of the last one, and whether it ended."""
        for primitive in primitives:
            before = self.world.image
            outcome = self.world.act(primitive)
            if self._guide is not None:
                self._guide.saw(primitive)
            if (self.world.image == before).all():
                break
        return outcome.reward, outcome.terminated

    def oracle(self) -> str:
        """Return what the bot does. If nothing of it is an action here, such as waiting in front of the object, turn."""
        return self.plan_next() or "turn left"

    @property
    def sight(self) -> Sight:
        if self._sight is None:
            self._sight = AgentGymSight(self.world)
        return self._sight

    @property
    def moves(self) -> Moves:
        if self._moves is None:
            self._moves = agentgym_moves(self.sight)
        return self._moves

    def _shown(self, text: str) -> str:
        told = scene(self.sight, self.moves)
        return f"{text}\n{told}" if text else told
