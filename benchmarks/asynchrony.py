r"""How much faster steps are that take the groups which have finished, compared with steps that take their groups in order.

    python benchmarks/asynchrony.py            # 300 steps per schedule, under a minute
    python benchmarks/asynchrony.py --quick    # 100 steps

Both schedules are ``GroupStream`` and ``Admission``, as the trainer runs them, on an event loop with a virtual clock. What is
fake is the engine. It decodes up to ``SATURATION`` episodes at full speed, and more of them at a speed that falls as their
number rises. The length of an episode is log-normal with standard deviation sigma of its logarithm. A step learns from 32
groups of 8 episodes for 4 s. Both schedules start groups for two further steps (``ahead = 2``), so their mean age is the same.
In order (waves) means ``staleness = 2``; finished first means ``staleness = 8``.

The figures are ratios of virtual times: they do not depend on the machine.
"""

import argparse
import asyncio
import heapq
from collections.abc import AsyncGenerator
from typing import NamedTuple

import numpy as np
from rows import Row, finish

from palestra.testing.clock import VirtualClockLoop
from palestra.training.admission import Admission
from palestra.training.stream import GroupStream, PlayedTask
from palestra.trajectory import StopReason, Task, Trajectory, TrajectoryGroup

TASKS, MEMBERS = 32, 8
SATURATION = 256
"""Episodes that the engine decodes at full speed."""
MEAN_SECONDS, LEARN_SECONDS = 4.0, 4.0
AHEAD, OLDEST = 2, 8
SETTLING = 20
"""Steps at each end that the comparison of lengths leaves out."""


class Engine:
    """Shares its speed equally among the running episodes."""

    def __init__(self) -> None:
        self._done = 0.0
        """Seconds of full speed that an episode which runs from the beginning has got."""
        self._updated = 0.0
        self._running: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    async def decode(self, seconds: float) -> None:
        """Return when an episode has got ``seconds`` of full speed."""
        self._advance()
        ended = asyncio.Event()
        self._count += 1
        heapq.heappush(self._running, (self._done + seconds, self._count, ended))
        self._plan()
        await ended.wait()

    def _speed(self) -> float:
        return min(1.0, SATURATION / max(len(self._running), 1))

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        self._done += (now - self._updated) * self._speed()
        self._updated = now

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            wait = max(self._running[0][0] - self._done, 0.0) / self._speed()
            self._timer = asyncio.get_running_loop().call_later(wait, self._end)

    def _end(self) -> None:
        # The first is at its end by construction; to compare times would make rounding matter.
        heapq.heappop(self._running)[2].set()
        self._advance()
        self._plan()


class Outcome(NamedTuple):
    """What a schedule did."""

    seconds_per_step: float
    mean_age: float
    oldest: int
    length: float
    """Mean length of the groups that were taken, relative to those that were started for the same steps."""


def simulate(sigma: float, staleness: int, steps: int, seed: int) -> Outcome:
    """Run ``steps`` steps on a virtual clock."""
    lengths = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, (steps * TASKS, MEMBERS)) * MEAN_SECONDS
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(_run(lengths, staleness, steps))


async def _run(lengths: np.ndarray, staleness: int, steps: int) -> Outcome:
    engine, versions = Engine(), {}
    taken: list[list[int]] = []

    async def play(numbers: range, version: int) -> AsyncGenerator[PlayedTask, None]:
        ended: asyncio.Queue[int] = asyncio.Queue()

        async def one(number: int) -> None:
            versions[number] = version
            async with asyncio.TaskGroup() as members:
                for seconds in lengths[number]:
                    members.create_task(engine.decode(float(seconds)))
            ended.put_nowait(number)

        async with asyncio.TaskGroup() as groups:
            for number in numbers:
                groups.create_task(one(number))
            for _ in numbers:
                number = await ended.get()
                member = Trajectory(Task("game:x", number), StopReason.TERMINATED, group=number)
                yield PlayedTask(number, (TrajectoryGroup(member.task, (member,)),))

    async with GroupStream(Admission(TASKS, AHEAD, staleness, steps), play) as stream:
        for step in range(steps):
            stream.start(step)
            taken.append([group.members[0].group for group in await stream.take(step)])
            await asyncio.sleep(LEARN_SECONDS)
        seconds = asyncio.get_running_loop().time() / steps
    ages = [step - versions[number] for step, numbers in enumerate(taken) for number in numbers]
    window = slice(SETTLING, steps - SETTLING)
    started = lengths[window.start * TASKS : window.stop * TASKS].mean()
    length = lengths[np.concatenate(taken[window])].mean() / started
    return Outcome(seconds, float(np.mean(ages)), max(ages), float(length))


def rows(sigma: float, limit: str, steps: int, seeds: int) -> list[Row]:
    """Both schedules over ``seeds`` samples of lengths."""
    ordered, first = ([simulate(sigma, oldest, steps, seed) for seed in range(seeds)] for oldest in (AHEAD, OLDEST))
    waves, ours = (float(np.mean([one.seconds_per_step for one in many])) for many in (ordered, first))
    ages = [float(np.mean([one.mean_age for one in many])) for many in (ordered, first)]
    length = float(np.mean([one.length for one in first]))
    name = f"sigma {sigma}"
    return [
        Row(f"{name}: steps per second, finished first over in order", waves / ours, limit),
        Row(f"{name}: difference of the mean ages in versions", abs(ages[0] - ages[1]), "<= 0.05"),
        Row(f"{name}: oldest group in versions", max(one.oldest for one in first), f"<= {OLDEST}"),
        Row(f"{name}: length of groups taken over started, distance from 1", abs(length - 1), "<= 0.01"),
        Row(f"{name}: mean age in versions", ages[1], ""),
        Row(f"{name}: seconds per step, in order", waves, ""),
        Row(f"{name}: seconds per step, finished first", ours, ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 steps of one sample instead of 300 steps of three")
    options = parser.parse_args()
    steps, seeds = (100, 1) if options.quick else (300, 3)
    finish([*rows(0.5, "", steps, seeds), *rows(1.0, ">= 1.35", steps, seeds), *rows(1.5, ">= 1.5", steps, seeds)])


if __name__ == "__main__":
    main()
