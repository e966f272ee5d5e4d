"""``evaluate``: a panel of tasks, a policy, so many tries each → a report, with everything it rests on in a run folder.

The panel is fixed before anything is played: ``n`` tasks of each environment, drawn from the seed. Every episode of it is
played exactly once, over as many interruptions as there may be; its random choices depend on the task, the try and the seed
alone, so the report of a run that was killed and went on is the report of one that was not.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from palestra.encoding import encode_json
from palestra.errors import UsageError
from palestra.evaluation.budget import Budget, Meter, metered
from palestra.evaluation.folder import EvaluationConfig, RunFolder
from palestra.evaluation.report import Episode, Report, episode_of, report_on
from palestra.evaluation.versions import environment_versions, package_versions
from palestra.evaluation.vocabulary import write_vocabulary
from palestra.policies import as_policy, policy_name
from palestra.registry import list_envs
from palestra.rollout import AnyPolicy, Envs, Players, Rollout, RolloutOptions, TrajectoryWriter, rollout
from palestra.rollout.supply import tasks_of
from palestra.trajectory import StopReason, Task, Trajectory

__all__ = ["EvaluationOptions", "Progress", "evaluate", "evaluate_async"]

DEFAULT_TASKS = 100


class EvaluationOptions(TypedDict, total=False):
    """How to evaluate. Every one is optional."""

    n: int
    """Tasks of each environment; 100 by default. Of tasks given by the caller, the first ``n``, or all."""
    repeats: int
    """Tries at each task; 1 by default."""
    out: str | Path | None
    """The run folder; without one nothing is kept but the report."""
    budget: Budget | None
    """Where to stop spending."""
    watch: Callable[["Progress"], None] | None
    """Called after each episode."""
    player: str | None
    """Whose episodes the report is on, where each player has a policy of its own."""
    about: Mapping[str, str]
    """What else tells this policy from others (a temperature, an address): noted in the folder and the report."""
    seed: int
    concurrency: int
    deadline: float
    max_turns: int | None
    retries: int
    rollout: Rollout
    """Who plays the episodes; this process by default."""


@dataclass(frozen=True, kw_only=True)
class _Settings:
    n: int | None = None
    repeats: int = 1
    out: str | Path | None = None
    budget: Budget | None = None
    watch: Callable[["Progress"], None] | None = None
    player: str | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    concurrency: int = 64
    deadline: float = 600.0
    max_turns: int | None = None
    retries: int = 2
    rollout: Rollout = rollout

    def __post_init__(self) -> None:
        for name in ("n", "repeats"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, got {value}")
        if self.budget is not None and self.rollout is not rollout:
            raise UsageError("a budget is watched by the process that plays: leave it out, or play in this process")


@dataclass(frozen=True)
class Progress:
    """How far an evaluation is."""

    total: int
    """Episodes of the panel."""
    episodes: Sequence[Episode] = field(repr=False)
    """Those that have ended. The list grows; read it, do not keep it."""
    player: str | None = None

    @property
    def failed(self) -> int:
        """Episodes without a score so far."""
        return sum(episode.reward is None for episode in self.episodes)

    def report(self) -> Report:
        """The report on what there is by now."""
        return report_on(self.episodes, player=self.player)


def evaluate(envs: Envs, policy: AnyPolicy, **options: Unpack[EvaluationOptions]) -> Report:
    """Evaluate ``policy`` on ``envs``: ids, patterns (``game:*-easy``), a class, or the very tasks. Blocks until done."""
    work = partial(asyncio.run, evaluate_async(envs, policy, **options))
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as thread:  # a notebook has a loop of its own in this thread
        return thread.submit(work).result()


async def evaluate_async(envs: Envs, policy: AnyPolicy, **options: Unpack[EvaluationOptions]) -> Report:
    """``evaluate`` for those who have a loop."""
    settings = _Settings(**options)
    panel = _Panel.of(envs, settings)
    players = _players(policy, settings.player)
    config = _config(panel, players, settings)
    folder = None if settings.out is None else RunFolder(settings.out, config)
    if folder is not None:
        write_vocabulary(players, folder.path)
    episodes = [] if folder is None else folder.episodes()
    with ExitStack() as stack:
        meter = Meter(settings.budget or Budget(), folder.path / "spending.log" if folder and settings.budget else None)
        stack.callback(meter.close)
        writer = stack.enter_context(TrajectoryWriter(folder.trajectories)) if folder else None
        await _play(panel, metered(players, meter) if settings.budget else players, settings, _Record(episodes, meter, writer))
    about = {**config.about, **panel.notes, "seed": str(config.seed), "panel": config.panel, **config.versions}
    report = report_on(episodes, issued=panel.issued(settings.repeats), player=settings.player, about=about)
    if folder is not None:
        folder.write_report(report)
    return report


class _Record:
    """What has been played. As a container it holds what need not be: what was on record before, and all once money is gone."""

    def __init__(self, episodes: list[Episode], meter: Meter, writer: TrajectoryWriter | None) -> None:
        self.episodes = episodes
        self._before = {(episode.group, episode.member) for episode in episodes}
        self._meter = meter
        self._writer = writer

    def __contains__(self, key: object) -> bool:
        return key in self._before or self._meter.spent

    def add(self, trajectory: Trajectory) -> None:
        if self._writer is not None:
            self._writer.write(trajectory)
        self.episodes.append(episode_of(trajectory))


async def _play(panel: "_Panel", players: Players, settings: _Settings, record: _Record) -> None:
    how: RolloutOptions = {
        "n": panel.drawn,
        "group_size": settings.repeats,
        "concurrency": settings.concurrency,
        "seed": settings.seed,
        "deadline": settings.deadline,
        "max_turns": settings.max_turns,
        "retries": settings.retries,
        "skip": record,
    }
    progress = Progress(len(panel.tasks) * settings.repeats, record.episodes, settings.player)
    async with aclosing(settings.rollout(panel.source, players, **how)) as stream:
        async for trajectory in stream:
            # An episode that the money did not suffice for was not played.
            if trajectory.stop is StopReason.BUDGET:
                continue
            record.add(trajectory)
            if settings.watch is not None:
                settings.watch(progress)


def _players(policy: AnyPolicy, player: str | None) -> Players:
    if isinstance(policy, Mapping):
        if player not in policy:
            raise UsageError(f"say whom the report is on: player must be one of {sorted(policy)}, got {player}")
        return {player: as_policy(one) for player, one in policy.items()}
    return as_policy(policy)


def _config(panel: "_Panel", players: Players, settings: _Settings) -> EvaluationConfig:
    named = {name: policy_name(one) for name, one in players.items()} if isinstance(players, Mapping) else policy_name(players)
    return EvaluationConfig(
        policy=named if isinstance(named, str) else encode_json(named).decode(),
        envs=panel.envs,
        tasks=len(panel.tasks),
        repeats=settings.repeats,
        seed=settings.seed,
        max_turns=settings.max_turns,
        panel=panel.digest,
        about=dict(settings.about),
        versions=package_versions(),
        environments=environment_versions(panel.envs, panel.factory),
    )


@dataclass(frozen=True)
class _Panel:
    """The tasks, and what to hand to ``rollout`` so that it plays these."""

    tasks: tuple[Task, ...]
    source: Envs
    drawn: int | None
    """How many tasks to draw from the source; ``None`` if it is the tasks themselves."""
    left_out: tuple[str, ...] = ()
    """Environments that a pattern named and that lack something here."""

    @classmethod
    def of(cls, envs: Envs, settings: _Settings) -> "_Panel":
        if callable(envs):
            # A class need not have a name by which it can be found again: it is handed on itself.
            drawn = settings.n or DEFAULT_TASKS
            return cls(tuple(tasks_of(envs, drawn, settings.seed)[0]), envs, drawn)
        chosen: Any = [envs] if isinstance(envs, str) else list(envs)
        count = settings.n
        left_out: list[str] = []
        if chosen and all(isinstance(one, str) for one in chosen):
            chosen, left_out = _expanded(chosen)
            count = (settings.n or DEFAULT_TASKS) * len(chosen)
        tasks = tuple(tasks_of(chosen, count, settings.seed)[0])
        if not tasks:
            raise UsageError(
                "there is no task to evaluate on" + (f": {', '.join(left_out)} cannot run here" if left_out else "")
            )
        return cls(tasks, tasks, None, tuple(left_out))

    @property
    def notes(self) -> dict[str, str]:
        """What the report must say about the panel."""
        return {"left out, because they lack something here": ", ".join(self.left_out)} if self.left_out else {}

    @property
    def envs(self) -> tuple[str, ...]:
        return tuple(sorted({task.env for task in self.tasks}))

    @property
    def factory(self) -> Callable[..., Any] | None:
        """The class to play, where that is what the caller gave."""
        return self.source if callable(self.source) else None

    @property
    def digest(self) -> str:
        return hashlib.sha256(encode_json(self.tasks)).hexdigest()[:16]

    def issued(self, repeats: int) -> dict[str, int]:
        return {env: count * repeats for env, count in Counter(task.env for task in self.tasks).items()}


def _expanded(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The ids that ``names`` mean, and those a pattern means that cannot run here: they are left out, and said to be."""
    chosen: dict[str, None] = {}
    left_out: dict[str, None] = {}
    for name in names:
        if not any(mark in name for mark in "*?["):
            chosen[name] = None
            continue
        matches = list_envs(name)
        if not matches:
            raise UsageError(f'no environment matches "{name}" (palestra list shows them)')
        for spec in matches:
            (left_out if spec.missing() else chosen)[spec.id] = None
    return list(chosen), [id for id in left_out if id not in chosen]
