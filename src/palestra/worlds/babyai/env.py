"""The environment: a level, seen as text or as a picture, played with macro actions or with primitive ones.

The reward is minigrid's: 1 - 0.9 * steps / limit when the mission is done, otherwise 0. Steps are primitive actions, and the
limit is minigrid's too; it depends on the mission. An action that is not possible costs one step, so every episode ends.
"""

import copy
from typing import Any, ClassVar

from palestra.core import Env, Step
from palestra.errors import Unsupported, UsageError
from palestra.trajectory import Content, Image, StopReason, Task, Text
from palestra.worlds.babyai.actions import GRAMMAR, Moves, action_of, moves_of, primitive_of
from palestra.worlds.babyai.levels import FLOORS, SOMETIMES_UNSOLVABLE, max_turns_of, require_level
from palestra.worlds.babyai.oracle import Guide
from palestra.worlds.babyai.pictures import drawn, frame_of
from palestra.worlds.babyai.sight import Sight
from palestra.worlds.babyai.telling import beginning, scene
from palestra.worlds.babyai.world import DONE, PRIMITIVES, Moved, World

__all__ = ["BabyAI"]


class BabyAI(Env):
    """A level of minigrid, for models that write text.

    Args:
        level: The name of the level: ``GoToLocal``.
        actions: ``macro`` or ``primitive``.
        view: ``text``, or ``picture`` for models that see.
        max_turns: The turn limit. By default, it is that of the level with macro actions, and minigrid's limit with primitive
            ones.
    """

    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    counts_turns = True
    max_turns: int

    def __init__(
        self, level: str = "GoToLocal", *, actions: str = "macro", view: str = "text", max_turns: int | None = None
    ) -> None:
        require_level(level)
        _require("actions", actions, ("macro", "primitive"))
        _require("view", view, ("text", "picture"))
        if max_turns is not None and max_turns < 1:
            raise UsageError(f"max_turns must be at least 1, got {max_turns}")
        self._level = level
        self._macro = actions == "macro"
        self._picture = view == "picture"
        self._turns = max_turns
        self._worlds: dict[str, World] = {}

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        level, world_seed = self.draw()
        self.world = self._world_of(level)
        self.mission = self.world.reset(world_seed)
        self.max_turns = self._turns or (max_turns_of(level) if self._macro else self.world.max_steps)
        self.turn = 0
        self._guide: Guide | None = None
        self._look()
        info = {"max_turns": self.max_turns, "level": level, "mission": self.mission}
        return self._shown(self.rules()), info

    def draw(self) -> tuple[str, int]:
        """Return the level of the task and the seed of its world."""
        seed = int(self.rng.integers(2**31))
        while self._level in SOMETIMES_UNSOLVABLE and not self._is_solvable(seed):
            seed = int(self.rng.integers(2**31))
        return self._level, seed

    def _is_solvable(self, seed: int) -> bool:
        world = self._world_of(self._level)
        world.reset(seed)
        return Guide(world).primitive() is not None

    def _world_of(self, level: str) -> World:
        if level not in self._worlds:
            self._worlds[level] = self.build(level)
        return self._worlds[level]

    def build(self, level: str) -> World:
        """Return a world for ``level``, which later episodes use again."""
        return World(level)

    def rules(self) -> str:
        """Return the beginning of the first observation: the mission and the actions."""
        return beginning(self.mission, GRAMMAR if self._macro else PRIMITIVES, self.max_turns)

    def step(self, action: str) -> Step:
        self.turn += 1
        primitives = self._primitives(action)
        outcome = self.run([DONE] if primitives is None else primitives)
        self._look()
        said = "" if primitives is not None else self._refusal(action)
        mark = {} if primitives is not None else {"format_error": True}
        if outcome.terminated:
            done = outcome.reward > 0
            said = "The mission is done." if done else "The mission has failed."
            return Step(said, outcome.reward, True, False, {"success": done})
        if outcome.truncated or self.turn >= self.max_turns:
            limit = "steps" if outcome.truncated else "turns"
            reason = StopReason.TRUNCATED if outcome.truncated else StopReason.TURN_LIMIT
            return Step(f"You have used all {limit}.", 0.0, False, True, {"success": False, "stop_reason": reason, **mark})
        return Step(self._shown(said), 0.0, False, False, mark)

    def run(self, primitives: list[int]) -> Moved:
        """Take primitive actions until the episode ends."""
        outcome = Moved()
        for primitive in primitives:
            outcome = self.world.act(primitive)
            if outcome.over:
                break
            if self._guide is not None:
                self._guide.saw(primitive)
        return outcome

    def oracle(self) -> str:
        """Return the action that the bot takes, or the macro action that replaces most of its next ones.

        Raises:
            Unsupported: minigrid's bot finds no plan; this happens only in levels that are left out.
        """
        named = self.plan_next()
        if named is None:
            raise Unsupported(f"minigrid's bot finds no plan for this task of {self.world.level}")
        return named

    def plan_next(self) -> str | None:
        """Return the oracle's action, or ``None`` if the bot finds no plan."""
        if self._guide is None:
            self._guide = Guide(self.world)
        if self._macro:
            return self._guide.macro(self.moves)
        primitive = self._guide.primitive()
        return None if primitive is None else PRIMITIVES[primitive]

    def sample_random_action(self) -> str:
        names = list(self.moves) if self._macro else PRIMITIVES[:-1]
        return names[int(self.action_rng.random() * len(names))]

    @property
    def floor(self) -> float:
        # The floors were measured with macro actions. A single primitive action solves next to nothing.
        return FLOORS.get(self._level, 0.0) if self._macro else 0.0

    def render(self) -> str:
        """Return what the agent sees as HTML for people."""
        return drawn(self.sight, self.mission)

    def fork(self) -> "BabyAI":
        return copy.deepcopy(self)

    def close(self) -> None:
        for world in self._worlds.values():
            world.close()

    def _look(self) -> None:
        """Look at the world after an action. The view is computed when it is first used."""
        self._sight: Sight | None = None
        self._moves: Moves | None = None

    @property
    def sight(self) -> Sight:
        """What the agent sees now."""
        if self._sight is None:
            self._sight = Sight(self.world)
        return self._sight

    @property
    def moves(self) -> Moves:
        """The macro actions that are possible now."""
        if self._moves is None:
            self._moves = moves_of(self.sight)
        return self._moves

    def _primitives(self, action: str) -> list[int] | None:
        """Return the primitive actions that the model's text stands for, or ``None`` if it is not possible."""
        if self._macro:
            return self.moves.get(action_of(action))
        primitive = primitive_of(action)
        return None if primitive is None else [primitive]

    def _refusal(self, action: str) -> str:
        if self._macro:
            return "That action is not possible now. It cost one step."
        return f"That is not an action. Write one of: {', '.join(PRIMITIVES)}. It cost one step."

    def _shown(self, text: str) -> Content:
        """Return an observation: ``text`` and what the agent sees."""
        if self._picture:
            return (*((Text(f"{text}\n"),) if text else ()), Image(frame_of(self.world)))
        told = scene(self.sight, self.moves if self._macro else None)
        return f"{text}\n{told}" if text else told


def _require(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f'{name} must be {" or ".join(known)}, got "{value}"')
