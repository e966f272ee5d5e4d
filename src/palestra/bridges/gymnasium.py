r"""Gymnasium environments with discrete actions as Palestra environments. Tried with Gymnasium 1.4.

``palestra.make("gymnasium:FrozenLake-v1?render_mode=ansi&is_slippery=false&names=left,down,right,up")`` plays Gymnasium's
FrozenLake. After the question mark stand keywords of ``gymnasium.make``, and the keywords of ``GymnasiumEnv``. The agent writes
an action in ``\boxed{}``. The observation is the text that the environment renders in the mode ``ansi``, or else its
observation as text.

A seed below 2**31 starts the same episode as ``reset(seed=seed)`` in Gymnasium.
"""

import re
from typing import Any

import numpy as np

from palestra.bridges.versions import framework
from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.grading import last_boxed
from palestra.trajectory import Content, Task

__all__ = ["GymnasiumEnv"]

LARGEST_SEED = 2**31 - 1
"""Larger seeds are taken modulo 2**31, because many environments pass the seed to generators that take 32 bits."""
LONGEST = 1000
"""The turn limit of environments for which Gymnasium declares none."""

_COLORED = re.compile(r"\x1b\[([0-9;]+)m(.*?)\x1b\[0?m", re.DOTALL)
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_COLORS = ("gray", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class GymnasiumEnv(Env):
    """A Gymnasium environment whose actions are ``Discrete``.

    Args:
        path: The id in Gymnasium's registry. ``module:id`` imports the module first, as in Gymnasium.
        names: Names of the actions, separated by commas; by default their numbers.
        solved_at: An episode counts as solved if the sum of its rewards is at least this number. Without it, Palestra does not
            say whether an episode was solved: Gymnasium has no such notion.
        floor: The mean score of a player who never reads the observation.
        settings: Keywords of ``gymnasium.make``.

    Raises:
        UsageError: Gymnasium cannot make the environment, its actions are not ``Discrete``, or the names do not fit.
    """

    floor = 0.0

    def __init__(
        self, path: str, *, names: str = "", solved_at: float | None = None, floor: float = 0.0, **settings: Any
    ) -> None:
        gymnasium = framework("gymnasium", "gymnasium", "error", "make", "spaces")
        try:
            self._env: Any = gymnasium.make(path, **settings)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise UsageError(f'Gymnasium {gymnasium.__version__} cannot make "{path}": {error}') from error
        space = self._env.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            self._env.close()
            raise UsageError(f'the actions of "{path}" are {space}; only Discrete ones can be written as text')
        self._start, count = int(space.start), int(space.n)
        self._names = [name.strip().lower() for name in str(names).split(",")] if names != "" else []
        self._names = self._names or [str(self._start + number) for number in range(count)]
        if len(set(self._names)) != count:
            self._env.close()
            raise UsageError(f'"{path}" has {count} actions, but names has {len(set(self._names))} different names')
        self._solved_at = solved_at
        self.floor = floor
        # Answers to malformed actions take turns too, so the limit of Gymnasium's own wrapper is not enough.
        self.max_turns = getattr(self._env.spec, "max_episode_steps", None) or LONGEST
        self._score = 0.0

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Start an episode. ``Task.params`` are Gymnasium's ``options``."""
        super().reset(seed=seed, task=task)
        observation, _ = self._env.reset(seed=self.task.seed & LARGEST_SEED, options=dict(self.task.params) or None)
        self._score = 0.0
        actions = ", ".join(f"\\boxed{{{name}}}" for name in self._names)
        return f"{self._text(observation)}\nThe actions are {actions}.", {}

    def step(self, action: str) -> Step:
        r"""Take the action in the last ``\boxed{}``. Any other text is answered and does not reach Gymnasium."""
        chosen = (last_boxed(action) or "").strip().lower()
        if chosen not in self._names:
            return Step(f"This is not an action. The actions are {', '.join(self._names)}.", 0.0, False, False, {})
        observation, reward, terminated, truncated, _ = self._env.step(self._start + self._names.index(chosen))
        self._score += float(reward)
        judged = self._solved_at is not None and (terminated or truncated)
        info = {"success": self._score >= float(self._solved_at or 0.0)} if judged else {}
        return Step(self._text(observation), float(reward), bool(terminated), bool(truncated) and not terminated, info)

    def sample_random_action(self) -> str:
        """Return a random action."""
        return f"\\boxed{{{self._names[int(self.action_rng.integers(len(self._names)))]}}}"

    def close(self) -> None:
        """Close Gymnasium's environment."""
        self._env.close()

    def _text(self, observation: Any) -> str:
        shown = self._env.render() if self._env.render_mode == "ansi" else observation
        return without_colors(shown).rstrip("\n") if isinstance(shown, str) else str(_plain(shown))


def without_colors(text: str) -> str:
    """Return ``text`` with ``<red>F</red>`` in place of ANSI colors. Often only a color shows where the player stands."""

    def tagged(colored: re.Match[str]) -> str:
        color = next((int(code) % 10 for code in colored[1].split(";") if len(code) == 2), 8)
        name = _COLORS[color] if color < len(_COLORS) else "colored"
        return f"<{name}>{colored[2]}</{name}>"

    return _CONTROL.sub("", _COLORED.sub(tagged, text))


def _plain(value: Any) -> Any:
    """Return ``value`` with Python's own numbers and lists in place of NumPy's."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
