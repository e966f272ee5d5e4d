"""Tasksets of verifiers as Palestra environments. Tried with verifiers 0.4.0.

``palestra.make("verifiers:TASKSET?key=value")`` plays the tasks of a taskset that ask one question and judge one reply: a
prompt, and rewards that need no runtime. The options are keywords of the taskset's config.

Tasks with tools, a container or a user, and packages with an ``Env`` of their own, drive the model themselves. They are
refused: here Palestra drives it. A program of yours that runs them can play with a model of Palestra over the gateway
(``palestra.agents.Program``). ``verifiers.py`` has the other direction.
"""

import hashlib
import inspect
import itertools
import logging
from typing import Any

from palestra.bridges.versions import TRIED, framework
from palestra.core import AsyncEnv, Step
from palestra.errors import EnvError, UsageError
from palestra.foundation.encoding import encode_json
from palestra.trajectory import Content, Task

__all__ = ["VerifiersEnv", "VerifiersTasks"]

MOST_TASKS = 10_000
"""A longer taskset, or one without an end, is read up to this number of tasks, with a warning."""

_log = logging.getLogger("palestra.bridges")


class VerifiersTasks:
    """The tasks of a taskset, which are the rows of its environment."""

    def __init__(self, path: str, **settings: Any) -> None:
        used = ("import_taskset", "taskset_class", "taskset_config_type")
        loaders = framework("verifiers", "verifiers.v1.utils.loaders", *used)
        self.tasks: list[Any] = []
        try:
            why = _own_loop(loaders.import_taskset(path))
            if not why:
                kind, config = loaders.taskset_class(path), loaders.taskset_config_type(path)(id=path, **settings)
                self.tasks += itertools.islice(kind(config), MOST_TASKS + 1)
                why = "lends tools" if kind.toolsets(config) else next(filter(None, map(_needs, self.tasks)), "")
        except Exception as error:
            tried = f"tried with {TRIED['verifiers'].version}"
            message = f'verifiers ({tried}) cannot load the taskset "{path}": {type(error).__name__}: {error}'
            raise UsageError(message) from error
        if len(self.tasks) > MOST_TASKS:
            del self.tasks[MOST_TASKS:]
            _log.warning('"verifiers:%s" has more than %d tasks; Palestra plays the first %d', path, MOST_TASKS, MOST_TASKS)
        if why:
            raise UsageError(
                f'"verifiers:{path}" {why}, so it drives the model itself. '
                f"Palestra plays only tasksets of one prompt and one reply"
            )

    @property
    def sha256(self) -> str:
        """Hash of the tasks."""
        return hashlib.sha256(encode_json([task.hash for task in self.tasks])).hexdigest()

    def __len__(self) -> int:
        return len(self.tasks)


def _own_loop(module: Any) -> str:
    """Say that the package of the taskset has a loop of its own, or return an empty text. Nothing is loaded for it."""
    envs = [name for name in getattr(module, "__all__", ()) if name.endswith("Env")]
    return f"has a loop of its own ({envs[0]})" if envs else ""


def _needs(task: Any) -> str:
    """Say why ``task`` cannot be played, or return an empty text."""
    if task.NEEDS_CONTAINER or task.data.image:
        return "needs a container"
    if task.data.prompt is None:
        return "has no prompt, because a user opens the conversation"
    if task.scoring_deferred:
        return "leaves its rewards to another task"
    if type(task).toolsets(task.config):
        return "lends tools"
    for hook in (*task.hooks("reward"), *task.hooks("metric")):
        wanted = inspect.signature(hook).parameters.get("runtime")
        if wanted is not None and wanted.default is inspect.Parameter.empty:
            return f"judges in a runtime ({hook.__name__})"
    return "" if task.hooks("reward") else "has no reward"


class VerifiersEnv(AsyncEnv):
    """One task per episode, and one reply.

    Args:
        path: The id of the taskset: the name of its module.
        settings: Keywords of its config.
    """

    max_turns = 1

    def __init__(self, path: str, **settings: Any) -> None:
        self._path, self._rows = path, VerifiersTasks(path, **settings)
        self._told: list[dict[str, str]] = []

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Start the episode of a task. The system prompt is the opening."""
        await super().reset(seed=seed, task=task)
        count, index = len(self._rows), self.task.index
        at = int(self.rng.integers(count)) if index is None else index
        if at >= count:
            raise UsageError(f'"verifiers:{self._path}" has {count} tasks; there is no task {at}')
        self._task = self._rows.tasks[at]
        data = self._task.data
        self._told = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if isinstance(data.prompt, str):
            self._told.append({"role": "user", "content": data.prompt})
        else:
            self._told += [{"role": message.role, "content": str(message.content)} for message in data.prompt]
        *opening, last = self._told
        return last["content"], {"data": {"index": at}, **({"opening": opening} if opening else {})}

    async def step(self, action: str) -> Step:
        """Judge the reply with the rewards of the task, each with its weight."""
        trace = self._trace(action)
        try:
            await self._task.score(trace)
        except Exception as error:
            raise EnvError(f"verifiers:{self._path}: {type(error).__name__}: {error}") from error
        if all(reward is None for reward in trace.rewards.values()):
            raise EnvError(f"verifiers:{self._path}: the task gave no reward")  # not the 0 of an empty sum
        return Step("", float(trace.reward), True, False, {"metrics": _numbers(trace)})

    def _trace(self, reply: str) -> Any:
        used = ("AgentConfig", "AgentInfo", "AssistantMessage", "SystemMessage", "Trace", "UserMessage")
        vf = framework("verifiers", "verifiers.v1", *used)
        node_of = framework("verifiers", "verifiers.v1.graph", "MessageNode").MessageNode
        task_of = framework("verifiers", "verifiers.v1.trace", "TraceTask").TraceTask
        kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
        messages = [*self._told, {"role": "assistant", "content": reply}]
        nodes = [
            node_of(
                parent=number - 1 if number else None,
                message=kinds[message["role"]](content=message["content"]),
                sampled=number == len(messages) - 1,
            )
            for number, message in enumerate(messages)
        ]
        task = self._task
        return vf.Trace(
            task=task_of(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            agent=vf.AgentInfo(config=vf.AgentConfig(), name="palestra"),
            nodes=nodes,
        )


def _numbers(trace: Any) -> dict[str, float]:
    rewards = {name: float(reward.value) for name, reward in trace.rewards.items() if reward is not None}
    return rewards | {name: float(value) for name, value in trace.metrics.items() if value is not None}
