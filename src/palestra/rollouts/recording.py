"""A rollout recorded in a folder: every trajectory, and a ledger with the state of every episode.

::

    config.json          the settings of the rollout: see ``RolloutConfig``
    ledger               which worker played which episode, and how the episode ended
    trajectories.jsonl   one line per finished episode and player
    failed.jsonl         records of failed episodes that a resumed rollout played again

The trajectories are the truth: each is written first and entered in the ledger second. A resumed rollout enters what was
written and not entered, plays what was not written, and plays failed episodes again. After a power loss the ledger can be ahead
of the trajectories. It is then rewound to the first episode without a trajectory, and that episode is played again. So however
often a rollout is killed, each episode is recorded once, and ``audit`` proves it from the files alone.

The process that calls ``recorded`` holds the folder's lock and is the only one that writes; workers of a cluster send it their
episodes.
"""

import hashlib
import itertools
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace
from pathlib import Path

import msgspec

from palestra.durable import Identity, Inside, claim
from palestra.durable.ledger import Audit, Ledger, State, read_ledger
from palestra.foundation.confidential import mask
from palestra.foundation.encoding import encode_json
from palestra.policies import as_policy, policy_name
from palestra.registry import EnvSpec
from palestra.rollouts.defaults import TASKS_PER_ENV
from palestra.rollouts.options import AnyPolicy, RolloutFunction, RolloutOptions, factory_name
from palestra.rollouts.resuming import FAILED, TRAJECTORIES, is_final, resume, set_aside
from palestra.rollouts.scheduler import episode_keys, play_episodes
from palestra.rollouts.storage import TrajectoryWriter, read_trajectories
from palestra.rollouts.supply import Envs, TaskList, data_table, names_of
from palestra.trajectory import Task, Trajectory

__all__ = ["Findings", "RolloutConfig", "audit", "recorded"]

_LEDGER = "ledger"
_ENDED = (State.FINISHED, State.CONSUMED, State.COMMITTED, State.FAILED)
"""States of episodes that must have a trajectory."""


class RolloutConfig(msgspec.Struct, frozen=True):
    """The settings that tell one rollout from another.

    When a rollout is resumed, ``n`` may grow. Concurrency, deadline and retries are not in here and may change.
    """

    policy: str
    envs: tuple[str, ...]
    """The names of the environments, in their order, without passwords; empty if the caller gave tasks."""
    panel: str
    """Hash of the tasks if the caller gave tasks, else empty."""
    n: int | None
    group_size: int
    seed: int
    max_turns: int | None
    wrappers: tuple[str, ...]
    tools: tuple[str, ...]
    data: dict[str, str] = {}
    """Environment → hash of the data that its tasks draw from. A file that changes makes another rollout."""

    @classmethod
    def of(cls, envs: Envs, policy: str, options: RolloutOptions, specs: Iterable[EnvSpec] = ()) -> "RolloutConfig":
        """``envs`` are names, a class, or a sequence of tasks; ``specs`` are those of their environments."""
        given = [envs] if isinstance(envs, str) or callable(envs) else list(envs)
        tasks = [task for task in given if isinstance(task, Task)]
        wrappers, lent = options.names_around()
        return cls(
            policy=policy,
            envs=() if tasks else tuple(mask(env) if isinstance(env, str) else factory_name(env) for env in given),
            panel=hashlib.sha256(encode_json(tasks)).hexdigest()[:16] if tasks else "",
            n=None if tasks else options.n or TASKS_PER_ENV,
            group_size=options.group_size,
            seed=options.seed,
            max_turns=options.max_turns,
            wrappers=wrappers,
            tools=lent,
            data=data_table(specs),
        )


class Findings(msgspec.Struct, frozen=True):
    """Result of an audit: discrepancies between the files of a recorded rollout."""

    ledger: Audit
    missing: tuple[str, ...]
    """Episodes that have ended according to the ledger and have no trajectory."""
    doubled: tuple[str, ...]
    """Episodes with more than one trajectory of the same player."""
    unknown: tuple[str, ...]
    """Episodes that have a trajectory and have not ended according to the ledger."""

    @property
    def sound(self) -> bool:
        """``issued = consumed + failed + dropped``, and each has its trajectory once."""
        return self.ledger.balanced and not (self.missing or self.doubled or self.unknown)


def audit(folder: Path) -> Findings:
    """Count the episodes in a folder, without changing it. While a rollout runs, its running episodes count as open."""
    seen: Counter[tuple[str, str]] = Counter()
    inside = Inside(folder)
    path = inside / TRAJECTORIES
    for trajectory in read_trajectories(path) if path.exists() else ():
        seen[_name(trajectory), trajectory.player] += 1
    written = {name for name, _ in seen}
    books = read_ledger(inside / _LEDGER)
    ended = set(books.rollouts(State.CONSUMED, State.COMMITTED, State.FAILED))
    return Findings(
        ledger=books.audit(),
        missing=tuple(sorted(ended - written)),
        doubled=tuple(sorted({name for (name, _), count in seen.items() if count > 1})),
        unknown=tuple(sorted(written - ended)),
    )


