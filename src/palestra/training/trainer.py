"""The training loop. ``Trainer.step`` is the whole of it: prepare, learn, publish, evaluate, account, record.

The episodes of one step are a wave. Wave w may start once the weights have version w − ``staleness``, so no token that step w
learns from is older. With a staleness of 0, a wave starts when the step before it has published its weights: synchronous
training. With a larger staleness, waves are played while the learner works. New weights reach them between two tokens, no
episode is thrown away, and a slow episode has several steps of time to finish. Which episodes belong to a step depends on their
tasks alone, not on their speed, so slow episodes are not under-represented.

The trainer runs in one process; only the learner may have several ranks. Everything that a step does is derived from the run's
seed and the number of the step. A checkpoint holds the rest: weights, optimizer, random generator, the outcomes of each
environment's steps (some horizons depend on them), and the ledger's position. So a run that was killed resumes exactly where it
was.

Inside this module steps count from 0. Everything that is written or shown counts from 1: step n makes version n of the weights,
and checkpoint n holds the state after n steps.

::

    run/  config.json  ledger  checkpoints/  metrics.jsonl  trajectories.jsonl  evaluations/
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
from palestra.durable.checkpoint import Checkpoints, Manifest
from palestra.durable.ledger import BEGINNING, Ledger, LedgerPosition, State
from palestra.policies import as_policy
from palestra.policies.sampled import SampledPolicy
from palestra.rollout import RolloutFunction, RolloutOptions, grouped, play_episodes
from palestra.seeding import derive, derive_seed
from palestra.training.algorithms.horizon import Schedule, StepOutcome, turns_at
from palestra.training.algorithms.validity import SampleLimits
from palestra.training.config import POLICY, TrainConfig
from palestra.training.experience import USED, Experience, prepare
from palestra.training.heldout import evaluate_held_out
from palestra.training.learner.learner import Learner
from palestra.training.publishing import PolicyWeights
from palestra.training.record import RunRecord
from palestra.training.rescoring import Rescoring
from palestra.training.summary import solved, summarize
from palestra.training.tasks import TrainingTasks
from palestra.trajectory import Content, Task, Trajectory, TrajectoryGroup
from palestra.wrappers import TurnLimit

__all__ = ["Trainer"]


class Trainer:
    """A run: a learner, a policy that samples from its weights, and the run folder."""

    def __init__(
        self,
        config: TrainConfig,
        learner: Learner,
        sampled: SampledPolicy,
        folder: Path,
        *,
        show: Callable[[Mapping[str, Any]], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.learner = learner
        self.sampled = sampled
        """Samples one reply per turn from the weights of the learner."""
        self._make_policy = POLICY.load(config.player)
        self.policy = as_policy(self._make_policy(sampled))
        """The policy that plays: ``sampled``, or what the recipe's ``policy`` makes of it."""
        self.engine: Engine = sampled.engine
        self.rollout: RolloutFunction = play_episodes
        """Plays the episodes; by default in this process."""
        self.drawing = TrainingTasks(config)
        """Draws the tasks of a step. Held-out rows are left out."""
        self._rescoring = Rescoring(config.play.grader, config.play.group_reward)
        self._schedules: dict[str, Schedule] = {}
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.show = show
        """Called with the metrics of every step."""
        self.say = say
        """Called with notes for the user."""
        self.outcomes: dict[str, list[StepOutcome]] = defaultdict(list)
        self.checkpoints = Checkpoints(folder / "checkpoints", config.keep)
        self.ledger = Ledger(folder / "ledger")
        self.record = RunRecord(folder)
        self.stop_requested = False
        """If true, the run ends after the current step, with a checkpoint."""
        self._saving = 0.0
        """Seconds that the last checkpoint took. The next step reports it: the metrics of its own step are already written."""

    async def train(self) -> None:
        """Train from the newest checkpoint that verifies, or from the beginning, to the last step."""
        waves: deque[asyncio.Task[list[TrajectoryGroup]]] = deque()
        with self.ledger:
            first = self._resume()
            await self._publish(first)
            try:
                for step in range(first, self.config.steps):
                    for wave in range(step + len(waves), min(step + self.config.staleness + 1, self.config.steps)):
                        waves.append(asyncio.create_task(self._play(wave)))
                    await self.step(step, waves.popleft())
                    if self.stop_requested:
                        break
            finally:
                for left in waves:
                    left.cancel()
                if waves:
                    await asyncio.wait(waves)

    async def step(self, step: int, wave: Awaitable[list[TrajectoryGroup]]) -> None:
        """Make one step: wait for its episodes, prepare, learn, publish, evaluate, account, record, checkpoint."""
        clock = _Clock(self._saving)
        groups = await wave
        clock.lap("wait")
        # On a thread, so that the waves that are being played continue.
        experience = await asyncio.to_thread(self._prepare, step, groups)
        clock.lap("prepare")
        learned = await asyncio.to_thread(self._learn, step, experience)
        clock.lap("learn")
        await self._publish(step + 1)
        clock.lap("publish")
        evaluated = await self._evaluate(step)
        clock.lap("evaluate")
        self._account(step, groups, experience)
        metrics = {**summarize(groups, experience), **learned, **evaluated, **clock.numbers(len(experience.batch.positions))}
        self.record.sample(step + 1, groups[: self.config.samples], experience)
        self.record.add(step + 1, metrics)
        self.show({"step": step + 1, **metrics})
        # The checkpoint comes last: a step that it holds is never repeated, so everything else must be written before.
        self._saving = 0.0
        if self.stop_requested or self._due(step, self.config.checkpoint_every):
            began = time.perf_counter()
            # On a thread, because episodes of the next waves are being played and their deadlines run.
            await asyncio.to_thread(self._checkpoint, step)
            self._saving = time.perf_counter() - began

    # ---------------------------------------------------------------------------------------------------------- the parts

    async def rescored(self, groups: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
        """Return ``groups`` with the rewards to learn from: ``play.grader`` and ``play.group_reward`` may change them."""
        return await self._rescoring.apply(groups)

    async def _play(self, step: int) -> list[TrajectoryGroup]:
        tasks, play = self._tasks(step), self.config.play
        for group in range(len(tasks)):
            for name in (_name(step, group, member) for member in range(play.group_size)):
                if self.ledger.state(name) is None:  # otherwise an earlier process issued it and did not finish it
                    self.ledger.issue(name, tasks[group].env)
                    self.ledger.lease(name)
        options = RolloutOptions(
            group_size=play.group_size,
            concurrency=play.concurrency,
            seed=derive_seed(self.config.seed, "step", step),
            deadline=play.deadline,
            retries=play.retries,
            cut_as_invalid=play.cut == "as_invalid",
            wrappers=self._horizon(step, tasks),
        )
        episodes = self.rollout(tasks, self.policy, options)
        # In the order of the tasks, not of completion: what follows must not depend on who was faster.
        groups = [group async for group in grouped(episodes, play.group_size)]
        groups.sort(key=lambda group: (group.members[0].group, group.members[0].player))
        return await self.rescored(groups)

    def _tasks(self, step: int) -> list[Task]:
        names, weights = list(self.config.envs), np.array(list(self.config.envs.values()))
        seed, count = self.config.seed, self.config.play.tasks
        drawn = derive(seed, "mixture", step).choice(len(names), count, p=weights / weights.sum())
        return [self.drawing.task(names[e], derive_seed(seed, "task", step, i), step * count + i) for i, e in enumerate(drawn)]

    def _horizon(self, step: int, tasks: Sequence[Task]) -> Sequence[Callable[[AsyncEnv], AsyncEnv]]:
        if self.config.horizon is None:
            return ()
        # What is known when the wave may start at the earliest, so that a resumed run gets the same horizons.
        known = {env: [o for o in past if o.step < step - self.config.staleness] for env, past in self.outcomes.items()}
        for env in {task.env for task in tasks} - self._schedules.keys():
            self._schedules[env] = self.config.horizon.schedule(env)
        turns = {env: turns_at(schedule, step, known.get(env, ())) for env, schedule in self._schedules.items()}
        return (partial(ScheduledHorizon, turns_of=turns),)

    def _prepare(self, step: int, groups: Sequence[TrajectoryGroup]) -> Experience:
        model = self.learner.network.language_model
        limits = SampleLimits(
            vocabulary=model.get_input_embeddings().weight.shape[0],
            context=self.engine.context_length,
            version=step,
            staleness=self.config.staleness,
        )
        return prepare(groups, self.learner, self.config.advantage, self.config.partial, limits, self.config.play.shaping)

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
        await self.engine.update_weights(PolicyWeights(self.learner), version)

    def _account(self, step: int, groups: Sequence[TrajectoryGroup], experience: Experience) -> None:
        """Write every episode's outcome into the ledger and every environment's outcome into the statistics.

        An episode of several players has several trajectories and one entry: it was used if any of them was.
        """
        outcomes: dict[str, list[tuple[Trajectory, str]]] = defaultdict(list)
        for group, row in zip(groups, experience.outcomes, strict=True):
            for member, outcome in zip(group.members, row, strict=True):
                outcomes[_name(step, member.group, member.member)].append((member, outcome))
        for name, seats in outcomes.items():
            first, outcome = seats[0]
            if first.stop.failed:
                self.ledger.fail(name, first.failures[-1].kind, first.attempt)
                continue
            self.ledger.finish(name)
            if not any(outcome == USED for _, outcome in seats):
                self.ledger.drop(name, outcome)
        self.ledger.consume([name for name in outcomes if self.ledger.state(name) is State.FINISHED], step + 1)
        for env in sorted({group.task.env for group in groups}):
            said = solved([member for group in groups if group.task.env == env for member in group.members])
            self.outcomes[env].append(StepOutcome(step, len(said), sum(said)))

    def _due(self, step: int, every: int) -> bool:
        """Return whether something that happens every ``every`` steps, and after the last step, happens now."""
        return every > 0 and ((step + 1) % every == 0 or step + 1 == self.config.steps)

    async def _evaluate(self, step: int) -> dict[str, float]:
        settings = self.config.evaluation
        if settings is None or not self._due(step, settings.every):
            return {}
        cooled = msgspec.structs.replace(self.sampled.sampling, temperature=settings.temperature)
        sampled = self.sampled.with_sampling(cooled)
        sampled.name = f"{Path(self.config.model.path).name} after step {step + 1}"
        policy = as_policy(self._make_policy(sampled))
        numbers = await evaluate_held_out(self.config, settings, policy, self.folder, step + 1)
        return {f"evaluation/{name}": value for name, value in numbers.items()}

    # ---------------------------------------------------------------------------------------------------- saving and resuming

    def _checkpoint(self, step: int) -> None:
        # The ledger is synced before the checkpoint that refers to it, and records the commit after it.
        done = step + 1
        self.ledger.sync()
        written = self.learner.save(self.checkpoints.begin(done))
        notes = {"ledger": self.ledger.position, "outcomes": self.outcomes}
        self.checkpoints.commit(done, msgspec.to_builtins(notes), written=written)
        self.ledger.commit(done)

    def _resume(self) -> int:
        """Restore the state after the last step of the newest valid checkpoint, and return the number of finished steps."""
        found = self.checkpoints.newest(lambda manifest: self.ledger.holds(_position(manifest)))
        there = self.checkpoints.paths()
        if there and (found is None or found[0] != there[0]):
            self.say(f"{there[0]} is damaged or does not belong to this ledger: resuming from an earlier checkpoint")
        if found is None:
            self.ledger.rewind(BEGINNING)
            self.record.trim(0)
            return 0
        path, manifest = found
        self.learner.load(path)
        self.ledger.rewind(_position(manifest))
        self.ledger.commit(manifest.step)
        self.outcomes = defaultdict(list, msgspec.convert(manifest.notes["outcomes"], dict[str, list[StepOutcome]]))
        self.record.trim(manifest.step)
        if manifest.step < self.config.steps:
            self.say(f"resuming after step {manifest.step} of {self.config.steps}")
        return manifest.step


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
    """Measures where the time of a step goes."""

    def __init__(self, saving: float) -> None:
        """``saving`` is the duration of the checkpoint before this step, in seconds."""
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {"seconds/checkpoint": saving}

    def lap(self, name: str) -> None:
        """Record the time since the last lap as ``seconds/name``."""
        now = time.perf_counter()
        self._laps[f"seconds/{name}"] = now - self._last
        self._last = now

    def numbers(self, tokens: int) -> dict[str, float]:
        """The laps, and how many of a step's ``tokens`` were played and learned from a second."""
        return {**self._laps, "tokens_per_second": tokens / sum(self._laps.values())}


def _name(step: int, group: int, member: int) -> str:
    return f"{step + 1}.{group}.{member}"


def _position(manifest: Manifest) -> LedgerPosition:
    return msgspec.convert(manifest.notes["ledger"], LedgerPosition)
