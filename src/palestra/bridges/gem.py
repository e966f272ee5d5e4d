"""GEM in both directions. Tried with gem-llm 0.1.0.

``register_in_gem()`` lets users of GEM, such as ROLL and Oat, write ``gem.make("palestra:game:Sudoku-v0-easy")``: GEM's loops,
wrappers and ``make_vec`` then run on Palestra's environments. ``palestra.make("gem:game:Sudoku-v0-easy")`` plays the
environment of GEM's own registry.

GEM never closes an environment. One that was lent to GEM is closed when GEM drops it.
"""

import threading
from functools import cache
from typing import Any

from palestra.bridges.generators import GlobalGenerators
from palestra.bridges.leases import only_text, when_dropped
from palestra.bridges.versions import TRIED, framework
from palestra.core import Env, Step
from palestra.errors import Unsupported, UsageError
from palestra.foundation.seeding import derive_seed, fresh_seed
from palestra.registry import list_envs, make
from palestra.trajectory import Content, Task, text_of

__all__ = ["GemEnv", "gem_env", "register_in_gem"]

LARGEST_SEED = 2**31 - 1


def register_in_gem(pattern: str = "*", *, prefix: str = "palestra:") -> list[str]:
    """Register Palestra's environments in GEM, and return their ids there. A second call is harmless.

    Args:
        pattern: Which ids, as in ``palestra.list_envs``.
        prefix: What stands before an id in GEM. With ``""``, Palestra's environments replace GEM's of the same ids.

    Besides, ``gem.make("palestra", env=ID)`` makes any environment of Palestra, such as ``data:FILE`` and ``remote:URL#ID``.

    Example::

        register_in_gem("game:*")
        env = gem.make("palestra:game:GuessTheNumber-v0")
    """
    registry = framework("gem", "gem.envs.registration", "ENV_REGISTRY", "register")
    names: dict[str, dict[str, Any]] = {f"{prefix}{spec.id}": {"env": spec.id} for spec in list_envs(pattern)}
    for name, kwargs in [("palestra", {}), *names.items()]:
        registry.ENV_REGISTRY.pop(name, None)  # registering twice raises an error
        registry.register(name, "palestra.bridges.gem:gem_env", **kwargs)
    return list(names)


def gem_env(env: str, seed: int | None = None, **kwargs: Any) -> Any:
    """Return the environment ``env`` of Palestra as a ``gem.Env``.

    Args:
        env: The id.
        seed: Fixes the seeds of episodes that are reset without a seed. ``gem.make_vec`` passes it.
        kwargs: Keyword arguments of the environment.
    """
    return _shim()(env, seed, kwargs)


class _Lent:
    """Implements ``gem.Env`` with a Palestra environment."""

    def __init__(self, id: str, seed: int | None, settings: dict[str, Any], env: Any = None) -> None:
        super().__init__()
        self._id, self._seed, self._settings = id, seed, settings
        self._begun = 0
        self._env = make(id, **settings) if env is None else env
        # A plain environment and no LentEnv, whose steps run on another thread: GEM's steps are plain calls. It is closed in a
        # thread of its own, because the collector may run in the thread that has to close it.
        when_dropped(self, threading.Thread(target=self._env.close, name="palestra-close").start)

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        if seed is None:
            seed = fresh_seed() if self._seed is None else derive_seed(self._seed, "gem", self._id, self._begun)
        self._begun += 1
        observation, info = self._env.reset(seed=seed)
        if info.get("player"):
            raise UsageError(f'"{self._id}" has several players, and GEM plays one; use palestra.rollout')
        return only_text(observation, info), {**info, "suffix": ""}  # GEM's wrappers and ROLL read info["suffix"]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        step = self._env.step(action)
        info = {**step.info, "suffix": "", "metrics": _numbers(step.info), "metrics_agg_mode": {}}  # ROLL reads the metrics
        return text_of(step.observation), step.reward, step.terminated, step.truncated, info

    def sample_random_action(self) -> str:
        return self._env.sample_random_action()

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Any:
        if same_state and kwargs:
            raise UsageError("spawn(same_state=True) copies the environment and takes no other keywords")
        twin = self._env.fork() if same_state else None
        return type(self)(self._id, kwargs.pop("seed", self._seed), {**self._settings, **kwargs}, twin)

    @property
    def task(self) -> Task | None:
        """The task of the current episode; ``None`` before the first, when GEM's wrappers read every attribute."""
        return getattr(self._env.unwrapped, "task", None)

    def close(self) -> None:
        self._env.close()


class GemEnv(Env):
    """An environment of GEM's registry. It draws from Python's global generator, so rollouts play it in a worker process.

    Args:
        path: The id in GEM.
        settings: Keywords of ``gem.make``.

    Raises:
        UsageError: GEM cannot make the environment.
    """

    blocking = True
    variables = ("HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")

    def __init__(self, path: str, **settings: Any) -> None:
        gem = framework("gem", "gem", "make")
        self._generators = GlobalGenerators()
        try:
            with self._generators.own(0):
                self._env = gem.make(path, **settings)
        except Exception as error:
            tried = f"tried with gem-llm {TRIED['gem'].version}"
            raise UsageError(f'GEM ({tried}) cannot make "{path}": {type(error).__name__}: {error}') from error

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Start an episode. A seed below 2**31 starts the same one as ``reset(seed=seed)`` in GEM."""
        super().reset(seed=seed, task=task)
        drawn = self.task.seed & LARGEST_SEED
        with self._generators.own(drawn):
            observation, info = self._env.reset(seed=drawn)
        return _shown(observation, info), {}

    def step(self, action: str) -> Step:
        """Take an action. GEM marks a turn limit with both flags; in Palestra such an episode is truncated."""
        with self._generators.own():
            observation, reward, terminated, truncated, info = self._env.step(action)
        return Step(_shown(observation, info), float(reward), bool(terminated and not truncated), bool(truncated), {})

    def sample_random_action(self) -> str:
        """Return a random action of GEM, without an effect on the episode."""
        with self._generators.borrowed(int(self.action_rng.integers(LARGEST_SEED))):
            try:
                return str(self._env.sample_random_action())
            except NotImplementedError:
                raise Unsupported(f"{type(self._env).__name__} of GEM has no sample_random_action()") from None


def _shown(observation: Any, info: dict[str, Any]) -> str:
    return f"{observation}{info.get('suffix') or ''}"  # as GEM's wrappers of observations do


def _numbers(info: dict[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in info.items() if isinstance(value, bool | int | float)}


@cache
def _shim() -> type:
    return type("PalestraEnv", (_Lent, framework("gem", "gem", "Env").Env), {})
