"""``Wrapper``: the class to inherit from in order to modify an environment.

Wrappers are written once, on the async side. A wrapper around a plain environment, such as the object that ``make`` returns, is
again a plain environment: ``TurnLimit(palestra.make(id), 3)`` has the blocking ``reset`` and ``step`` of what went in.
"""

import copy
import inspect
from typing import Any, ClassVar

from palestra.adapters.blocking import Blocking
from palestra.adapters.direct import as_async
from palestra.adapters.guarded import Guarded
from palestra.core import AsyncEnv, Env, Step
from palestra.errors import Unsupported
from palestra.trajectory import Content, Task

__all__ = ["Wrapper"]


class Wrapper(AsyncEnv):
    """Modifies an environment. Override one of the three hooks, or a method where a hook is not enough.

    Args:
        env: The environment to wrap. Given a plain one, the call returns a plain environment instead of a ``Wrapper``.

    Example::

        class Shout(palestra.Wrapper):
            def observation(self, observation):
                return observation.upper()

        env = Shout(palestra.make("game:GuessTheNumber-v0"))
    """

    __signature__: ClassVar[inspect.Signature]
    shared: ClassVar[tuple[str, ...]] = ()
    """Attributes that ``fork`` shares with the copy, such as a file or a model. It copies all others."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # help() and inspect show the arguments of __init__, and not the open ones of __new__.
        cls.__signature__ = _arguments_of(cls)

    def __new__(cls, env: Any = None, *arguments: Any, **keywords: Any) -> Any:
        if not isinstance(env, Env):
            return super().__new__(cls)
        name = env.name if isinstance(env, Guarded) else f"{type(env).__module__}:{type(env).__qualname__}"
        return Guarded(Blocking(cls(as_async(env), *arguments, **keywords)), name)

    def __init__(self, env: AsyncEnv) -> None:
        if not isinstance(env, AsyncEnv):
            raise TypeError(
                f"{type(self).__name__} wraps an environment, got a {type(env).__name__}: "
                f"write {type(self).__name__}(palestra.make(id), …)"
            )
        self.env = env

    # The hooks.

    def observation(self, observation: Content) -> Content:
        """Change what the agent sees."""
        return observation

    def action(self, action: str) -> str:
        """Change what the environment receives."""
        return action

    def reward(self, reward: float) -> float:
        """Change the reward of a step."""
        return reward

    # The methods, passed on.

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        observation, info = await self.env.reset(seed=seed, task=task)
        return self.observation(observation), info

    async def step(self, action: str) -> Step:
        observation, reward, terminated, truncated, info = await self.env.step(self.action(action))
        return Step(self.observation(observation), self.reward(reward), terminated, truncated, info)

    async def close(self) -> None:
        await self.env.close()

    async def healthy(self) -> bool:
        return await self.env.healthy()

    async def oracle(self) -> str:
        return await self.env.oracle()

    async def sample_random_action(self) -> str:
        return await self.env.sample_random_action()

    async def seed_actions(self, seed: int) -> None:
        await self.env.seed_actions(seed)

    async def fork(self) -> AsyncEnv:
        """Return an independent copy: a fork of the environment inside, and a copy of the wrapper's own attributes.

        Raises:
            Unsupported: The environment inside has no ``fork``, or an attribute cannot be copied.
        """
        inside = await self.env.fork()
        twin: AsyncEnv = type(self).__new__(type(self))
        kept = {id(self): twin, **_counterparts(self.env, inside)}
        try:
            for name, value in self.__dict__.items():
                twin.__dict__[name] = value if name in self.shared else self._copied(name, value, kept)
        except Unsupported:
            await inside.close()
            raise
        return twin

    def _copied(self, name: str, value: Any, kept: dict[int, Any]) -> Any:
        try:
            return copy.deepcopy(value, kept)
        except Exception as error:  # noqa: BLE001 - __deepcopy__ may raise anything
            raise Unsupported(
                f"{type(self).__name__} cannot be forked: its attribute {name!r} cannot be copied ({error}). "
                f"List it in `shared` on the class, or override fork()"
            ) from None

    @property
    def unwrapped(self) -> Env | AsyncEnv:
        return self.env.unwrapped

    def __getattr__(self, name: str) -> Any:
        # The task and the author's own attributes are visible from outside. "env" is not set yet while unpickling.
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


def _counterparts(env: Any, fork: Any) -> dict[int, Any]:
    """Return what corresponds in ``fork`` to ``env`` and to every environment inside it. An attribute may be any of them."""
    counterparts: dict[int, Any] = {}
    while isinstance(env, Env | AsyncEnv) and isinstance(fork, Env | AsyncEnv):
        counterparts[id(env)] = fork
        env, fork = env.__dict__.get("env"), fork.__dict__.get("env")
    return counterparts


def _arguments_of(kind: type) -> inspect.Signature:
    signature = inspect.signature(kind.__init__)  # type: ignore[misc]
    return signature.replace(parameters=list(signature.parameters.values())[1:], return_annotation=inspect.Signature.empty)


Wrapper.__signature__ = _arguments_of(Wrapper)
