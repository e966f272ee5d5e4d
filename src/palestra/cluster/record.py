"""A rollout that is kept: a folder with every trajectory and a ledger of what became of every episode.

::

    ledger               who had which episode, and what became of it
    trajectories.jsonl   one line for each finished episode and player

The trajectories are the truth. A trajectory is written first and entered second; whoever takes the folder up again enters what
was written and not entered, and plays what was not written. So however often it is killed, each episode is there once, and
``audit`` says so from the files alone.
"""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Unpack

import msgspec

from palestra.cluster.crew import Crew
from palestra.encoding import encode_json
from palestra.errors import UsageError
from palestra.rollout import AnyPolicy, Envs, RolloutOptions, TrajectoryWriter, read_trajectories
from palestra.training.ledger import Audit, Ledger, State
from palestra.trajectory import Trajectory

__all__ = ["Findings", "audit", "recorded"]

_TRAJECTORIES = "trajectories.jsonl"


class Findings(msgspec.Struct, frozen=True):
    """What the files of a recorded rollout prove."""

    ledger: Audit
    missing: tuple[str, ...]
    """Entered as ended, and there is no trajectory."""
    doubled: tuple[str, ...]
    """There is more than one trajectory of the same player."""
    unknown: tuple[str, ...]
    """There is a trajectory, and it was never entered as ended."""

    @property
    def sound(self) -> bool:
        """``issued = consumed + failed + dropped``, and each has its trajectory once."""
        return self.ledger.balanced and not (self.missing or self.doubled or self.unknown)


def audit(folder: Path) -> Findings:
    """Read a folder that nobody writes to, and count."""
    seen: Counter[tuple[str, str]] = Counter()
    path = folder / _TRAJECTORIES
    for trajectory in read_trajectories(path) if path.exists() else ():
        seen[_name(trajectory), trajectory.player] += 1
    written = {name for name, _ in seen}
    with Ledger(folder / "ledger") as ledger:
        ended = set(ledger.rollouts(State.CONSUMED, State.COMMITTED, State.FAILED))
        return Findings(
            ledger=ledger.audit(),
            missing=tuple(sorted(ended - written)),
            doubled=tuple(sorted({name for (name, _), count in seen.items() if count > 1})),
            unknown=tuple(sorted(written - ended)),
        )


class _Record:
    """The two files, kept in step. To the crew it is the book."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._path = folder / _TRAJECTORIES
        self._ledger = stack.enter_context(Ledger(folder / "ledger"))
        self._writer = stack.enter_context(TrajectoryWriter(self._path))
        self.done: set[tuple[int, int]] = set()
        for trajectory in read_trajectories(self._path):
            self.done.add((trajectory.group, trajectory.member))
            self._enter(trajectory)

    def issue(self, rollout: str, task: str = "") -> None:
        if self._ledger.state(rollout) is None:
            self._ledger.issue(rollout, task)

    def lease(self, rollout: str, worker: str = "", attempt: int = 0) -> None:
        if self._ledger.state(rollout) is State.LEASED:  # by an earlier life of this rollout, which was killed
            self._ledger.fail(rollout, "EmployerLost", attempt, again=True)
        self._ledger.lease(rollout, worker, attempt)

    def fail(self, rollout: str, failure: str, attempt: int = 0, *, again: bool = False) -> None:
        if again:
            self._ledger.fail(rollout, failure, attempt, again=True)

    def finish(self, rollout: str) -> None:
        """Nothing: it is entered when it has been written."""

    def write(self, trajectory: Trajectory) -> None:
        self._writer.write(trajectory)
        self._enter(trajectory)

    def _enter(self, trajectory: Trajectory) -> None:
        name = _name(trajectory)
        self.issue(name, trajectory.task.env)
        if self._ledger.state(name) is State.ISSUED:
            self._ledger.lease(name)
        # Another state than these two: another player of the same episode has been here before.
        if self._ledger.state(name) is State.LEASED and trajectory.stop.failed:
            self._ledger.fail(name, trajectory.failures[-1].kind, trajectory.attempt)
        elif self._ledger.state(name) is State.LEASED:
            self._ledger.finish(name)
        if self._ledger.state(name) is State.FINISHED:
            self._ledger.consume([name], 0)


async def recorded(
    crew: Crew, folder: Path, envs: Envs, policy: AnyPolicy, **options: Unpack[RolloutOptions]
) -> AsyncGenerator[Trajectory, None]:
    """``crew.rollout``, kept in ``folder``. What the folder has already is neither played nor yielded again."""
    folder.mkdir(parents=True, exist_ok=True)
    _check_same(folder / "config.json", options)
    with ExitStack() as stack:
        record = _Record(folder, stack)
        options["skip"] = record.done
        async with aclosing(crew.booked(record, envs, policy, **options)) as stream:
            async for trajectory in stream:
                record.write(trajectory)
                yield trajectory


def _check_same(path: Path, options: RolloutOptions) -> None:
    """Seed, group size and horizon decide what an episode is: with others it is another rollout."""
    telling = {name: options.get(name) for name in ("seed", "group_size", "max_turns")}
    now = msgspec.json.format(encode_json(telling), indent=2)
    if not path.exists():
        path.write_bytes(now)
    elif path.read_bytes() != now:
        raise UsageError(f"{path.parent} holds another rollout ({path.read_text()}): name another folder")


def _name(trajectory: Trajectory) -> str:
    return f"{trajectory.group}.{trajectory.member}"
