"""Scores again, without the model: the recorded actions are played on the same tasks through the environments of today.

An action was an answer to what the policy had seen. So a new score stands only if the environment shows, turn by turn, exactly
what it showed then; this is checked, and an episode that fails it gets no new score but a sentence that says where it parts.
What comes after the last action may differ: nobody acted on it. An environment that ends sooner now is fine as well; one that
wants to go on after the last recorded action is not, since nobody knows what the policy would have done.

The result is a run folder of its own inside the old one, so it can be viewed and compared like any other; nothing of the old
run is changed. ``regrade.json`` names the fingerprints of both, every score that changed and every episode without a new one.
Old and new scores are never mixed in one mean.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

import msgspec

from palestra.core import Conversation
from palestra.encoding import clean_text, encode_json, floats, ints
from palestra.errors import PolicyError, UsageError
from palestra.evaluation.folder import REPORT, TRAJECTORIES, RunFolder, read_config, read_report, write_whole
from palestra.evaluation.report import Episode, Report, episode_of, report_on
from palestra.evaluation.versions import UNKNOWN, environment_versions, package_versions
from palestra.rollout import Supply, Ticket, TrajectoryWriter, read_trajectories, run_episode
from palestra.rollout.episode import CLEAN_UP_SHARE
from palestra.trajectory import Completion, Content, Segment, Span, Task, Trajectory
from palestra.views import WorkerPool
from palestra.wrappers import TurnLimit

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
    """What a regrading came to."""

    run: str
    folder: str
    """Where the new scores are."""
    versions_then: dict[str, str]
    versions_now: dict[str, str]
    environments: dict[str, EnvironmentVersions]
    episodes: int
    """On record, one for each player of a game."""
    regraded: int
    changed: tuple[RegradedEpisode, ...]
    """With another score than before."""
    not_regraded: tuple[RegradedEpisode, ...]
    """Without a new score, and why."""


class ReplayPolicy:
    """Does what a trajectory says was done, as long as it sees what the trajectory says was seen."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._turns = trajectory.turns
        self.name = trajectory.policy

    async def act(self, conversation: Conversation) -> Completion:
        turn = conversation.turn
        if turn >= len(self._turns):
            raise PolicyError(f"the environment goes on after the {len(self._turns)} recorded actions")
        recorded = self._turns[turn]
        if not _same(conversation.observation, recorded.observation):
            raise PolicyError(f"at turn {turn + 1} the environment shows something else than it did then")
        return recorded.completion


def _same(shown: Content, recorded: Content) -> bool:
    # What was recorded went through a file, which holds no lone surrogates.
    return (clean_text(shown) if isinstance(shown, str) else shown) == recorded


@dataclass(kw_only=True)
class _Result:
    """What has been scored again so far."""

    writer: TrajectoryWriter
    episodes: list[Episode] = field(default_factory=list)
    changed: list[RegradedEpisode] = field(default_factory=list)
    not_regraded: list[RegradedEpisode] = field(default_factory=list)

    def keep(self, old: Trajectory, new: Trajectory) -> None:
        """``new`` is ``old`` scored again."""
        merged = _merged(old, new)
        self.writer.write(merged)
        self.episodes.append(episode_of(merged))
        if merged.reward != old.reward or merged.success != old.success:
            self.changed.append(_entry(old, merged.reward))

    def refuse(self, old: Trajectory, why: str) -> None:
        """``old`` cannot be scored again."""
        self.not_regraded.append(_entry(old, None, why))
        if old.stop.failed:
            self.writer.write(old)  # it had no score then either, and it is known whose fault that was
            self.episodes.append(episode_of(old))
        else:
            unscored = msgspec.structs.replace(episode_of(old), reward=None, success=None, fault=NOT_REGRADED)
            self.episodes.append(unscored)


def _entry(old: Trajectory, after: float | None, why: str = "") -> RegradedEpisode:
    return RegradedEpisode(old.group, old.member, old.player, old.task, old.reward, after, why)


def regrade(run: str | Path, *, out: str | Path | None = None, concurrency: int = 64, deadline: float = 600.0) -> Regrading:
    """Score the evaluation in the folder ``run`` again; ``out`` is ``run/regrade-0001`` or the next number."""
    return asyncio.run(regrade_async(run, out=out, concurrency=concurrency, deadline=deadline))


