"""The training loop. ``Trainer.step`` is the whole of it: prepare, learn, publish, evaluate, account, record.

The episodes of one step are a wave. Wave w may begin once the weights have version w − ``staleness``, so no token that step w
learns from is older than that. With 0 a wave begins when the step before it has published: synchronous training. With more,
waves are played while the learner works; new weights reach them between two tokens, nothing is thrown away, and a slow
episode has as many steps' time to end. Which episodes a step learns from depends on their tasks alone, never on who was
faster, so slow ones are not under-represented.

It runs in one process; the learner alone may have more ranks. Everything that a step does is derived from the run's seed and
the step, and a checkpoint holds all there is beside that: weights, optimiser, generator, what each environment's steps came to
(for horizons that depend on it), and the ledger's position. So a run that is killed and resumed goes on where it was.

::

    run/  config.json  ledger  checkpoints/  metrics.jsonl  trajectories.jsonl
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from palestra.core import AsyncEnv, Engine
from palestra.policies.sampled import SampledPolicy
from palestra.rollout import Rollout, grouped, rollout
from palestra.seeding import derive, derive_seed
from palestra.training.checkpoint import Checkpoints, Manifest
from palestra.training.config import TrainConfig
from palestra.training.experience import USED, Experience, prepare
from palestra.training.horizon import Outcome
from palestra.training.learner import Learner
from palestra.training.ledger import BEGINNING, Ledger, Position, State
from palestra.training.quarantine import Limits
from palestra.training.record import RunRecord
from palestra.training.statistics import summarise, verdicts
from palestra.trajectory import Content, Task, Trajectory, TrajectoryGroup
from palestra.wrappers import TurnLimit

__all__ = ["Evaluate", "Trainer"]

Evaluate = Callable[[SampledPolicy, int], Awaitable[Mapping[str, float]]]
"""Plays held-out tasks with the policy as it is after a step, and says how it did."""


class Trainer:
    """A run: a learner, a policy that samples from its weights, and a folder in which everything is kept."""

    def __init__(
        self,
        config: TrainConfig,
        learner: Learner,
        policy: SampledPolicy,
        folder: Path,
        *,
        evaluate: Evaluate | None = None,
        show: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.learner = learner
        self.policy = policy
        self.engine: Engine = policy.engine
        self.rollout: Rollout = rollout
        """Who plays the episodes: this process, until somebody else is named."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.evaluate = evaluate
        self.show = show
        self.outcomes: dict[str, list[Outcome]] = defaultdict(list)
        self.checkpoints = Checkpoints(folder / "checkpoints", config.keep)
        self.ledger = Ledger(folder / "ledger")
        self.record = RunRecord(folder)
        self.leaving = False
        """Set it, and the run ends after the step it is in, with a checkpoint."""
        (folder / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)))

    async def train(self) -> None:
        """From the newest checkpoint that verifies, or from the beginning, to the last step."""
        waves: deque[asyncio.Task[list[TrajectoryGroup]]] = deque()
        with self.ledger:
            first = self._resume()
            await self._publish(first)
            try:
                for step in range(first, self.config.steps):
                    for wave in range(step + len(waves), min(step + self.config.staleness + 1, self.config.steps)):
                        waves.append(asyncio.create_task(self._play(wave)))
                    await self.step(step, waves.popleft())
                    if self.leaving:
                        break
            finally:
                for left in waves:
                    left.cancel()
                if waves:
                    await asyncio.wait(waves)

    async def step(self, step: int, wave: Awaitable[list[TrajectoryGroup]]) -> None:
        """One step: the words of the flow, in their order."""
        clock = _Clock()
        groups = await wave
        clock.lap("wait")
        # On a thread: the waves that are being played go on meanwhile.
        experience = await asyncio.to_thread(self._prepare, step, groups)
        clock.lap("prepare")
        learned = await asyncio.to_thread(self._learn, step, experience)
        clock.lap("learn")
        await self._publish(step + 1)
        clock.lap("publish")
        evaluated = await self._evaluate(step)
        clock.lap("evaluate")
        self._account(step, groups, experience)
        metrics = {**summarise(groups, experience), **learned, **evaluated, **clock.numbers(len(experience.batch.positions))}
        self.record.sample(step, groups[: self.config.samples], experience)
        self.record.add(step, metrics)
        self.show({"step": step, **metrics})
        # Last of all: what a checkpoint holds is never done again, so everything about the step must have been written.
        if self.leaving or self._due(step, self.config.checkpoint_every):
            self._checkpoint(step)

    # ---------------------------------------------------------------------------------------------------------- the parts

    async def _play(self, step: int) -> list[TrajectoryGroup]:
        tasks, play = self._tasks(step), self.config.play
        for group in range(len(tasks)):
            for name in (_name(step, group, member) for member in range(play.group_size)):
                if self.ledger.state(name) is None:  # else an earlier life of this run issued it, and did not come to its end
                    self.ledger.issue(name, tasks[group].env)
                    self.ledger.lease(name)
        episodes = self.rollout(
            tasks,
            self.policy,
            group_size=play.group_size,
            concurrency=play.concurrency,
            seed=derive_seed(self.config.seed, "step", step),
            deadline=play.deadline,
            retries=play.retries,
            wrappers=self._horizon(step, tasks),
        )
        # In the order of the tasks, not of completion: what follows must not depend on who was faster.
        groups = [group async for group in grouped(episodes, play.group_size)]
        return sorted(groups, key=lambda group: (group.members[0].group, group.members[0].player))

    def _tasks(self, step: int) -> list[Task]:
        names, weights = list(self.config.envs), np.array(list(self.config.envs.values()))
        drawn = derive(self.config.seed, "mixture", step).choice(len(names), self.config.play.tasks, p=weights / weights.sum())
        return [Task(names[e], derive_seed(self.config.seed, "task", step, i)) for i, e in enumerate(drawn)]

    def _horizon(self, step: int, tasks: Sequence[Task]) -> Sequence[Callable[[AsyncEnv], AsyncEnv]]:
        if self.config.horizon is None:
            return ()
        # What is known when the wave may begin, even if it begins later: a resumed run must come to the same.
        known = {env: [o for o in past if o.step < step - self.config.staleness] for env, past in self.outcomes.items()}
        turns = {env: self.config.horizon.at(env, step, known) for env in {task.env for task in tasks}}
        return (partial(ScheduledHorizon, turns_of=turns),)

    def _prepare(self, step: int, groups: Sequence[TrajectoryGroup]) -> Experience:
        model = self.learner.network.language_model
        limits = Limits(
            vocabulary=model.get_input_embeddings().weight.shape[0],
            context=self.engine.context_length,
            version=step,
            staleness=self.config.staleness,
        )
        return prepare(groups, self.learner, self.config.advantage, self.config.partial, limits)

    def _learn(self, step: int, experience: Experience) -> dict[str, float]:
        loss = self.config.learner.loss
        if self.config.entropy is not None:
            loss = msgspec.structs.replace(loss, entropy_coefficient=self.config.entropy.at(step))
        updates = []
        for epoch in range(self.config.epochs):
            rng = derive(self.config.seed, "minibatches", step, epoch)
            updates += [self.learner.update(part, loss) for part in experience.batch.split(self.config.minibatches, rng)]
        return {name: float(np.mean([update[name] for update in updates])) for name in (updates[0] if updates else ())}

    async def _publish(self, version: int) -> None:
        weights = await asyncio.to_thread(lambda: dict(self.learner.weights()))
        await self.engine.update_weights(weights, version)

    def _account(self, step: int, groups: Sequence[TrajectoryGroup], experience: Experience) -> None:
        """Write every episode's fate into the ledger and every environment's outcome into the statistics.

        An episode of several players has several trajectories and one entry: it was used if any of them was.
        """
        fates: dict[str, list[tuple[Trajectory, str]]] = defaultdict(list)
        for group, row in zip(groups, experience.fates, strict=True):
            for member, fate in zip(group.members, row, strict=True):
                fates[_name(step, member.group, member.member)].append((member, fate))
        for name, seats in fates.items():
            first, fate = seats[0]
            if first.stop.failed:
                self.ledger.fail(name, first.failures[-1].kind, first.attempt)
                continue
            self.ledger.finish(name)
            if not any(fate == USED for _, fate in seats):
                self.ledger.drop(name, fate)
        self.ledger.consume([name for name in fates if self.ledger.state(name) is State.FINISHED], step)
        for env in sorted({group.task.env for group in groups}):
            said = verdicts([member for group in groups if group.task.env == env for member in group.members])
            self.outcomes[env].append(Outcome(step, len(said), sum(said)))

    def _due(self, step: int, every: int) -> bool:
        """Whether something that happens every so many steps, and after the last one, happens now."""
        return every > 0 and ((step + 1) % every == 0 or step + 1 == self.config.steps)

    async def _evaluate(self, step: int) -> dict[str, float]:
        settings = self.config.evaluation
        if self.evaluate is None or settings is None or not self._due(step, settings.every):
            return {}
        return {f"evaluation/{name}": value for name, value in (await self.evaluate(self.policy, step)).items()}

    # ---------------------------------------------------------------------------------------------------- saving and resuming

    def _checkpoint(self, step: int) -> None:
        # The ledger is on the disk before the checkpoint that refers to it, and says "committed" after it.
        self.ledger.sync()
        self.learner.save(self.checkpoints.begin(step))
        notes = {"ledger": self.ledger.position, "outcomes": self.outcomes}
        self.checkpoints.commit(step, msgspec.to_builtins(notes))
        self.ledger.commit(step)

    def _resume(self) -> int:
        """The step to go on with, everything being as it was when it was to begin."""
        found = self.checkpoints.newest(lambda manifest: self.ledger.holds(_position(manifest)))
        if found is None:
            self.ledger.rewind(BEGINNING)
            self.record.trim(-1)
            return 0
        path, manifest = found
        self.learner.load(path)
        self.ledger.rewind(_position(manifest))
        self.ledger.commit(manifest.step)
        self.outcomes = defaultdict(list, msgspec.convert(manifest.notes["outcomes"], dict[str, list[Outcome]]))
        self.record.trim(manifest.step)
        return manifest.step + 1


class ScheduledHorizon(TurnLimit):
    """A turn limit that depends on the environment."""

    def __init__(self, env: AsyncEnv, turns_of: Mapping[str, int]) -> None:
        super().__init__(env, 1)
        self._turns_of = turns_of

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        assert task is not None
        self.turns = self._turns_of[task.env]
        return await super().reset(seed=seed, task=task)


class _Clock:
    """Where the time of a step goes."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """The time since the last lap was spent on ``name``."""
        now = time.perf_counter()
        self._laps[f"seconds/{name}"] = now - self._last
        self._last = now

    def numbers(self, tokens: int) -> dict[str, float]:
        """The laps, and how many of a step's ``tokens`` were played and learned from a second."""
        return {**self._laps, "tokens_a_second": tokens / sum(self._laps.values())}


def _name(step: int, group: int, member: int) -> str:
    return f"{step}.{group}.{member}"


def _position(manifest: Manifest) -> Position:
    return msgspec.convert(manifest.notes["ledger"], Position)