class _RolloutFiles:
    """The two files, kept in step. The scheduler uses it as its ``Book``."""

    def __init__(self, folder: Inside, stack: ExitStack) -> None:
        self._path = folder / TRAJECTORIES
        self._ledger = stack.enter_context(Ledger(folder / _LEDGER))
        kept = resume(self._path, lambda trajectory: (trajectory.group, trajectory.member, trajectory.task.env))
        self.done: set[tuple[int, int]] = {(group, member) for group, member, _ in kept}
        self._writer = stack.enter_context(TrajectoryWriter(self._path))
        self._reopen_failed()
        self._rewind()
        for group, member, env in kept:
            self._enter(f"{group}.{member}", env)

    def _reopen_failed(self) -> None:
        """Issue again the episodes that failed and whose records have been set aside."""
        names = {f"{group}.{member}" for group, member in set_aside(self._path.parent) - self.done}
        for name in self._ledger.rollouts(State.FAILED):
            if name in names:
                self._ledger.reopen(name)

    def _rewind(self) -> None:
        """Rewind the ledger to the first ended episode without a trajectory: a power loss kept the one and lost the other."""
        written = {f"{group}.{member}" for group, member in self.done}
        lost = [name for name in self._ledger.rollouts(*_ENDED) if name not in written]
        if not lost:
            return
        first = set(lost)
        self._ledger.rewind(
            self._ledger.before(lambda event: event.to in _ENDED and not event.again and event.rollout in first)
        )
        warnings.warn(
            f"{self._path.parent}: the ledger lists {len(lost)} episodes whose trajectories are not on the disk (a power "
            "loss?). They are played again; the entries are kept in ledger.aside-*.",
            stacklevel=2,
        )

    def issue(self, rollout: str, task: str = "") -> None:
        if self._ledger.state(rollout) is None:
            self._ledger.issue(rollout, task)

    def lease(self, rollout: str, worker: str = "", attempt: int = 0) -> None:
        if self._ledger.state(rollout) is State.LEASED:  # by a process that was killed
            self._ledger.fail(rollout, "DriverLost", attempt, again=True)
        self._ledger.lease(rollout, worker, attempt)

    def fail(self, rollout: str, failure: str, attempt: int = 0, *, again: bool = False) -> None:
        if again:
            self._ledger.fail(rollout, failure, attempt, again=True)

    def finish(self, rollout: str) -> None:
        """Do nothing: the end is entered when the trajectory has been written."""

    def write(self, trajectory: Trajectory) -> Trajectory:
        """Write ``trajectory``, enter it in the ledger, and return it as it was written."""
        written = self._writer.write(trajectory)
        failure = ""
        if not is_final(written.stop):
            failure = written.failures[-1].kind if written.failures else written.stop.value
        self._enter(_name(written), written.task.env, failure, written.attempt)
        return written

    def _enter(self, name: str, env: str, failure: str = "", attempt: int = 0) -> None:
        self.issue(name, env)
        if self._ledger.state(name) is State.ISSUED:
            self._ledger.lease(name)
        # In any other state, the trajectory of another player of the same episode has been entered before.
        if self._ledger.state(name) is State.LEASED and failure:
            self._ledger.fail(name, failure, attempt)
        elif self._ledger.state(name) is State.LEASED:
            self._ledger.finish(name)
        if self._ledger.state(name) is State.FINISHED:
            self._ledger.consume([name], 0)


async def recorded(
    folder: Path,
    envs: Envs,
    policy: AnyPolicy,
    options: RolloutOptions,
    *,
    name: str = "",
    rollout: RolloutFunction = play_episodes,
) -> AsyncGenerator[Trajectory, None]:
    """Play episodes and record them in ``folder``. Episodes that the folder already has are neither played nor yielded again.

    Episodes that failed before are played again. ``name`` is the policy's name in ``config.json``; by default the name in its
    trajectories. ``rollout`` plays the episodes; by default this process. Raises ``UsageError`` if another process writes into
    the folder, or if the folder holds another rollout.
    """
    if isinstance(envs, str):
        envs = [envs]
    if isinstance(envs, Sequence) and envs and all(isinstance(env, str) for env in envs):
        envs = names_of([str(env) for env in envs])  # a pattern may match other ids tomorrow: the folder keeps those of today
    elif isinstance(envs, Iterable) and not isinstance(envs, Sequence | TaskList):
        envs = tuple(itertools.islice(envs, options.n))
    _, specs = episode_keys(envs, options)  # refuses what cannot be played, before the folder is made
    options.around()
    config = RolloutConfig.of(envs, name or _policy_name(policy), options, specs)
    with ExitStack() as stack:
        identity = Identity(run="rollout", config=config, growing=("n",), results=(TRAJECTORIES, FAILED), others=(_LEDGER,))
        held = stack.enter_context(claim(folder, identity))
        if held.replaced:
            (held.inside / _LEDGER).unlink(missing_ok=True)  # of a rollout that ended before its first episode did
        record = _RolloutFiles(held.inside, stack)
        async with aclosing(rollout(envs, policy, replace(options, skip=record.done), book=record)) as stream:
            async for trajectory in stream:
                yield record.write(trajectory)


def _policy_name(policy: AnyPolicy) -> str:
    if isinstance(policy, Mapping):
        return encode_json({player: policy_name(as_policy(seated)) for player, seated in policy.items()}).decode()
    return policy_name(as_policy(policy))


def _name(trajectory: Trajectory) -> str:
    return f"{trajectory.group}.{trajectory.member}"
