"""Score a run again, without the model: play its recorded actions on the same tasks in the current environments.

A policy chose each action for the observation that it saw. So a new score is valid only if the environment shows the recorded
observations, turn by turn. If an observation differs, the episode gets no new score but a message with the turn. The
observation after the last action may differ, because no action followed it. An episode may end earlier than before. It gets no
new score if it does not end with the last recorded action, because the policy's next action is unknown.

A run folder may come from another person, so names in it are not trusted. Registered ids are played. A ``module:Class`` is
imported, an address is contacted, and wrappers and tools are used only if the caller names them.

The result is a run folder inside the old one, which can be viewed and compared like any other; the old run does not change.
``regrade.json`` has the fingerprints of both, every score that changed, and every episode without a new score.
Old and new scores are never mixed in one mean.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import msgspec

from palestra.adapters.loop_thread import run_anywhere
from palestra.adapters.workers import WorkerPool
from palestra.core import Conversation, Tool
from palestra.durable import Inside, write_whole
from palestra.errors import PolicyError, UsageError
from palestra.evaluation.asked import Asked
from palestra.evaluation.folder import EvaluationConfig, RunFolder, read_config
from palestra.evaluation.report import EpisodeScore, Report, episode_of, report_on
from palestra.evaluation.versions import UNKNOWN, environment_versions, package_versions
from palestra.foundation.encoding import clean_text, encode_json, floats, ints
from palestra.registry import WrapperFactory, registered, spec
from palestra.rollouts import EpisodeKey, RolloutOptions, Supply, TrajectoryWriter, read_trajectories, run_episode
from palestra.rollouts.defaults import CONCURRENCY, DEADLINE
from palestra.rollouts.episode import CLEAN_UP_SHARE
from palestra.rollouts.resuming import TRAJECTORIES
from palestra.trajectory import Completion, Content, Segment, Span, Task, Trajectory

__all__ = ["EnvironmentVersions", "RegradedEpisode", "Regrading", "ReplayPolicy", "regrade", "regrade_async"]

RECORD = "regrade.json"
NOT_REGRADED = "not regraded"


class RegradedEpisode(msgspec.Struct, frozen=True):
    """An episode whose score changed, or that has no new one."""

    group: int
    member: int
    player: str
    task: Task
    before: float | None
    after: float | None
    why: str = ""
    """Why there is no new score; empty if there is one."""


class EnvironmentVersions(msgspec.Struct, frozen=True):
    """The fingerprints of one environment's source."""

    then: str
    now: str


class Regrading(msgspec.Struct, frozen=True):
    """The result of a regrading."""

    run: str
    folder: str
    """The folder with the new scores."""
    versions_then: dict[str, str]
    versions_now: dict[str, str]
    environments: dict[str, EnvironmentVersions]
    episodes: int
    """Recorded episodes, one per player."""
    regraded: int
    changed: tuple[RegradedEpisode, ...]
    """Episodes whose score changed."""
    not_regraded: tuple[RegradedEpisode, ...]
    """Episodes without a new score, with the reason."""


