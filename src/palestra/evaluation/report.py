"""Trajectories → ``Report``: what a policy scored, how sure that is, what it took, and what is missing.

A report has one ``Section`` for the suite, one per family and one per environment. A section never hides what it rests on:
``coverage`` is the share of the issued episodes that got a score. An episode that failed (infrastructure, a deadline, a broken
environment) has none; it is counted by whose fault it was and stays out of every mean.

Trajectories are reduced one at a time to a few numbers, so a run of any size can be streamed through.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec

from palestra.errors import UsageError
from palestra.evaluation.statistics import (
    Distribution,
    Estimate,
    Score,
    TaskMeans,
    distribution,
    mean_interval,
    pass_all_k,
    pass_at_k,
)
from palestra.trajectory import StopReason, Trajectory

__all__ = [
    "Episode",
    "Report",
    "Section",
    "episode_of",
    "family_of",
    "report_on",
    "score_bounds",
    "success_scores",
    "task_scores",
]

REPORT_SCHEMA = 1


class Section(msgspec.Struct, frozen=True):
    """The suite, a family or an environment."""

    name: str
    issued: int
    """Episodes that were to be played."""
    scored: int
    score: Estimate | None
    """Mean reward; ``None`` if nothing was scored."""
    success: Estimate | None
    """Share of solved episodes; ``None`` where the environment does not say what solved means. Cut ones are not solved."""
    pass_at: dict[str, Estimate]
    """k → chance that at least one of k tries solves a task."""
    pass_all: dict[str, Estimate]
    """k → chance that all of k tries solve a task."""
    failures: dict[str, int]
    """Boundary → episodes without a score that are its fault; also ``budget``, and ``not played`` if there is no trace."""
    retried: int
    """Attempts that failed for reasons of infrastructure and were made again."""
    stops: dict[str, int]
    """Stop reason → episodes."""
    turns: Distribution | None
    tokens: Distribution | None
    """Tokens the policy wrote, per episode."""
    prompt_tokens: Distribution | None
    """Tokens the policy was sent, per episode, where its API said so."""
    dollars: Distribution | None
    """Of all finished episodes, the failed ones included: they were paid for too."""
    seconds: Distribution | None
    """Of an episode."""
    act_seconds: Distribution | None
    """Of one answer of the policy."""

    @property
    def coverage(self) -> float:
        """Share of the issued episodes that got a score."""
        return self.scored / self.issued if self.issued else 0.0


class Report(msgspec.Struct, frozen=True):
    """An evaluation of one policy."""

    policy: str
    suite: Section
    families: tuple[Section, ...]
    envs: tuple[Section, ...]
    about: dict[str, str] = {}
    """Whatever else names the run: panel hash, versions, the command."""
    schema: int = REPORT_SCHEMA


class Episode(msgspec.Struct, frozen=True, gc=False):
    """The few numbers of a trajectory that a report needs."""

    env: str
    task: bytes
    group: int
    member: int
    player: str
    policy: str
    reward: float | None
    success: bool | None
    stop: str
    fault: str
    """The boundary of the failure that ended it; empty if it did not fail."""
    attempt: int
    turns: int
    tokens: int
    prompt_tokens: int
    dollars: float
    seconds: float
    act_seconds: tuple[float, ...]


def episode_of(trajectory: Trajectory) -> Episode:
    """Reduce a trajectory. The task's name holds the player too: two players of one game are two samples."""
    # This runs between two episodes of a run: every microsecond is one of the evaluation's own.
    turns, stop = trajectory.turns, trajectory.stop
    prompt_tokens = tokens = 0
    dollars = 0.0
    for turn in turns:
        if (usage := turn.completion.usage) is not None:
            prompt_tokens += usage.prompt_tokens
            tokens += usage.completion_tokens
            dollars += usage.dollars
    if trajectory.segments:
        # What was recorded comes before what an API says of itself.
        tokens = sum(len(segment.logprobs) for segment in trajectory.segments) or tokens
    # When the run's money is gone, what was under way says nothing about the policy.
    broke = stop is StopReason.BUDGET
    return Episode(
        trajectory.task.env,
        _encoder.encode((trajectory.task, trajectory.player)),
        trajectory.group,
        trajectory.member,
        trajectory.player,
        trajectory.policy,
        None if broke else trajectory.reward,
        None if broke else trajectory.success,
        stop.value,
        "budget" if broke else _fault(trajectory) if stop.failed else "",
        trajectory.attempt,
        len(turns),
        tokens,
        prompt_tokens,
        dollars,
        trajectory.seconds,
        tuple([turn.act_seconds for turn in turns]),
    )


