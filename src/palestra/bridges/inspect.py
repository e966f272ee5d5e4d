"""Palestra's environments as tasks of Inspect. Tried with inspect-ai 0.3.285.

``inspect_task("game:GuessTheNumber-v0", n=20)`` is a Palestra environment as a ``Task`` of Inspect, for ``eval()`` and for
``inspect eval``. Palestra plays the episodes, and Inspect calls the model. An episode that fails is an error of its sample, not
a score of 0. An episode that a limit of Inspect cuts keeps the rewards up to there. ``success`` is 0 where the environment says
nothing about it. ``inspect_env.py`` has the other direction.
"""

from functools import cache
from typing import Any

from palestra.bridges.rows import task_of, task_text
from palestra.bridges.versions import framework
from palestra.core import Conversation
from palestra.errors import EnvError, UsageError
from palestra.rollouts import play
from palestra.rollouts.supply import tasks_of
from palestra.trajectory import Completion, Finish, text_of

__all__ = ["inspect_task"]


def inspect_task(env: str, *, n: int = 100, seed: int = 0, **settings: Any) -> Any:
    """Return an Inspect ``Task`` of ``n`` episodes of ``env``: the tasks that ``palestra.evaluate`` plays with this seed.

    Args:
        env: The id.
        n: Number of tasks.
        seed: The seed of the tasks.
        settings: Keywords of ``palestra.play``, such as ``max_turns``.

    Raises:
        UsageError: ``retries`` is among the settings. Inspect keeps the messages of a sample, so only Inspect can retry it.
    """
    if settings.get("retries"):
        raise UsageError("Inspect plays failed samples again by itself: write eval(…, retry_on_error=N) instead of retries=N")
    inspect_ai, parts = _inspect()
    rows = [
        inspect_ai.dataset.Sample(input=f"{task.env}, task {at}", id=at, metadata={"task": task_text(task)})
        for at, task in enumerate(tasks_of(env, n, seed)[0])
    ]
    data = inspect_ai.dataset.MemoryDataset(rows, name=env)
    return inspect_ai.Task(dataset=data, solver=parts["episode"](settings), scorer=parts["outcome"]())


class _Asking:
    """Asks Inspect's model for every action."""

    name = "inspect"

    def __init__(self, state: Any, generate: Any, message_of: Any) -> None:
        self.state, self.generate, self.message_of = state, generate, message_of
        self.error: Exception | None = None
        state.messages = []  # the sample's input only names the task

    async def act(self, conversation: Conversation) -> Completion:
        new = conversation.messages[len(self.state.messages) :]
        try:
            self.state.messages += map(self.message_of, new)
            self.state = await self.generate(self.state, tool_calls="none")
        except Exception as error:  # such as a limit of Inspect, which Inspect has to see
            self.error = error
            raise
        cut = self.state.output.stop_reason in ("max_tokens", "model_length")
        return Completion(self.state.output.completion, Finish.LENGTH if cut else Finish.STOP)


async def _episode(state: Any, generate: Any, message_of: Any, settings: dict[str, Any]) -> Any:
    asking = _Asking(state, generate, message_of)
    played = await play(task_of(state.metadata), asking, **{**settings, "retries": 0})
    # Inspect scores an episode that one of its limits has cut, so the store is filled before the limit is raised again.
    rewards = [turn.reward for turn in played.turns]
    asking.state.store.set("value", {"reward": sum(rewards), "success": float(bool(played.success))})
    asking.state.store.set("stop", "limit" if asking.error else str(played.stop))
    asking.state.store.set("rewards", rewards)
    if asking.error is not None:
        raise asking.error
    if played.stop.failed:
        raise EnvError(f"the episode failed: {played.failures[-1].message}")
    return asking.state


@cache
def _inspect() -> tuple[Any, dict[str, Any]]:
    """Return ``inspect_ai``, and the solver and scorer of ``inspect_task``."""
    inspect_ai = framework("inspect", "inspect_ai", "Task")
    framework("inspect", "inspect_ai.dataset", "MemoryDataset", "Sample")
    model = framework("inspect", "inspect_ai.model", "ChatMessageAssistant", "ChatMessageSystem", "ChatMessageUser")
    scorer = framework("inspect", "inspect_ai.scorer", "Score", "mean", "scorer", "stderr")
    solver = framework("inspect", "inspect_ai.solver", "solver")
    kinds = {"system": model.ChatMessageSystem, "assistant": model.ChatMessageAssistant}

    def message_of(message: Any) -> Any:
        return kinds.get(message.role, model.ChatMessageUser)(content=text_of(message.content))

    @solver.solver(name="palestra_episode")  # type: ignore[untyped-decorator,unused-ignore]
    def episode(settings: dict[str, Any]) -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            return await _episode(state, generate, message_of, settings)

        return solve

    @scorer.scorer(metrics={"*": [scorer.mean(), scorer.stderr()]}, name="palestra_outcome")  # type: ignore[untyped-decorator,unused-ignore]
    def outcome() -> Any:
        async def score(state: Any, target: Any) -> Any:
            kept = {key: state.store.get(key) for key in ("stop", "rewards")}
            return scorer.Score(value=state.store.get("value"), answer=state.output.completion, metadata=kept)

        return score

    return inspect_ai, {"episode": episode, "outcome": outcome}
