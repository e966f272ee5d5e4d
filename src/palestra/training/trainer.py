"""The training loop. ``Trainer.step`` is the whole of it: prepare, learn, publish, evaluate, account, record.

``accounts`` knows the fate of every episode, ``heldout`` evaluates and says which step was the best.

A step learns from ``play.tasks`` groups. ``stream`` plays groups ahead of the learner, and ``admission`` decides which of them
are started and which a step takes. New weights reach running episodes between two tokens, and no episode is thrown away. With a
staleness of 0 the groups of a step start when the step before it has published its weights: synchronous training.

The trainer runs in one process; only the learner may have several ranks. Everything that a step does is derived from the run's
seed, the number of the step, and which groups it took. The ledger records the groups of every step. A checkpoint holds the
rest: weights, optimizer, random generator, the outcomes of each environment's steps (some horizons depend on them), the groups
that had finished and that no step had taken, and the ledger's position. So a run that was killed resumes where it was. Groups
that were being played start again; with ``settle`` there are none.

Inside this module steps count from 0. Everything that is written or shown counts from 1: step n makes version n of the weights,
and checkpoint n holds the state after n steps.

::

    run/  config.json  ledger  checkpoints/  metrics.jsonl  trajectories.jsonl  evaluations/
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from palestra.core import AsyncEnv, Engine
from palestra.durable import Inside
from palestra.durable.checkpoint import Checkpoints, Manifest
from palestra.durable.ledger import BEGINNING, Ledger, LedgerPosition
from palestra.errors import SchemaError, UsageError
from palestra.foundation.seeding import derive, derive_seed
from palestra.foundation.telemetry import span
from palestra.inference.servers.agreement import SamplerWatch
from palestra.inference.servers.publishing import PolicyWeights
from palestra.inference.servers.served import sleeping_engine
from palestra.policies import as_policy, is_privileged
from palestra.policies.sampled import SampledPolicy
from palestra.recipes.config import TrainConfig
from palestra.rollouts import (
    EpisodeLimit,
    RolloutFunction,
    RolloutOptions,
    grouped_by_task,
    play_episodes,
)
from palestra.training.accounts import Accounts
from palestra.training.admission import Admission
from palestra.training.algorithms.horizon import Schedule, StepOutcome, schedule_of, turns_at
from palestra.training.algorithms.validity import SampleLimits, quarantine
from palestra.training.difficulty import RowOutcome
from palestra.training.experience import Experience, any_used, prepare
from palestra.training.heldout import BestEvaluation, HeldOut
from palestra.training.learner.batch import Batch
from palestra.training.learner.learner import Learner
from palestra.training.opponents import Opponents
from palestra.training.parts import RunParts
from palestra.training.record import RunRecord
from palestra.training.rescoring import Rescoring
from palestra.training.stream import GroupStream, PlayedTask, read_kept, write_kept
from palestra.training.summary import StepClock, summarize
from palestra.training.tasks import KnownOutcomes, TrainingTasks
from palestra.training.teaching import Teacher, TeacherSetup, check_context, taught
from palestra.trajectory import Content, Task, TrajectoryGroup
from palestra.wrappers import TurnLimit

__all__ = ["Trainer"]

_T = TypeVar("_T")
_KEPT = "groups.jsonl"
"""In a checkpoint: the groups that had finished and that no step had taken."""


class Trainer:
    """A run: a learner, a policy that samples from its weights, and the run folder."""

    def __init__(
        self,
        config: TrainConfig,
        parts: RunParts,
        tasks: TrainingTasks,
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
        self._make_policy = parts.policy
        self.policy = as_policy(self._make_policy(sampled))
        """The policy that plays: ``sampled``, or what the recipe's ``policy`` makes of it."""
        self.opponents = Opponents()
        self.engine: Engine = sampled.engine
        self._sleeper = sleeping_engine(sampled.engine) if config.engine.sleep else None
        """The engine, if it gives its memory to the learner while the learner works."""
        self.rollout: RolloutFunction = play_episodes
        """Plays the episodes; by default in this process."""
        self.drawing = tasks
        """Draws the tasks of a step. Held-out rows are left out."""
        self._teacher: Teacher | None = None
        if config.teacher is not None and parts.teacher is not None:
            self._teacher = parts.teacher(TeacherSetup(config.teacher, learner, config.play.deadline))
        self._rescoring = Rescoring(parts.grader, parts.group_reward)
        self._schedules: dict[str, Schedule] = {}
        self._episode_limit = EpisodeLimit(config.play.concurrency)
        self._entropy_coefficient = config.entropy_target.start if config.entropy_target is not None else 0.0
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.show = show
        """Called with the metrics of every step."""
        self.say = say
        """Called with notes for the user."""
        self._watch = SamplerWatch(say)
        self.held_out = HeldOut(config.evaluation, tuple(config.envs), config.seed, config.play, folder, say)
        self.checkpoints = Checkpoints(Inside(folder) / "checkpoints", config.keep)
        self.ledger = Ledger(Inside(folder) / "ledger")
        self.accounts = Accounts(self.ledger, by_row=config.play.difficulty is not None)
        self.record = RunRecord(folder)
        self._thread = ThreadPoolExecutor(1, "learner")
        self.stream: GroupStream
        """Plays the groups; made by ``train``."""
        self.stop_requested = False
        """If true, the run ends after the current step, with a checkpoint."""
        self._saving = 0.0
        """Seconds that the last checkpoint took. The next step reports it: the metrics of its own step are already written."""

    async def train(self) -> None:
        """Train from the newest checkpoint that verifies, or from the beginning, to the last step."""
        config = self.config
        admission = Admission(config.play.tasks, config.steps_ahead, config.staleness, config.steps)
        self.stream = GroupStream(admission, self._play, self._is_useless)
        with self.ledger:
            first, kept = self._resume()
            await self._publish(first)
            await check_context(config.teacher, self.engine.context_length, config.play.deadline)
            if first == 0 and config.evaluation is not None and config.evaluation.at_start:
                self.held_out.say_scores(await self._evaluate(0))
            async with self.stream:
                self._restore(first, kept)
                for step in range(first, config.steps):
                    if self.stop_requested or self.held_out.gave_up():
                        break
                    self.stream.start(step)
                    await self.step(step)

    async def close(self) -> None:
        """Close the engine, and that of the opponents."""
        try:
            await self.engine.close()
        finally:
            await self.opponents.close()

    async def step(self, step: int) -> None:
        """Make one step: wait for its groups, prepare, learn, publish, evaluate, account, record, checkpoint."""
        clock = StepClock(self._saving)
        groups = await self.stream.take(step)
        clock.lap("wait")
        if self._sleeper is not None:
            await self._sleeper.sleep()
            clock.lap("sleep")
        experience = await self._on_learner_thread(self._prepare, step, groups)
        clock.lap("prepare")
        with span("learner_step", step=step):
            learned, experience = await self._on_learner_thread(self._learn, step, experience)
        clock.lap("learn")
        await self._publish(step + 1)
        clock.lap("publish")
        evaluation = self.config.evaluation
        evaluated = await self._evaluate(step + 1) if evaluation is not None and self._due(step, evaluation.every) else {}
        clock.lap("evaluate")
        self.accounts.enter_step(step, groups, experience)
        self._watch.look(experience.measured.get("sampler/kl"), stale=bool(experience.staleness))
        metrics = {
            **summarize(groups, experience),
            **self.opponents.metrics(step, experience.counted(groups)),
            **(self.accounts.replacements() if self.config.partial.refill else {}),
            **learned,
            **evaluated,
            **clock.numbers(len(experience.batch.positions)),
        }
        self.record.sample(step + 1, groups[: self.config.samples], experience)
        self.record.add(step + 1, metrics)
        self.show({"step": step + 1, **metrics})
        # The checkpoint comes last: a step that it holds is never repeated, so everything else must be written before.
        self._saving = 0.0
        is_best = self.held_out.is_best(step + 1)
        if self.stop_requested or is_best or self.held_out.gave_up() or self._due(step, self.config.checkpoint_every):
            began = time.perf_counter()
            if self.config.settle and not self.stop_requested:
                await self.stream.settle()
            await self._on_learner_thread(self._checkpoint, step + 1, self._notes(), list(self.stream.kept.values()))
            self.ledger.commit(step + 1)
            if is_best:
                self.checkpoints.call_best(step + 1)
            self._saving = time.perf_counter() - began

    async def _on_learner_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run ``work`` on the learner's thread, so that episodes continue and keep their deadlines.

        It is always the same thread: the memory allocator keeps what each thread has freed for that thread.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    # ---------------------------------------------------------------------------------------------------------- the parts

    async def rescored(self, groups: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
        """Return ``groups`` with the rewards to learn from: ``play.grader`` and ``play.group_reward`` may change them."""
        return await self._rescoring.apply(groups)

    def limits(self, version: int, staleness: int) -> SampleLimits:
        """What a valid sample keeps if the weights have ``version`` and a token may be ``staleness`` versions older."""
        embeddings = self.learner.network.language_model.get_input_embeddings()
        return SampleLimits(
            vocabulary=embeddings.weight.shape[0],
            context=self.engine.context_length,
            version=version,
            staleness=staleness,
            privileged=is_privileged(self.policy),
        )

    async def _play(self, numbers: range, version: int) -> AsyncGenerator[PlayedTask, None]:
        """Play the groups ``numbers``, which start with weights of ``version``. Yield each when its last episode has ended."""
        tasks, play = [self.drawing.draw(number, self._known(number, version)) for number in numbers], self.config.play
        for number, task in zip(numbers, tasks, strict=True):
            self.accounts.issue(number, task.env, play.group_size)
        options = RolloutOptions(
            group_size=play.group_size,
            concurrency=play.concurrency,
            shared_limit=self._episode_limit,
            first_group=numbers[0],
            seed=derive_seed(self.config.seed, "episodes"),
            deadline=play.deadline,
            retries=play.retries,
            cut_as_invalid=play.cut == "as_invalid",
            wrappers=self._horizon(numbers, tasks, version),
            seating=self.opponents.seating,
        )
        async with aclosing(self.rollout(tasks, self.policy, options)) as episodes:
            async for groups in grouped_by_task(episodes, play.group_size):
                yield PlayedTask(groups[0].members[0].group, tuple(await self.rescored(self.opponents.learned_from(groups))))

    def _is_useless(self, task: PlayedTask) -> bool:
        """Whether the rules for partial groups drop all groups of ``task``, and the run may still replace it by another.

        A task that is replaced is dropped in the ledger, without a step.
        """
        partial, replaced = self.config.partial, self.stream.admission.replaced
        if replaced >= partial.refill * self.config.play.tasks * (self.stream.version + 1):
            return False
        # Which step takes the group, and so how old its tokens may be, is not known yet.
        limits = self.limits(self.config.steps, self.config.steps)
        if any_used(task.groups, partial, limits, self.config.play.shaping):
            return False
        self.accounts.enter_replaced(task, quarantine(task.groups, limits))
        return True

    def _known(self, number: int, version: int) -> KnownOutcomes:
        """What is known when the group may start at the earliest, so that a resumed run gets the same tasks and horizons."""
        return self.accounts.known(self._step_of(number, version) - self.config.steps_ahead)

    def _step_of(self, number: int, version: int) -> int:
        """The latest step that may take the group ``number``, if it starts with weights of ``version``."""
        return min(number // self.config.play.tasks, version + self.config.steps_ahead)

    def _horizon(self, numbers: range, tasks: Sequence[Task], version: int) -> Sequence[Callable[[AsyncEnv], AsyncEnv]]:
        if self.config.horizon is None:
            return ()
        for env in {task.env for task in tasks} - self._schedules.keys():
            self._schedules[env] = schedule_of(self.config.horizon, env)
        turns: dict[tuple[str, int | None], int] = {}
        for number, task in zip(numbers, tasks, strict=True):
            outcomes = self._known(number, version).envs.get(task.env, ())
            turns[task.env, task.seed] = turns_at(self._schedules[task.env], self._step_of(number, version), outcomes)
        return (partial(ScheduledHorizon, turns_of=turns),)

    def _prepare(self, step: int, groups: Sequence[TrajectoryGroup]) -> Experience:
        config, limits = self.config, self.limits(step, self.config.staleness)
        experience = prepare(groups, self.learner, config.advantage, config.partial, limits, config.play.shaping)
        if self._teacher is None or config.teacher is None:
            return experience
        batch, measured = taught(experience.batch, self._teacher, config.teacher)
        return replace(experience, batch=batch, measured={**experience.measured, **measured})

    def _learn(self, step: int, experience: Experience) -> tuple[dict[str, float], Experience]:
        self.learner.seen = None
        config, loss = self.config, self.config.learner.loss
        if config.entropy is not None:
            loss = msgspec.structs.replace(loss, entropy_coefficient=config.entropy.at(step))
        if config.entropy_target is not None:
            loss = msgspec.structs.replace(loss, entropy_coefficient=self._entropy_coefficient)
        updates: list[dict[str, float]] = []
        for part in self._parts(step, experience):
            updates.append(self.learner.update(part, loss))
            if config.target_kl is not None and updates[-1]["kl_old"] > config.target_kl:
                break
        learned = {name: float(np.mean([update[name] for update in updates])) for name in (updates[0] if updates else ())}
        if config.entropy_target is not None and learned:
            learned["entropy_coefficient"] = self._entropy_coefficient
            self._entropy_coefficient = config.entropy_target.after(self._entropy_coefficient, learned["entropy"])
        return {**learned, "updates": len(updates)}, experience.after(self.learner.seen)

    def _parts(self, step: int, experience: Experience) -> Iterator[Batch]:
        """The mini-batches of a step. There are none if nothing can be learned from it: all advantages are 0."""
        loss, batch = self.config.learner.loss, experience.batch
        regularized = bool(loss.kl_coefficient or loss.entropy_coefficient or self.config.entropy or self.config.entropy_target)
        if batch.advantages is None or not (batch.advantages.any() or regularized or self.config.model.critic):
            return
        if not self.config.measures_first:  # one update, and what it sees is compared with this very batch
            yield batch
            return
        for epoch in range(self.config.epochs):
            rng = derive(self.config.seed, "minibatches", step, epoch)
            yield from batch.split(self.config.minibatches, rng)

    async def _publish(self, version: int) -> None:
        weights = PolicyWeights(self.learner)
        await self.engine.update_weights(weights, version)
        await self.opponents.follow(weights, version)

    def _due(self, step: int, every: int) -> bool:
        """Return whether something that happens every ``every`` steps, and after the last step, happens now."""
        return every > 0 and ((step + 1) % every == 0 or step + 1 == self.config.steps)

    async def _evaluate(self, done: int) -> dict[str, float]:
        """Play the held-out tasks with the weights after ``done`` steps."""
        assert self.config.evaluation is not None
        cooled = msgspec.structs.replace(self.sampled.sampling, temperature=self.config.evaluation.temperature)
        sampled = self.sampled.with_sampling(cooled)
        sampled.name = f"{Path(self.config.model.path).name} after step {done}"
        return await self.held_out.evaluate(as_policy(self._make_policy(sampled)), done)

    # ---------------------------------------------------------------------------------------------------- saving and resuming

    def _notes(self) -> dict[str, Any]:
        """What a checkpoint holds beside files, as ``_Notes`` reads it."""
        kept = {str(number): self.stream.admission.open[number] for number in self.stream.kept}
        return {
            "ledger": self.ledger.position,
            "outcomes": self.accounts.outcomes,
            "rows": self.accounts.row_outcomes,
            "kept": kept,
            "entropy_coefficient": self._entropy_coefficient,
            "progress": self.held_out.progress,
        }

    def _checkpoint(self, done: int, notes: dict[str, Any], kept: Sequence[PlayedTask]) -> None:
        # The ledger is synced before the checkpoint that refers to it, and records the commit after it.
        self.ledger.sync()
        folder = self.checkpoints.begin(done)
        written = self.learner.save(folder)
        write_kept(folder / _KEPT, kept)
        self.checkpoints.commit(done, msgspec.to_builtins(notes), written=written)

    def _resume(self) -> tuple[int, list[tuple[PlayedTask, int]]]:
        """Restore the state after the last step of the newest valid checkpoint.

        Return the number of finished steps, and the groups that had finished and that no step had taken, with their versions.
        """
        saved: list[_Saved] = []

        def accept(path: Path, manifest: Manifest) -> bool:
            """Whether the checkpoint is one of this run: its notes can be read, and its step is the ledger's."""
            try:
                saved.append(_Saved.of(path, manifest))
            except (SchemaError, UsageError, OSError):
                return False
            return self.ledger.step_at(saved[-1].notes.ledger) == manifest.step

        newest = self.checkpoints.newest(accept)
        paths = self.checkpoints.paths()
        if paths and (newest is None or newest[0] != paths[0]):
            self.say(f"{paths[0]} is damaged or does not belong to this ledger: resuming from an earlier checkpoint")
        if newest is None:
            self.ledger.rewind(BEGINNING)
            self._trim(0)
            return 0, []
        path, manifest = newest
        self.learner.load(path)
        notes = saved[-1].notes
        self.ledger.rewind(notes.ledger)
        self.ledger.commit(manifest.step)
        self.accounts.restore(notes.outcomes, notes.rows)
        self._entropy_coefficient = notes.entropy_coefficient
        self._restore_best(notes.progress, manifest.step)
        self._trim(manifest.step)
        if manifest.step < self.config.steps:
            self.say(f"resuming from step {manifest.step} of {self.config.steps}")
        return manifest.step, saved[-1].kept

    def _trim(self, step: int) -> None:
        for note in self.record.trim(step):
            self.say(note)

    def _restore_best(self, saved: BestEvaluation, step: int) -> None:
        self.held_out.resume(saved)
        if self.held_out.is_best(step):
            self.checkpoints.call_best(step)  # the run may have crashed after this checkpoint and before its name was written

    def _restore(self, version: int, kept: Sequence[tuple[PlayedTask, int]]) -> None:
        """Continue with the groups of the ledger that no step has taken: those that had finished, and the others again."""
        groups, admission = self.accounts.started_groups(), self.stream.admission
        admission.started, admission.replaced = groups.total, groups.replaced
        self.stream.restore(kept, groups.unfinished - {task.number for task, _ in kept}, version)


class ScheduledHorizon(TurnLimit):
    """The turn limit that the horizon schedule gives to each task."""

    def __init__(self, env: AsyncEnv, turns_of: Mapping[tuple[str, int | None], int]) -> None:
        """``turns_of`` has the limit of every task, by its environment and its seed."""
        super().__init__(env, 1)
        self._turns_of = turns_of

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        assert task is not None
        self.turns = self._turns_of[task.env, task.seed]
        return await super().reset(seed=seed, task=task)


class _Notes(msgspec.Struct, frozen=True):
    """The notes of a checkpoint."""

    ledger: LedgerPosition
    outcomes: dict[str, list[StepOutcome]]
    kept: dict[int, int]
    """Group that had finished and that no step had taken → the version of the weights that it started with."""
    entropy_coefficient: float
    progress: BestEvaluation
    rows: dict[str, list[RowOutcome]] = {}
    """Absent before there was ``play.difficulty``."""


class _Saved(NamedTuple):
    """What the trainer reads in a checkpoint, beside the learner's state."""

    notes: _Notes
    kept: list[tuple[PlayedTask, int]]

    @classmethod
    def of(cls, path: Path, manifest: Manifest) -> "_Saved":
        """Read it. Raise ``SchemaError`` if it is not what a trainer wrote."""
        try:
            notes = msgspec.convert(manifest.notes, _Notes, strict=False)
        except msgspec.ValidationError as error:
            raise SchemaError(f"{path.name}: {error}") from error
        tasks = read_kept(Inside(path) / _KEPT)
        if unknown := [task.number for task in tasks if task.number not in notes.kept]:
            raise SchemaError(f"{path.name}: the manifest does not name the groups {unknown} of {_KEPT}")
        return cls(notes, [(task, notes.kept[task.number]) for task in tasks])
