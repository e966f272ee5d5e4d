r"""Palestra: a gym and a trainer for agentic LLMs.

::

    import palestra

    env = palestra.make("game:GuessTheNumber-v0")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("\\boxed{25}")

This module holds what most programs need; ``dir(palestra)`` lists it. Names that need more than the core are imported when
they are first used, so ``import palestra`` stays light. The rest is in the packages, in the order in which data flows:
``trajectory``, ``core``, ``registry``, ``envs``, ``wrappers``, ``policies``, ``rollout``, ``evaluation``, ``training``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from palestra import errors
from palestra.adapters import Wrapper, as_async
from palestra.core import AsyncEnv, Conversation, Env, Policy, Step, Tool
from palestra.envs import mix, register_suite
from palestra.errors import MissingExtra
from palestra.installation import how_to_install
from palestra.integrations import register_theirs
from palestra.registry import Need, list_envs, make, make_async, print_envs, register, register_files, register_scheme
from palestra.rollout import rollout
from palestra.specs import is_importable
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

if TYPE_CHECKING:
    __version__: str
    from palestra import grading, policies, tools, training, wrappers
    from palestra.checking import check_env
    from palestra.evaluation import evaluate
    from palestra.policies.chat import ChatPolicy, Endpoint
    from palestra.policies.sampled import SampledPolicy
    from palestra.rollout import VectorEnv, collect, make_vec, play, read_trajectories
    from palestra.tools import tool
    from palestra.training import TrainConfig, train
    from palestra.wrappers import UseTools

_LAZY = {
    "ChatPolicy": "palestra.policies.chat",
    "Endpoint": "palestra.policies.chat",
    "SampledPolicy": "palestra.policies.sampled",
    "TrainConfig": "palestra.training",
    "UseTools": "palestra.wrappers",
    "VectorEnv": "palestra.rollout",
    "check_env": "palestra.checking",
    "collect": "palestra.rollout",
    "evaluate": "palestra.evaluation",
    "grading": "",
    "make_vec": "palestra.rollout",
    "play": "palestra.rollout",
    "policies": "",
    "read_trajectories": "palestra.rollout",
    "tool": "palestra.tools",
    "tools": "",
    "train": "palestra.training",
    "training": "",
    "wrappers": "",
}
"""Name → the module that it is imported from when it is first used; nothing for a package of ours."""

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

register_suite()
_websockets = Need(label="websockets", module="websockets", extra="serve")
register_scheme("remote", "palestra.serve.client:RemoteEnv", needs=[_websockets])
register_files("openenv", "palestra.integrations.openenv_env:OpenEnv", as_text=False, needs=[_websockets])
register_theirs()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _LAZY[name]
    try:
        found = getattr(import_module(home), name) if home else import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if home != "palestra.training" or (error.name or "").startswith("palestra"):
            raise
        raise MissingExtra(f"palestra.{name} needs {error.name}: {how_to_install('train')}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    # help() reads every name that dir() lists, and must not fail where the extra "train" is not installed.
    absent = set() if is_importable("torch") else {name for name, home in _LAZY.items() if home == "palestra.training"}
    return sorted({*globals(), *_LAZY} - absent)


def _version() -> str:
    """The version that was installed. Its source is the tag of the repository."""
    from importlib import metadata

    try:
        return metadata.version("palestra")
    except metadata.PackageNotFoundError:
        return "unknown"
