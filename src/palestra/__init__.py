r"""Palestra: a gym and a trainer for agentic LLMs.

::

    import palestra

    env = palestra.make("game:GuessTheNumber-v0")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("\\boxed{25}")

The face: what most programs need. The rest is in the modules, in the order of the data's way: ``trajectory``, ``core``,
``registry``, ``envs``, ``wrappers``, ``policies``, ``rollout``, ``checking``.
"""

from typing import TYPE_CHECKING, Any

from palestra import grading
from palestra.core import AsyncEnv, Conversation, Env, Policy, Step, Tool, Wrapper
from palestra.envs import mix, register_suite
from palestra.registry import Need, list_envs, make, make_async, register, register_scheme
from palestra.rollout import VectorEnv, collect, make_vec, rollout
from palestra.trajectory import Completion, Image, Message, StopReason, Task, Text, Trajectory, TrajectoryGroup, Turn
from palestra.views import as_async

if TYPE_CHECKING:
    from palestra.checking import check_env
    from palestra.evaluation import evaluate

__version__ = "0.1.0"

__all__ = [
    "AsyncEnv",
    "Completion",
    "Conversation",
    "Env",
    "Image",
    "Message",
    "Policy",
    "Step",
    "StopReason",
    "Task",
    "Text",
    "Tool",
    "Trajectory",
    "TrajectoryGroup",
    "Turn",
    "VectorEnv",
    "Wrapper",
    "as_async",
    "check_env",
    "collect",
    "evaluate",
    "grading",
    "list_envs",
    "make",
    "make_async",
    "make_vec",
    "mix",
    "register",
    "rollout",
]

register_suite()
for _scheme, _entry in (("remote", "palestra.serve.client:RemoteEnv"), ("openenv", "palestra.integrations.openenv:OpenEnv")):
    register_scheme(_scheme, _entry, needs=[Need(label="websockets", module="websockets", extra="serve")])


def __getattr__(name: str) -> Any:
    # Needed once in a while, and a good part of everything that could be imported here.
    if name == "check_env":
        from palestra.checking import check_env

        return check_env
    if name == "evaluate":
        from palestra.evaluation import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
