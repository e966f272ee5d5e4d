"""Palestra: a gym and a trainer for agentic LLMs."""

from palestra import grading
from palestra.core import AsyncEnv, Env, Policy, Step, Tool, Wrapper
from palestra.envs import register_suite
from palestra.registry import list_envs, make, make_async, register
from palestra.trajectory import Completion, Message, StopReason, Task, Trajectory, Turn
from palestra.views import as_async

register_suite()

__all__ = [
    "AsyncEnv",
    "Completion",
    "Env",
    "Message",
    "Policy",
    "Step",
    "StopReason",
    "Task",
    "Tool",
    "Trajectory",
    "Turn",
    "Wrapper",
    "as_async",
    "grading",
    "list_envs",
    "make",
    "make_async",
    "register",
]
