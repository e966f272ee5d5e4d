"""The environment: one game of ScienceWorld per episode.

The simulator scores progress from 0 to 100. The reward of a step is the change of the score, divided by 100, so the rewards of
an episode add up to its final score. A fatal mistake, such as focusing on the wrong thing, makes the simulator's score negative
and ends the episode; it then counts as ``fatal``.
"""

from typing import Any

from palestra.authoring.indices import draw_index
from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.trajectory import Task
from palestra.worlds.science.actions import NOT_AN_ACTION, action_of, first_observation
from palestra.worlds.science.gold import compute_path, known_path
from palestra.worlds.science.jvm import Seat
from palestra.worlds.science.picture import Seen, drawn
from palestra.worlds.science.pool import seat
from palestra.worlds.science.simulator import Simulator
from palestra.worlds.science.tasks import FLOORS, Game, games_of

__all__ = ["SIMPLIFICATIONS", "ScienceWorld"]

SIMPLIFICATIONS = ("easy", "teleportAction", "openDoors", "openContainers", "selfWateringFlowerPots", "noElectricalAction")
"""What ScienceWorld can make easier; ``easy`` is all of it, except that tasks about electricity keep their actions."""

_ELECTRICAL = ("power-component", "conductivity")


class ScienceWorld(AsyncEnv):
    """Do experiments of an elementary school in a simulated house.

    Args:
        tasks: The name of a task, or ``agentgym``.
        split: ``train``, ``dev``, ``test``, or ``all``.
        simplifications: Names of ``SIMPLIFICATIONS``, separated by commas.
        fatal: The score of an episode that ends with a fatal mistake, out of 100.
    """

    reward_range = (-2.0, 1.0)
    score_range = (-1.0, 1.0)

    def __init__(self, tasks: str, split: str = "train", simplifications: str = "", fatal: int = 0) -> None:
        games_of(tasks, split)
        self._tasks = tasks
        self._split = split
        self._simplifications = _checked(tasks, simplifications)
        self._fatal = fatal
        self._seat: Seat | None = None
        self._path: list[str] | None = None

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        self._game = self._drawn()
        self._path = None
        self._taken: list[str] = []
        self._score = 0
        description, room = await (await self._seated()).call(Simulator.begin, self._game, self._simplifications)
        self._seen = Seen(description, room)
        teleport = any(name in self._simplifications for name in ("easy", "teleportAction"))
        about = {"task": self._game.task, "variation": self._game.variation}
        return first_observation(description, room, teleport=teleport), about

    def _drawn(self) -> Game:
        """Return the game ``task.index``, or one drawn at random. A task that names no split means the split of its id."""
        games = games_of(self._tasks, self._split if self.task.split in ("train", self._split) else self.task.split)
        return games[draw_index(self.task, len(games), self.rng, f"{self._tasks}/{self._split} has games")]

    async def _seated(self) -> Seat:
        if self._seat is None or not self._seat.jvm.alive:
            self._leave()
            self._seat = await seat()
        return self._seat

    def _leave(self) -> None:
        if self._seat is not None:
            self._seat.leave()
        self._seat = None

    async def step(self, action: str) -> Step:
        text = action_of(action)
        if text is None:
            return Step(NOT_AN_ACTION, 0.0, False, False, {"score": self._score, "format_error": True})
        assert self._seat is not None
        answer = await self._seat.call(Simulator.take, text)
        self._taken.append(text)
        score = answer.score if answer.score >= 0 else self._fatal
        reward, self._score = (score - self._score) / 100, score
        self._seen = self._seen.after(text, answer.text, score)
        if answer.score < 0 or answer.completed:
            info = {"score": score, "success": answer.score >= 100, "fatal": answer.score < 0}
            return Step(answer.text, reward, True, False, info)
        return Step(answer.text, reward, False, False, {"score": score})

    async def close(self) -> None:
        self._leave()

    @property
    def floor(self) -> float:
        return FLOORS.get(self._tasks, 0.0)

    async def oracle(self) -> str:
        """Return the next action of the gold path that was not taken yet.

        The path solves the game from its start. After other actions that changed the world, it may not.
        """
        if self._path is None:
            self._path = known_path(self._game, self._simplifications)
        if self._path is None:
            assert self._seat is not None
            self._path = await self._seat.jvm.call(compute_path, self._game, self._simplifications)
        done = 0
        for action in self._taken:
            if done < len(self._path) and action == self._path[done]:
                done += 1
        return f"Action: {self._path[done] if done < len(self._path) else 'look around'}"

    async def sample_random_action(self) -> str:
        """Return an action of the game with things in reach. It may make no sense, and one in 26 focuses on something."""
        assert self._seat is not None
        chances = [float(chance) for chance in self.action_rng.random(3)]
        return f"Action: {await self._seat.call(Simulator.random_action, chances)}"

    def render(self) -> str:
        """Return the task, the score and what the agent saw last as HTML for people."""
        return drawn(self._seen)

    async def fork(self) -> "ScienceWorld":
        """Return an independent copy. The simulator is deterministic, so the copy takes the same actions from the start."""
        twin = ScienceWorld(self._tasks, self._split, self._simplifications, self._fatal)
        await twin.reset(task=self.task)
        try:
            for action in self._taken:
                await twin.step(f"Action: {action}")
        except BaseException:
            await twin.close()
            raise
        twin._rng, twin._action_rng = None, None
        return twin


def _checked(tasks: str, simplifications: str) -> str:
    names = [name for name in simplifications.split(",") if name]
    if wrong := [name for name in names if name not in SIMPLIFICATIONS]:
        raise UsageError(f'ScienceWorld has no simplification "{wrong[0]}"; there are {", ".join(SIMPLIFICATIONS)}')
    if "noElectricalAction" in names and any(part in tasks for part in _ELECTRICAL):
        raise UsageError(f"the task {tasks} needs electrical actions: leave noElectricalAction out")
    return ",".join(names)