_encoder = msgspec.msgpack.Encoder(enc_hook=str, order="deterministic")


def _fault(trajectory: Trajectory) -> str:
    """Whose fault the end was: the first failure of the last attempt. Earlier ones were retried, later ones came of it."""
    last = [failure for failure in trajectory.failures if failure.attempt == trajectory.attempt] or trajectory.failures
    return last[0].boundary.value if last else "unknown"


@cache
def family_of(env: str) -> str:
    """``game:GuessTheNumber`` of ``game:GuessTheNumber-v0-easy``."""
    return re.sub(r"-v\d+(-.*)?$", "", env)


def _judged(episodes: Sequence[Episode]) -> list[Episode]:
    """Episodes that were cut before their environment could say so are not solved, where it says so of others.

    Without them the share of solved ones would be that among those who came to an end.
    """
    judging = {episode.env for episode in episodes if episode.success is not None}
    return [
        msgspec.structs.replace(episode, success=False)
        if episode.success is None and episode.reward is not None and episode.env in judging and episode.stop != _TERMINATED
        else episode
        for episode in episodes
    ]


_TERMINATED = StopReason.TERMINATED.value


def task_scores(episodes: Iterable[Episode]) -> list[Score]:
    """The rewards of the episodes that have one, as the statistics want them."""
    return [Score((family_of(e.env), e.env), e.task, e.reward) for e in episodes if e.reward is not None]


def success_scores(episodes: Iterable[Episode]) -> list[Score]:
    """1 for each solved episode, 0 for each that was not; none where the environment never says."""
    return _said_scores(_judged(list(episodes)))


def _said_scores(episodes: Iterable[Episode]) -> list[Score]:
    return [Score((family_of(e.env), e.env), e.task, float(e.success)) for e in episodes if e.success is not None]


def report_on(
    trajectories: Iterable[Trajectory | Episode],
    *,
    issued: Mapping[str, int] | None = None,
    player: str | None = None,
    level: float = 0.95,
    about: Mapping[str, str] | None = None,
) -> Report:
    """The report on ``trajectories`` (or on what ``episode_of`` made of them), all of one policy.

    ``issued`` maps each environment to the episodes that were to be played; without it, those that finished are all there are.
    ``player`` chooses one of several; without it each player's seat in an episode counts as one.
    """
    found = (one if isinstance(one, Episode) else episode_of(one) for one in trajectories)
    if player is not None:
        # An episode that failed before anybody acted has no player: it is missing for all of them.
        found = (one for one in found if one.player in (player, ""))
    # Sorted, so that the order in which episodes happened to end leaves no trace, not even in the last digit.
    episodes = _judged(sorted(found, key=lambda e: (e.env, e.task, e.member)))
    planned = Counter(episode.env for episode in episodes) if issued is None else _seats_issued(episodes, issued)
    finished = Counter(episode.env for episode in episodes)
    if extra := sorted(env for env in finished if finished[env] > planned[env]):
        raise UsageError(f"{extra[0]} has {finished[extra[0]]} episodes but {planned[extra[0]]} were issued")
    # An episode that failed before anybody acted names no policy.
    policies = sorted({episode.policy for episode in episodes} - {""})
    if len(policies) > 1:
        raise UsageError(
            f"a report is on one policy, these trajectories are of {', '.join(policies)}: make one report for each"
        )

    by_env: dict[str, list[Episode]] = {env: [] for env in sorted(planned)}
    for episode in episodes:
        by_env[episode.env].append(episode)

    # Many a suite is one family, many a family one environment: what has the same episodes is worked out once.
    known: dict[tuple[str, ...], Section] = {}

    def section(name: str, envs: Iterable[str]) -> Section:
        chosen = tuple(envs)
        if chosen not in known:
            inside = [episode for env in chosen for episode in by_env[env]]
            known[chosen] = _section(name, inside, sum(planned[env] for env in chosen), level)
        return msgspec.structs.replace(known[chosen], name=name)

    families = sorted({family_of(env) for env in by_env})
    return Report(
        policy=policies[0] if policies else "",
        suite=section("all", by_env),
        families=tuple(section(family, (env for env in by_env if family_of(env) == family)) for family in families),
        envs=tuple(section(env, [env]) for env in by_env),
        about=dict(about or {}),
    )


