r"""Palestra: a gym and a trainer for agentic LLMs.

::

    import palestra

    env = palestra.make("game:GuessTheNumber-v0")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("\\boxed{25}")

This module holds what most programs need; ``dir(palestra)`` lists it. Each name is imported when it is first used, so that
``import palestra`` takes milliseconds. The rest is in the packages, in the order in which data flows:
``trajectory``, ``core``, ``registry``, ``suite``, ``wrappers``, ``policies``, ``rollouts``, ``evaluation``, ``training``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from palestra import errors, grading, policies, tools, training, wrappers
    from palestra.adapters import Wrapper, as_async
    from palestra.checking import check_env
    from palestra.core import AsyncEnv, Conversation, Env, Policy, Step, Tool
    from palestra.evaluation import evaluate
    from palestra.policies.chat import ChatPolicy, Endpoint
    from palestra.policies.sampled import SampledPolicy
    from palestra.recipes import TrainConfig
    from palestra.registry import list_envs, make, make_async, print_envs, register
    from palestra.rollouts import VectorEnv, collect, make_vec, play, read_trajectories, rollout
    from palestra.suite import mix
    from palestra.tools import tool
    from palestra.training import train
    from palestra.trajectory import (
        Completion,
        Image,
        Message,
        StopReason,
        Task,
        Text,
        Trajectory,
        TrajectoryGroup,
        Turn,
        flatten,
    )
    from palestra.wrappers import UseTools

_HOMES = {
    "adapters": "Wrapper as_async",
    "checking": "check_env",
    "core": "AsyncEnv Conversation Env Policy Step Tool",
    "suite": "mix",
    "evaluation": "evaluate",
    "policies.chat": "ChatPolicy Endpoint",
    "policies.sampled": "SampledPolicy",
    "registry": "list_envs make make_async print_envs register",
    "rollouts": "VectorEnv collect make_vec play read_trajectories rollout",
    "tools": "tool",
    "recipes": "TrainConfig",
    "training": "train",
    "trajectory": "Completion Image Message StopReason Task Text Trajectory TrajectoryGroup Turn flatten",
    "wrappers": "UseTools",
}
"""Module of this package → the names that are imported from it when they are first used."""
_LAZY = {name: f"palestra.{home}" for home, names in _HOMES.items() for name in names.split()}
_PACKAGES = frozenset({"errors", "grading", "policies", "tools", "training", "wrappers"})
"""Modules of this package that ``palestra.NAME`` imports."""

__all__ = [
    "AsyncEnv",
    "ChatPolicy",
    "Completion",
    "Conversation",
    "Endpoint",
    "Env",
    "Image",
    "Message",
    "Policy",
    "SampledPolicy",
    "Step",
    "StopReason",
    "Task",
    "Text",
    "Tool",
    "TrainConfig",
    "Trajectory",
    "TrajectoryGroup",
    "Turn",
    "UseTools",
    "VectorEnv",
    "Wrapper",
    "as_async",
    "check_env",
    "collect",
    "errors",
    "evaluate",
    "flatten",
    "grading",
    "list_envs",
    "make",
    "make_async",
    "make_vec",
    "mix",
    "play",
    "policies",
    "print_envs",
    "read_trajectories",
    "register",
    "rollout",
    "tool",
    "tools",
    "train",
    "training",
    "wrappers",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _LAZY and name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_LAZY[name]), name) if name in _LAZY else import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if _LAZY.get(name) != "palestra.training" or (error.name or "").startswith("palestra"):
            raise
        from palestra.errors import MissingExtra
        from palestra.foundation.installation import how_to_install

        raise MissingExtra(f"palestra.{name} needs {error.name}: {how_to_install('train')}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # help() reads every name that dir() lists, and must not fail where the extra "train" is not installed.
    from palestra.registry.specs import is_importable

    absent = set() if is_importable("torch") else {name for name, home in _LAZY.items() if home == "palestra.training"}
    return sorted({*globals(), *_LAZY, *_PACKAGES} - absent)


def _version() -> str:
    """The version that was installed. Its source is the tag of the repository."""
    from importlib import metadata

    try:
        return metadata.version("palestra")
    except metadata.PackageNotFoundError:
        return "unknown"
