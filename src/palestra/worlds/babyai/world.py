"""A level of minigrid, quiet and without the encoded view.

minigrid encodes the agent's view into an array at every step. Nothing here reads it, so it is left out: steps get cheaper.
minigrid also prints a line for every mission that it draws and rejects. Redirecting the standard output would do so for all
threads, so the one module that prints gets a ``print`` of its own that does nothing.
"""

import copy
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from palestra.worlds.babyai.levels import minigrid_id

__all__ = ["DONE", "DROP", "FORWARD", "LEFT", "PICK_UP", "PRIMITIVES", "RIGHT", "TOGGLE", "Moved", "World"]

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
PRIMITIVES = ("turn left", "turn right", "move forward", "pick up", "drop", "toggle", "done")
"""The words for minigrid's seven actions, by number."""


class Moved(NamedTuple):
    """The result of primitive actions."""

    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    """minigrid's limit of primitive steps is reached."""

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


@cache
def _minigrid() -> ModuleType:
    """Import gymnasium with minigrid's levels, and silence the module that prints."""
    import gymnasium
    import minigrid
    from minigrid.envs.babyai.core import roomgrid_level

    vars(roomgrid_level)["print"] = _print_nothing
    assert minigrid.__version__
    return gymnasium


def _print_nothing(*_: object) -> None:
    pass


def _see_nothing() -> dict[str, Any]:
    return {}


class World:
    """One level, and the agent in it.

    Args:
        level: The name of the level, as minigrid spells it without ``BabyAI-`` and the version.
        encoded: Encode the view at every step, as minigrid does; ``image`` is then the array.
    """

    def __init__(self, level: str, *, encoded: bool = False) -> None:
        self.level = level
        self.grid_env: Any = _minigrid().make(minigrid_id(level), disable_env_checker=True).unwrapped
        self.image: Any = None
        self._encoded = encoded
        if not encoded:
            self.grid_env.gen_obs = _see_nothing

    def reset(self, seed: int) -> str:
        """Start the episode of ``seed`` and return its mission."""
        observation, _ = self.grid_env.reset(seed=seed)
        self.image = observation.get("image")
        return str(self.grid_env.mission)

    def act(self, primitive: int) -> Moved:
        """Take one primitive action."""
        observation, reward, terminated, truncated, _ = self.grid_env.step(primitive)
        if self._encoded:
            self.image = observation["image"]
        return Moved(float(reward), terminated, truncated and not terminated)

    def run(self, primitives: list[int]) -> Moved:
        """Take primitive actions until the episode ends."""
        outcome = Moved()
        for primitive in primitives:
            outcome = self.act(primitive)
            if outcome.over:
                break
        return outcome

    @property
    def place(self) -> tuple[int, int, int]:
        """Column and row of the agent, and its direction: 0 is right, 1 down, 2 left, 3 up."""
        x, y = self.grid_env.agent_pos
        return int(x), int(y), int(self.grid_env.agent_dir)

    @property
    def carried(self) -> Any:
        """What the agent carries, or ``None``."""
        return self.grid_env.carrying

    @property
    def steps(self) -> int:
        """Number of primitive steps taken."""
        return int(self.grid_env.step_count)

    @property
    def max_steps(self) -> int:
        """The limit of primitive steps that minigrid sets. It depends on the mission."""
        return int(self.grid_env.max_steps)

    def copy(self) -> "World":
        return copy.deepcopy(self)

    def close(self) -> None:
        self.grid_env.close()