def _seats_issued(episodes: Iterable[Episode], issued: Mapping[str, int]) -> Counter[str]:
    players: dict[str, set[str]] = {}
    for episode in episodes:
        if episode.player:
            players.setdefault(episode.env, set()).add(episode.player)
    return Counter({env: count * len(players.get(env, "1")) for env, count in issued.items()})


def _section(name: str, episodes: Sequence[Episode], issued: int, level: float) -> Section:
    scored = [episode for episode in episodes if episode.reward is not None]
    failures = Counter(episode.fault for episode in episodes if episode.fault)
    if issued > len(episodes):
        failures["not played"] = issued - len(episodes)
    pass_at, pass_all = _pass_tables(episodes, level)
    return Section(
        name=name,
        issued=issued,
        scored=len(scored),
        score=_estimate(task_scores(episodes), level),
        success=_estimate(_said_scores(episodes), level),
        pass_at=pass_at,
        pass_all=pass_all,
        failures=dict(sorted(failures.items())),
        retried=sum(episode.attempt for episode in episodes),
        stops=dict(Counter(episode.stop for episode in episodes).most_common()),
        turns=distribution([episode.turns for episode in scored]),
        tokens=_if_any([episode.tokens for episode in scored]),
        prompt_tokens=_if_any([episode.prompt_tokens for episode in scored]),
        dollars=_if_any([episode.dollars for episode in episodes]),
        seconds=_if_any([episode.seconds for episode in scored]),
        act_seconds=_if_any([seconds for episode in scored for seconds in episode.act_seconds]),
    )


def _estimate(scores: Sequence[Score], level: float) -> Estimate | None:
    if not scores:
        return None
    return mean_interval(TaskMeans.of(scores), bounds=score_bounds(scores), level=level)


def score_bounds(scores: Iterable[Score]) -> tuple[float, float]:
    """Most environments score from 0 to 1. Where rewards go further, the bounds go with what was seen."""
    values = [score.value for score in scores]
    return min([0.0, *values]), max([1.0, *values])


def _if_any(values: Sequence[float]) -> Distribution | None:
    """A column of zeros means that nobody measured it."""
    return distribution(values) if any(values) else None


def _pass_tables(episodes: Sequence[Episode], level: float) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    tries: dict[tuple[str, bytes], list[bool]] = {}
    for episode in episodes:
        if episode.success is not None:
            tries.setdefault((episode.env, episode.task), []).append(episode.success)
    pass_at: dict[str, Estimate] = {}
    pass_all: dict[str, Estimate] = {}
    k = 2
    # A task counts for k only with k tries or more; Estimate.tasks says how many do.
    while enough := {key: found for key, found in tries.items() if len(found) >= k}:
        for table, formula in ((pass_at, pass_at_k), (pass_all, pass_all_k)):
            scores = [
                Score((family_of(env), env), task, formula(len(found), sum(found), k)) for (env, task), found in enough.items()
            ]
            table[str(k)] = mean_interval(scores, level=level)
        k *= 2
    return pass_at, pass_all
