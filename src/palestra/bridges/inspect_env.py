"""Tasks of Inspect as Palestra environments: a data set, a solver and a scorer. Tried with inspect-ai 0.3.285.

``palestra.make("inspect:MODULE:FUNCTION?key=value")`` plays the samples of the task that the function returns. Only a function
with Inspect's decorator ``@task`` is called. Wherever the solver calls ``generate``, the agent acts. Solvers with tools, agents
and sandboxes drive the model themselves and are refused.
``inspect.py`` has the other direction.
"""

import asyncio
import hashlib
from typing import Any

from palestra.bridges.versions import framework
from palestra.core import AsyncEnv, Step
from palestra.errors import EnvError, UsageError
from palestra.foundation.encoding import encode_json
from palestra.foundation.references import resolve
from palestra.trajectory import Content, Task

__all__ = ["InspectEnv", "InspectSamples"]


class InspectSamples:
    """The samples of an Inspect task, which are the rows of its environment."""

    def __init__(self, path: str, **settings: Any) -> None:
        framework("inspect", "inspect_ai.solver", "TaskState", "chain")
        framework("inspect", "inspect_ai.model", "ChatMessageUser", "ModelName", "ModelOutput")
        framework("inspect", "inspect_ai.scorer", "Target", "value_to_float")
        registry = framework("inspect", "inspect_ai._util.registry", "is_registry_object")
        function = resolve(path)
        if not registry.is_registry_object(function, "task"):  # checked before the call: an id may name any function
            raise UsageError(f'"{path}" is not a task of Inspect: write inspect:MODULE:FUNCTION of a function with @task')
        self.task = made = function(**settings)
        self.samples = list(made.dataset)
        if made.sandbox or any(sample.sandbox or sample.files or sample.setup for sample in self.samples):
            raise UsageError(f'"{path}" needs a sandbox of Inspect, which Palestra does not run')
        if not made.scorer:
            raise UsageError(f'"{path}" has no scorer, so its episodes would have no reward')

    @property
    def sha256(self) -> str:
        """Hash of inputs and targets."""
        rows = [
            (sample.input if isinstance(sample.input, str) else [message.text for message in sample.input], sample.target)
            for sample in self.samples
        ]
        return hashlib.sha256(encode_json(rows)).hexdigest()

    def __len__(self) -> int:
        return len(self.samples)


class InspectEnv(AsyncEnv):
    """One sample per episode: Inspect's solver runs until it needs a reply, and Inspect's first scorer gives the reward.

    Args:
        path: ``MODULE:FUNCTION``, where the function returns a ``Task`` of Inspect.
        settings: Keywords of the function.
    """

    def __init__(self, path: str, **settings: Any) -> None:
        self._path, self._rows = path, InspectSamples(path, **settings)
        self._running: asyncio.Task[None] | None = None

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        await self.close()
        count, index = len(self._rows), self.task.index
        at = int(self.rng.integers(count)) if index is None else index
        if at >= count:
            raise UsageError(f'"{self._path}" has {count} samples; there is no sample {at}')
        self._asked: asyncio.Queue[Any] = asyncio.Queue()
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        sample = self._rows.samples[at].model_copy(deep=True)  # solvers write into messages and metadata
        self._running = asyncio.create_task(self._solve(sample))
        *opening, last = _texts(await self._next())
        return last["content"], {"opening": opening, "data": {"index": at}} if opening else {"data": {"index": at}}

    async def step(self, action: str) -> Step:
        await self._replies.put(action)
        asked = await self._next()
        if isinstance(asked, dict):
            return Step("", asked["value"], True, False, {"success": asked["value"] >= 1.0, "metrics": asked["metrics"]})
        since = max(number for number, message in enumerate(asked) if message.role == "assistant") + 1
        return Step("\n\n".join(message["content"] for message in _texts(asked[since:])), 0.0, False, False, {})

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running])

    async def _next(self) -> Any:
        """Return the messages to answer, or the score."""
        asked = await self._asked.get()
        if isinstance(asked, Exception):
            raise EnvError(f"{self._path}: {type(asked).__name__}: {asked}") from asked
        return asked

    async def _solve(self, sample: Any) -> None:
        try:
            await self._asked.put(await self._scored(sample))
        except Exception as error:  # noqa: BLE001 - the error belongs to the caller, who waits
            await self._asked.put(error)

    async def _scored(self, sample: Any) -> dict[str, Any]:
        from inspect_ai.model import ChatMessageUser, ModelName
        from inspect_ai.scorer import Target
        from inspect_ai.solver import TaskState, chain

        messages = [ChatMessageUser(content=sample.input)] if isinstance(sample.input, str) else list(sample.input)
        state = TaskState(
            model=ModelName("palestra/policy"), sample_id=sample.id or 0, epoch=1, input=sample.input, messages=messages,
            target=Target(sample.target), choices=sample.choices, metadata=sample.metadata,
        )  # fmt: skip
        task = self._rows.task
        solvers = [*([task.setup] if task.setup else []), task.solver]
        state = await chain(*solvers)(state, self._generate)
        if not any(message.role == "assistant" for message in state.messages):
            raise EnvError("the solver never called generate(): it drives the model itself")
        scores = [await scorer(state, state.target) for scorer in task.scorer]
        metrics = {f"score_{number}": _number(score) for number, score in enumerate(scores[1:], 1)}
        return {"value": _number(scores[0]), "metrics": metrics}

    async def _generate(self, state: Any, tool_calls: str = "loop", **_: Any) -> Any:
        from inspect_ai.model import ModelOutput

        if state.tools:
            raise EnvError("the solver lends tools of Inspect, which Palestra does not run")
        await self._asked.put(list(state.messages))
        state.output = ModelOutput.from_content("palestra/policy", await self._replies.get())
        state.messages.append(state.output.message)
        return state


def _texts(messages: Any) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in messages]


def _number(score: Any) -> float:
    from inspect_ai.scorer import value_to_float

    value = score.value
    return float(value_to_float()(next(iter(value.values())) if isinstance(value, dict) else value))
