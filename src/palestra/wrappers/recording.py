"""Record trajectories from any loop, Palestra's or your own."""

from collections.abc import Callable
from typing import Any

from palestra.adapters import Wrapper
from palestra.core import AsyncEnv, Step
from palestra.trajectory import Completion, Content, Failure, Phase, StopReason, Task, Trajectory, Turn

__all__ = ["RecordTrajectory"]


class RecordTrajectory(Wrapper):
    """Passes a ``Trajectory`` to ``sink`` when an episode ends. An episode that ``reset`` or ``close`` ends is truncated.

    ``rollout`` records trajectories itself, with tokens and timings. Use this wrapper if your own loop plays the episodes.
    """

    shared = ("_sink",)

    def __init__(self, env: AsyncEnv, sink: Callable[[Trajectory], object]) -> None:
        super().__init__(env)
        self._sink = sink
        self._turns: list[Turn] = []
        self._observation: Content = ""
        self._reset_info: dict[str, Any] = {}

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._emit(StopReason.TRUNCATED)
        self._observation, self._reset_info = await self.env.reset(seed=seed, task=task)
        return self._observation, self._reset_info

    async def step(self, action: str) -> Step:
        try:
            step = Step(*await self.env.step(action))
        except Exception as error:
            self._emit(StopReason.ERROR, Failure.of(error, Phase.STEP))
            raise
        self._turns.append(Turn(self._observation, Completion(action), step.reward, step.info))
        self._observation = step.observation
        if step.terminated:
            self._emit(StopReason.TERMINATED)
        elif step.truncated:
            self._emit(StopReason.of_cut(step.info))
        return step

    async def close(self) -> None:
        self._emit(StopReason.TRUNCATED)
        await self.env.close()

    def _emit(self, stop: StopReason, *failures: Failure) -> None:
        if not self._turns and not failures:
            return
        turns, self._turns = tuple(self._turns), []
        task, seen, info = self.env.task, self._observation, self._reset_info
        self._sink(Trajectory(task, stop, turns, final_observation=seen, info=info, failures=failures))