async def regrade_async(
    run: str | Path,
    *,
    out: str | Path | None = None,
    concurrency: int = 64,
    deadline: float = 600.0,
    watch: Callable[[int], None] | None = None,
) -> Regrading:
    """``regrade`` for those who have a loop. ``watch`` is told how many episodes are done."""
    run = Path(run)
    config = read_config(run)
    if not (run / TRAJECTORIES).exists():
        raise UsageError(f"{run} has no {TRAJECTORIES}: nothing was played, so there is nothing to score again")
    now = environment_versions(config.envs)
    folder = Path(out) if out is not None else _next_folder(run)
    if (folder / TRAJECTORIES).exists():
        raise UsageError(f"{folder} holds a run already: name another folder")
    target = RunFolder(folder, msgspec.structs.replace(config, versions=package_versions(), environments=now))
    with TrajectoryWriter(target.trajectories) as writer:
        result = _Result(writer=writer)
        horizon = () if config.max_turns is None else (partial(TurnLimit, turns=config.max_turns),)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(WorkerPool.held())
            supply = await stack.enter_async_context(Supply(horizon, patience=deadline * CLEAN_UP_SHARE))
            await _replay(_recorded(run), supply, result, _Pace(concurrency, deadline, watch))
    regrading = Regrading(
        run=run.resolve().name,
        folder=str(folder),
        versions_then=config.versions,
        versions_now=package_versions(),
        environments={env: EnvironmentVersions(config.environments.get(env, UNKNOWN), now[env]) for env in config.envs},
        episodes=len(result.episodes),
        regraded=len(result.episodes) - len(result.not_regraded),
        changed=_ordered(result.changed),
        not_regraded=_ordered(result.not_regraded),
    )
    target.write_report(_report(run, result.episodes, regrading))
    write_whole(folder / RECORD, msgspec.json.format(encode_json(regrading), indent=2))
    return regrading


def _next_folder(run: Path) -> Path:
    return next(path for path in (run / f"regrade-{number:04d}" for number in range(1, 10_000)) if not path.exists())


def _recorded(run: Path) -> Iterator[list[Trajectory]]:
    """The episodes of ``run``, each with the trajectories of all its players: they were written one after the other."""
    for _, seats in groupby(read_trajectories(run / TRAJECTORIES), key=lambda one: (one.group, one.member)):
        yield list(seats)


@dataclass(frozen=True)
class _Pace:
    concurrency: int
    deadline: float
    watch: Callable[[int], None] | None


async def _replay(recorded: Iterator[list[Trajectory]], supply: Supply, result: _Result, pace: _Pace) -> None:
    async def work() -> None:
        for seats in recorded:  # shared by all workers: each takes the next
            await _replay_one(seats, supply, result, pace.deadline)
            if pace.watch is not None:
                pace.watch(len(result.episodes))

    async with asyncio.TaskGroup() as group:
        for _ in range(pace.concurrency):
            group.create_task(work())


async def _replay_one(seats: list[Trajectory], supply: Supply, result: _Result, deadline: float) -> None:
    first = seats[0]
    if first.stop.failed:
        for seat in seats:
            result.refuse(seat, f"it failed when it was played ({seat.failures[-1].kind if seat.failures else seat.stop})")
        return
    players: Mapping[str, ReplayPolicy] = {seat.player: ReplayPolicy(seat) for seat in seats}
    ticket = Ticket(first.task, first.seed, first.group, first.member, first.attempt)
    played = {one.player: one for one in await run_episode(supply, players, ticket, deadline=deadline)}
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
    """The new scores with what only the original has: its tokens, its clock, and what went wrong on the way."""
    turns = tuple(
        msgspec.structs.replace(turn, act_seconds=was.act_seconds, env_seconds=was.env_seconds)
        for turn, was in zip(new.turns, old.turns, strict=False)
    )
    segments = old.segments if len(turns) == len(old.turns) else tuple(_cut(old.segments, len(turns)))
    return msgspec.structs.replace(new, turns=turns, segments=segments, seconds=old.seconds, failures=old.failures)


def _cut(segments: Iterable[Segment], turns: int) -> Iterator[Segment]:
    """What was sampled in the first ``turns`` turns, and its context."""
    for segment in segments:
        spans: tuple[Span, ...] = tuple(span for span in segment.spans if span.turn < turns)
        if spans:
            sampled = sum(span.stop - span.start for span in spans)
            yield Segment(ints(segment.ids[: spans[-1].stop]), spans, floats(segment.logprobs[:sampled]))


def _ordered(entries: list[RegradedEpisode]) -> tuple[RegradedEpisode, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.group, entry.member, entry.player)))


def _report(run: Path, episodes: list[Episode], regrading: Regrading) -> Report:
    old = read_report(run) if (run / REPORT).exists() else None
    issued = None if old is None or any(episode.player for episode in episodes) else {s.name: s.issued for s in old.envs}
    about = {
        "scored again": f"{regrading.regraded} of {regrading.episodes} episodes of {regrading.run}, from recorded actions",
        "scores that changed": str(len(regrading.changed)),
        "graders": f"{regrading.versions_then.get('graders', UNKNOWN)} then, {regrading.versions_now['graders']} now",
        "palestra": f"{regrading.versions_then.get('palestra', UNKNOWN)} then, {regrading.versions_now['palestra']} now",
    }
    moved = {env: found for env, found in regrading.environments.items() if found.then != found.now}
    about["environments whose source changed"] = (
        ", ".join(f"{env} ({found.then} then, {found.now} now)" for env, found in moved.items()) or "none"
    )
    return report_on(episodes, issued=issued, about=about)