class ReplayPolicy:
    """Repeats the recorded actions of a trajectory; raises ``PolicyError`` if an observation differs from the recorded one."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._turns = trajectory.turns
        self.name = trajectory.policy

    async def act(self, conversation: Conversation) -> Completion:
        turn = conversation.turn
        if turn >= len(self._turns):
            raise PolicyError(f"the environment does not end after the {len(self._turns)} recorded actions")
        recorded = self._turns[turn]
        if not _same(conversation.observation, recorded.observation):
            raise PolicyError(f"at turn {turn + 1} the observation differs from the recorded one")
        return recorded.completion


def _same(shown: Content, recorded: Content) -> bool:
    # The recorded text was cleaned of lone surrogates when it was written.
    return (clean_text(shown) if isinstance(shown, str) else shown) == recorded


@dataclass(kw_only=True)
class _Rescored:
    """The episodes scored again so far."""

    writer: TrajectoryWriter
    episodes: list[EpisodeScore] = field(default_factory=list)
    changed: list[RegradedEpisode] = field(default_factory=list)
    not_regraded: list[RegradedEpisode] = field(default_factory=list)

    def keep(self, old: Trajectory, new: Trajectory) -> None:
        """Add ``new``, the new version of ``old``."""
        merged = self.writer.write(_merged(old, new))
        self.episodes.append(episode_of(merged))
        if merged.reward != old.reward or merged.success != old.success:
            self.changed.append(_entry(old, merged.reward))

    def refuse(self, old: Trajectory, why: str) -> None:
        """Add ``old``, which cannot be scored again."""
        self.not_regraded.append(_entry(old, None, why))
        if old.stop.failed:
            self.writer.write(old)  # it had no score before either, and its failure is recorded
            self.episodes.append(episode_of(old))
        else:
            unscored = msgspec.structs.replace(episode_of(old), reward=None, success=None, fault=NOT_REGRADED)
            self.episodes.append(unscored)


def _entry(old: Trajectory, after: float | None, why: str = "") -> RegradedEpisode:
    return RegradedEpisode(old.group, old.member, old.player, old.task, old.reward, after, why)


def regrade(
    run: str | Path,
    *,
    envs: Iterable[str] = (),
    out: str | Path | None = None,
    wrappers: Sequence[WrapperFactory | str] = (),
    tools: Sequence[Tool | str] = (),
    concurrency: int = CONCURRENCY,
    deadline: float = DEADLINE,
) -> Regrading:
    """Score the evaluation in the folder ``run`` again. Blocks; also works in a notebook.

    ``regrade_async`` takes the same arguments.

    Args:
        run: The run folder of an evaluation.
        envs: The environments of the run that are not registered ids: ``module:Class``, or ``remote:URL#ID`` to play the tasks
            of ``ID`` on that server.
        out: The folder of the result; by default ``run/regrade-0001`` or the next number.
        wrappers: The wrappers of the run, if it had any: names in a run folder are not obeyed.
        tools: The tools of the run, if it had any.
        concurrency: Episodes replayed at the same time.
        deadline: Seconds per episode.
    """
    return run_anywhere(
        regrade_async(run, envs=envs, out=out, wrappers=wrappers, tools=tools, concurrency=concurrency, deadline=deadline)
    )


async def regrade_async(
    run: str | Path,
    *,
    envs: Iterable[str] = (),
    out: str | Path | None = None,
    wrappers: Sequence[WrapperFactory | str] = (),
    tools: Sequence[Tool | str] = (),
    concurrency: int = CONCURRENCY,
    deadline: float = DEADLINE,
    watch: Callable[[int], None] | None = None,
) -> Regrading:
    """The async version of ``regrade``. ``watch`` is called with the number of episodes done."""
    run = Path(run)
    config = read_config(run)
    if not (Inside(run) / TRAJECTORIES).is_file():
        raise UsageError(f"{run} has no {TRAJECTORIES}: nothing was played, so there is nothing to score again")
    play = RolloutOptions(
        max_turns=config.max_turns, wrappers=wrappers, tools=tools, concurrency=concurrency, deadline=deadline
    )
    _check_same(run, config, play)
    folder = Path(out) if out is not None else _next_folder(run)
    trusted = _Trusted(envs)
    asked = msgspec.structs.replace(config, versions=package_versions(), environments=trusted.versions(config.envs))
    with RunFolder.claimed(folder, asked, run="regrading") as target:
        if target.resumed:
            raise UsageError(f"{folder} holds a run already: choose another folder (--out)")
        return await _regrade(run, config, target, _Pace(play, trusted, watch))


def _check_same(run: Path, config: EvaluationConfig, play: RolloutOptions) -> None:
    """Refuse to replay a run with other wrappers or tools than it was played with."""
    for option, then, now in zip(("wrapper", "tool"), (config.wrappers, config.tools), play.names_around(), strict=True):
        if then != now:
            typed = " ".join(f"--{option} {name}" for name in then) or f"no --{option}"
            raise UsageError(f"{run} was played with other {option}s: regrade it with {typed}")


class _Trusted:
    """The environments that may be played: those that the caller named, and registered ids."""

    def __init__(self, envs: Iterable[str]) -> None:
        names = list(envs)
        self.named = {env_spec.id: env_spec for env_spec in map(spec, names)}
        self._here = self.named.keys() & names  # the others are played on a server, under an id that may be unknown here

    def __contains__(self, env: str) -> bool:
        return env in self.named or registered(env) is not None

    def versions(self, envs: Iterable[str]) -> dict[str, str]:
        """Environment → fingerprint of its source, if it is trusted."""
        return {env: environment_versions([env])[env] if self._is_here(env) else UNKNOWN for env in envs}

    def _is_here(self, env: str) -> bool:
        return env in self._here or registered(env) is not None


async def _regrade(run: Path, config: EvaluationConfig, target: RunFolder, pace: "_Pace") -> Regrading:
    with TrajectoryWriter(target.trajectories) as writer:
        result = _Rescored(writer=writer)
        play = pace.play
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(WorkerPool.held())
            named = pace.trusted.named.values()
            supply = await stack.enter_async_context(Supply(play.around(), named, patience=play.deadline * CLEAN_UP_SHARE))
            await _replay(_recorded(run), supply, result, pace)
    now = pace.trusted.versions(config.envs)
    regrading = Regrading(
        run=run.resolve().name,  # noqa: ASYNC240 - no episode runs any more
        folder=str(target.path),
        versions_then=config.versions,
        versions_now=package_versions(),
        environments={env: EnvironmentVersions(config.environments.get(env, UNKNOWN), now[env]) for env in config.envs},
        episodes=len(result.episodes),
        regraded=len(result.episodes) - len(result.not_regraded),
        changed=_ordered(result.changed),
        not_regraded=_ordered(result.not_regraded),
    )
    target.write_report(_report(config, result.episodes, regrading))
    write_whole(target.inside / RECORD, msgspec.json.format(encode_json(regrading), indent=2))
    return regrading


def _next_folder(run: Path) -> Path:
    return next(path for path in (run / f"regrade-{number:04d}" for number in range(1, 10_000)) if not path.exists())


def _recorded(run: Path) -> Iterator[list[Trajectory]]:
    """The episodes of ``run``, each with the trajectories of all its players: they were written one after the other."""
    for _, seats in groupby(
        read_trajectories(Inside(run) / TRAJECTORIES), key=lambda trajectory: (trajectory.group, trajectory.member)
    ):
        yield list(seats)


@dataclass(frozen=True)
class _Pace:
    play: RolloutOptions
    trusted: _Trusted
    watch: Callable[[int], None] | None


async def _replay(recorded: Iterator[list[Trajectory]], supply: Supply, result: _Rescored, pace: _Pace) -> None:
    async def work() -> None:
        for seats in recorded:  # shared by all workers: each takes the next
            await _replay_one(seats, supply, result, pace)
            if pace.watch is not None:
                pace.watch(len(result.episodes))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(pace.play.concurrency):
                group.create_task(work())
    except ExceptionGroup as errors:  # the file is damaged: one error says it
        raise errors.exceptions[0] from None


async def _replay_one(seats: list[Trajectory], supply: Supply, result: _Rescored, pace: _Pace) -> None:
    first = seats[0]
    if first.task.env not in pace.trusted:
        for seat in seats:
            result.refuse(seat, f'"{first.task.env}" is not a registered id: if you trust it, name it (--envs)')
        return
    if first.stop.failed:
        for seat in seats:
            result.refuse(seat, f"it failed when it was played ({seat.failures[-1].kind if seat.failures else seat.stop})")
        return
    players: Mapping[str, ReplayPolicy] = {seat.player: ReplayPolicy(seat) for seat in seats}
    key = EpisodeKey(first.task, first.seed, first.group, first.member, first.attempt)
    played = {
        trajectory.player: trajectory for trajectory in await run_episode(supply, players, key, deadline=pace.play.deadline)
    }
    for seat in seats:
        new = played.get(seat.player, next(iter(played.values())))
        if new.stop.failed:
            result.refuse(seat, _reason(new))
        elif new.player != seat.player:
            result.refuse(seat, "the episode ends now before this player's first turn")
        else:
            result.keep(seat, new)


def _reason(new: Trajectory) -> str:
    failure = new.failures[-1]
    return failure.message if failure.kind == PolicyError.__name__ else f"{failure.boundary}: {failure.kind}: {failure.message}"


def _merged(old: Trajectory, new: Trajectory) -> Trajectory:
    """The new scores with the tokens, times and earlier failures of the original."""
    turns = tuple(
        msgspec.structs.replace(turn, act_seconds=was.act_seconds, env_seconds=was.env_seconds)
        for turn, was in zip(new.turns, old.turns, strict=False)
    )
    segments = old.segments if len(turns) == len(old.turns) else tuple(_cut(old.segments, len(turns)))
    return msgspec.structs.replace(new, turns=turns, segments=segments, seconds=old.seconds, failures=old.failures)


def _cut(segments: Iterable[Segment], turns: int) -> Iterator[Segment]:
    """The segments of the first ``turns`` turns."""
    for segment in segments:
        spans: tuple[Span, ...] = tuple(span for span in segment.spans if span.turn < turns)
        if spans:
            sampled = sum(span.stop - span.start for span in spans)
            yield Segment(ints(segment.ids[: spans[-1].stop]), spans, floats(segment.logprobs[:sampled]))


def _ordered(entries: list[RegradedEpisode]) -> tuple[RegradedEpisode, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.group, entry.member, entry.player)))


def _report(config: EvaluationConfig, episodes: list[EpisodeScore], regrading: Regrading) -> Report:
    asked = Asked.recorded(
        config.asked, config.group_size, config.score_ranges, {episode.group: episode.task for episode in episodes}
    )
    about = {
        "scored again": f"{regrading.regraded} of {regrading.episodes} episodes of {regrading.run}, from recorded actions",
        "scores that changed": str(len(regrading.changed)),
        "graders": f"{regrading.versions_then.get('graders', UNKNOWN)} then, {regrading.versions_now['graders']} now",
        "palestra": f"{regrading.versions_then.get('palestra', UNKNOWN)} then, {regrading.versions_now['palestra']} now",
    }
    moved = {env: versions for env, versions in regrading.environments.items() if versions.then != versions.now}
    about["environments whose source changed"] = (
        ", ".join(f"{env} ({versions.then} then, {versions.now} now)" for env, versions in moved.items()) or "none"
    )
    return report_on(episodes, asked=asked, about=about)
