"""Household tasks: the agent walks through a room, finds things, and brings them into the state and the place that the task
names.

The agent sees the places of the room, but only the content of the place at which it stands. The reward is 1 when the task is
solved, which ends the episode, and 0 otherwise. A command that does not work costs a turn; the answer says why it did not work.
A reply without a command costs a turn, too; the answer lists the commands.
"""

import copy
from collections.abc import Sequence
from typing import Any

from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.trajectory import StopReason, Task
from palestra.worlds.house.commands import GRAMMAR, perform, possible_commands, read_command, room_view
from palestra.worlds.house.goals import TASKS, Goal, is_solved, next_command
from palestra.worlds.house.picture import drawn_house
from palestra.worlds.house.scenes import Size, draw_episode
from palestra.worlds.house.wording import WORDINGS, wish_of
from palestra.worlds.house.world import House

__all__ = ["SIZES", "Household", "InRoom"]

SIZES = {
    "easy": Size(share=0.15, kinds=6, copies=2, open_doors=0.0, in_target=False),
    "hard": Size(share=1.0, kinds=18, copies=3, open_doors=0.15, in_target=True),
}


class InRoom(Env):
    """An episode in a room, wherever the room comes from."""

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)
    counts_turns = True
    max_turns: int

    house: House
    goal: Goal
    wish: str
    """The task in words."""
    turn: int

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        info = self.begin()
        return self._opening(), {"max_turns": self.max_turns, "task_type": self.goal.task, **info}

    def begin(self) -> dict[str, Any]:
        """Set ``house``, ``goal`` and ``wish`` for this task, and return what else belongs into ``info``."""
        raise NotImplementedError

    def step(self, action: str) -> Step:
        self.turn += 1
        command = read_command(action)
        info: dict[str, Any] = {}
        if command is None:
            text = f"Your reply contains no command. Write one on its last line. The commands are:\n{GRAMMAR}"
            info["format_error"] = True
        else:
            text, worked = perform(self.house, command)
            if worked and is_solved(self.house, self.goal):
                return Step(f"{text} The task is solved.", 1.0, True, False, {"success": True})
        if self.turn < self.max_turns:
            return Step(text, 0.0, False, False, info)
        info |= {"success": False, "stop_reason": StopReason.TURN_LIMIT}
        return Step(f"{text}\nYou have used all {self.max_turns} turns.", 0.0, False, True, info)

    def oracle(self) -> str:
        return next_command(self.house, self.goal)

    def sample_random_action(self) -> str:
        commands = possible_commands(self.house)
        return commands[int(self.action_rng.random() * len(commands))]

    def fork(self) -> "InRoom":
        twin = copy.copy(self)
        twin.house = self.house.copy()
        twin._rng, twin._action_rng = copy.deepcopy((self._rng, self._action_rng))
        return twin

    def render(self) -> str:
        """Return the room as HTML for people: the places, and what the agent has seen in them."""
        return drawn_house(self.house, self.wish)

    def _opening(self) -> str:
        return (
            f"You do a task in a household.\n"
            f"Task: {self.wish}\n"
            f"{room_view(self.house)}\n"
            f"You see what is in or on a place when you are there; a closed place must be opened first. You can hold one thing "
            f"at a time, and act only on the place where you are.\n"
            f"The commands are:\n{GRAMMAR}\n"
            f"PLACE and THING are a name and a number, such as {self.house.scene.places[0].name}. The last line of your reply "
            f"is your command. You have {self.max_turns} turns."
        )


class Household(InRoom):
    """A task in a room that is drawn from the seed.

    Args:
        tasks: The task types to draw from: ``pick``, ``look``, ``clean``, ``heat``, ``cool``, ``two``.
        size: ``easy`` or ``hard``: the number of places and things.
        max_turns: The turn limit.
    """

    def __init__(self, tasks: str | Sequence[str] = TASKS, size: str = "hard", max_turns: int = 50) -> None:
        self._tasks = (tasks,) if isinstance(tasks, str) else tuple(tasks)
        if not self._tasks or not set(self._tasks) <= set(TASKS):
            raise UsageError(f"tasks are {', '.join(TASKS)}, got {tasks!r}")
        if size not in SIZES:
            raise UsageError(f'there is no size "{size}": write {" or ".join(SIZES)}')
        self._size = SIZES[size]
        self.max_turns = max_turns

    def begin(self) -> dict[str, Any]:
        task = self._tasks[int(self.rng.random() * len(self._tasks))] if len(self._tasks) > 1 else self._tasks[0]
        self.house, self.goal = draw_episode(self.rng, task, self._size)
        hollow = any(place.hollow for place in self.house.scene.places if place.kind == self.goal.target)
        self.wish = wish_of(self.goal, hollow, int(self.rng.random() * WORDINGS))
        return {}
