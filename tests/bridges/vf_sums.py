"""A taskset of verifiers for the tests: one question, one reply."""

from collections.abc import Iterator

import verifiers.v1 as vf


class SumData(vf.TaskData):
    total: int


class SumConfig(vf.TasksetConfig):
    count: int = 8


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.total))

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    def load(self) -> Iterator[SumTask]:
        for number in range(self.config.count):
            data = SumData(prompt=f"What is {number} + {number}?", system_prompt="Reply with a number.", total=2 * number)
            yield SumTask(data, self.config.task)


__all__ = ["SumTaskset"]
