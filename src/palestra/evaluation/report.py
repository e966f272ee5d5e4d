"""Trajectories → ``Report``: scores with intervals, cost and time, and the episodes without a score.

A report has one ``Section`` for the suite, one per family and one per environment. Every section states its ``coverage``, the
share of the issued episodes that got a score. An episode that failed (infrastructure, a deadline, a broken environment) has no
score. It is counted by the boundary that failed, and it is in no mean.

Trajectories are reduced one at a time to a few numbers, so a run of any size can be streamed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import isfinite
from operator import attrgetter

import msgspec

from palestra.errors import UsageError
from palestra.notebooks import html_table
from palestra.registry import family_of
from palestra.statistics import (
    Distribution,
    Estimate,
    Score,
    TaskMeans,
    distribution,
    mean_interval,
    pass_all_k,
    pass_at_k,
    score_bounds,
)
from palestra.trajectory import Failure, StopReason, Trajectory, verdicts

__all__ = [
    "EpisodeScore",
    "Report",
    "Section",
    "episode_of",
    "judged",
    "report_on",
    "success_scores",
    "task_scores",
]

REPORT_SCHEMA = 1


class Section(msgspec.Struct, frozen=True):
    """The figures of the suite, a family or an environment."""

    name: str
    issued: int
    """Episodes that were to be played."""
    scored: int
    score: Estimate | None
    """Mean reward; ``None`` if nothing was scored."""
    success: Estimate | None
    """Share of solved episodes, by ``trajectory.verdicts``; ``None`` if the environment reports no success."""
    pass_at: dict[str, Estimate]
    """k → probability that at least one of k episodes solves a task."""
    pass_all: dict[str, Estimate]
    """k → probability that all of k episodes solve a task."""
    failures: dict[str, int]
    """Boundary → episodes without a score that failed there; also ``budget``, and ``not played``."""
    causes: dict[str, int]
    """Failure message → episodes without a score, the most frequent first."""
    retried: int
    """Attempts that failed because of infrastructure and were repeated."""
    retried_calls: dict[str, int]
    """Reason (``429``, ``timeout``) → API calls of the policy that failed and were repeated."""
    stops: dict[str, int]
    """Stop reason → episodes."""
    turns: Distribution | None
    tokens: Distribution | None
    """Output tokens of the policy per episode."""
    prompt_tokens: Distribution | None
    """Input tokens of the policy per episode, if its API reports them."""
    dollars: Distribution | None
    """USD per episode, failed episodes included: they cost money too."""
    seconds: Distribution | None
    """Seconds per episode."""
    act_seconds: Distribution | None
    """Seconds per reply of the policy."""
    metrics: dict[str, Estimate] = {}
    """Metric → mean over the scored episodes whose last step reports it in ``info["metrics"]``. It is not part of the score."""

    @property
    def coverage(self) -> float:
        """Share of the issued episodes that got a score."""
        return self.scored / self.issued if self.issued else 0.0


def _interval(estimate: Estimate | None) -> str:
    return "–" if estimate is None else f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


class Report(msgspec.Struct, frozen=True):
    """An evaluation of one policy."""

    policy: str
    suite: Section
    families: tuple[Section, ...]
    envs: tuple[Section, ...]
    about: dict[str, str] = {}
    """Other facts on the run: the hash of the panel, versions, settings of the policy."""
    stopped: str = ""
    """Why the evaluation stopped before the end of its panel; empty if it did not."""
    privileged: bool = False
    """Whether the policy had access to the environment, its oracle included: the score is a baseline."""
    groups: tuple[Section, ...] = ()
    """The columns of a named panel, ``World/Column``, and each ``World`` before its columns."""
    schema: int = REPORT_SCHEMA

    def _repr_html_(self) -> str:
        """One row per environment, for notebooks."""
        rows = [
            (one.name, _interval(one.score), _interval(one.success), f"{one.scored} of {one.issued}")
            for one in (*self.envs, self.suite)
        ]
        head = ("environment", "mean reward, 95 % interval", "solved, 95 % interval", "scored episodes")
        return html_table(f"{self.policy} {self.stopped}".strip(), head, rows)

    @property
    def privilege(self) -> str:
        """What a privileged policy had that others do not have; empty for the others."""
        if not self.privileged:
            return ""
        how = (
            "it draws from the environment's own actions"
            if self.policy == "random"
            else "it can ask the environment for its answers"
        )
        return f"This policy is privileged: {how}. Its score is a baseline."


class EpisodeScore(msgspec.Struct, frozen=True, gc=False):
    """The numbers of a trajectory that a report needs."""

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
    cause: str
    """The message of that failure, in one line; empty if the episode did not fail."""
    attempt: int
    turns: int
    tokens: int
    prompt_tokens: int
    dollars: float
    seconds: float
    act_seconds: tuple[float, ...]
    retried_calls: dict[str, int] | None = None
    privileged: bool = False
    metrics: dict[str, float] | None = None
    """What the last step reports in ``info["metrics"]``, apart from the reward."""


def episode_of(trajectory: Trajectory) -> EpisodeScore:
    """Reduce a trajectory. The task's name holds the player too: two players of one game are two samples."""
    # This runs between the episodes of a run, so it must be quick.
    turns, stop = trajectory.turns, trajectory.stop
    prompt_tokens = tokens = 0
    dollars = 0.0
    retried: Counter[str] | None = None
    for turn in turns:
        if (usage := turn.completion.usage) is not None:
            if usage.retries:
                retried = Counter() if retried is None else retried
                retried.update(usage.retries)
            prompt_tokens += usage.prompt_tokens
            tokens += usage.completion_tokens
            dollars += usage.dollars
    if trajectory.segments:
        # Recorded tokens are exact. A strategy may have sampled more than it recorded: replies that it did not choose.
        tokens = max(tokens, sum(len(segment.logprobs) for segment in trajectory.segments))
    # Episodes that an exhausted budget cut say nothing about the policy.
    broke = stop is StopReason.BUDGET
    failure = _failure(trajectory) if stop.failed else None
    return EpisodeScore(
        trajectory.task.env,
        _encoder.encode((trajectory.task, trajectory.player)),
        trajectory.group,
        trajectory.member,
        trajectory.player,
        trajectory.policy,
        None if broke else trajectory.reward,
        None if broke else trajectory.success,
        stop.value,
        "budget" if broke else "" if not stop.failed else failure.boundary.value if failure else "unknown",
        "" if failure is None else _cause(failure),
        trajectory.attempt,
        len(turns),
        tokens,
        prompt_tokens,
        dollars,
        trajectory.seconds,
        tuple([turn.act_seconds for turn in turns]),
        retried,
        trajectory.privileged,
        None if broke or stop.failed or not turns else _metrics(turns[-1].info),
    )


_encoder = msgspec.msgpack.Encoder(enc_hook=str, order="deterministic")


def _failure(trajectory: Trajectory) -> Failure | None:
    """The failure that ended the episode: the first one of the last attempt. Later ones are its consequences."""
    last = [failure for failure in trajectory.failures if failure.attempt == trajectory.attempt] or trajectory.failures
    return last[0] if last else None


def _metrics(info: Mapping[str, object]) -> dict[str, float] | None:
    """The finite numbers of ``info["metrics"]``; ``None`` if there are none."""
    said = info.get("metrics")
    if not isinstance(said, Mapping):
        return None
    numbers = {str(name): float(value) for name, value in said.items() if isinstance(value, int | float)}
    return {name: value for name, value in numbers.items() if isfinite(value)} or None


def _cause(failure: Failure) -> str:
    """``failure`` in one line, without the numbers that differ from episode to episode, so that equal causes are counted."""
    line = failure.message.strip().partition("\n")[0]
    return f"{failure.boundary.value}, {failure.kind}: {_VARIES.sub('…', line)}"[:LONGEST_CAUSE]


_VARIES = re.compile(r"0x[0-9a-fA-F]+|\b\d{6,}\b")
LONGEST_CAUSE = 300
"""Characters of a failure's message that a report shows."""


def judged(episodes: Sequence[EpisodeScore]) -> list[EpisodeScore]:
    """``episodes`` with the verdicts of ``trajectory.verdicts``."""
    said = verdicts([one.env for one in episodes], [one.stop for one in episodes], [one.success for one in episodes])
    return [
        one if one.success is verdict else msgspec.structs.replace(one, success=verdict)
        for one, verdict in zip(episodes, said, strict=True)
    ]


def task_scores(episodes: Iterable[EpisodeScore]) -> list[Score]:
    """The rewards of the episodes that have one, as scores for the statistics."""
    return [Score(_path(e.env), e.task, e.reward) for e in episodes if e.reward is not None]


def success_scores(episodes: Iterable[EpisodeScore]) -> list[Score]:
    """1 for each solved episode and 0 for each that was not; nothing for environments that report no success."""
    return _said_scores(judged(list(episodes)))


def _said_scores(episodes: Iterable[EpisodeScore]) -> list[Score]:
    return [Score(_path(e.env), e.task, float(e.success)) for e in episodes if e.success is not None]


@cache
def _path(env: str) -> tuple[str, str]:
    return family_of(env), env


def report_on(
    trajectories: Iterable[Trajectory | EpisodeScore],
    *,
    issued: Mapping[str, int] | None = None,
    player: str | None = None,
    level: float = 0.95,
    about: Mapping[str, str] | None = None,
    groups: Sequence[str] = (),
) -> Report:
    """The report on ``trajectories`` (or on the results of ``episode_of``), all of one policy.

    ``issued`` maps each environment to its planned number of episodes; without it, the finished episodes are all.
    ``player`` selects one of several players; without it, each player of an episode counts as one episode.
    ``groups`` names the column of each task of a named panel, in the order of the tasks.
    """
    found = (one if isinstance(one, EpisodeScore) else episode_of(one) for one in trajectories)
    if player is not None:
        # An episode that failed before any player acted has no player: it counts for every player.
        found = (one for one in found if one.player in (player, ""))
    # Sorted: the report must not depend on the order in which episodes ended, not even in the last digit.
    episodes = judged(sorted(found, key=attrgetter("env", "task", "member")))
    planned = Counter(episode.env for episode in episodes) if issued is None else _seats_issued(episodes, issued)
    finished = Counter(episode.env for episode in episodes)
    if extra := sorted(env for env in finished if finished[env] > planned[env]):
        raise UsageError(f"{extra[0]} has {finished[extra[0]]} episodes but {planned[extra[0]]} were issued")
    # An episode that failed before any player acted names no policy.
    policies = sorted({episode.policy for episode in episodes} - {""})
    if len(policies) > 1:
        raise UsageError(
            f"a report is on one policy, these trajectories are of {', '.join(policies)}: make one report for each"
        )

    by_env: dict[str, list[EpisodeScore]] = {env: [] for env in sorted(planned)}
    for episode in episodes:
        by_env[episode.env].append(episode)

    # Sections with the same episodes (a suite of one family, a family of one environment) are computed once.
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
        privileged=any(episode.privileged for episode in episodes),
        groups=_columns(episodes, groups, sum(planned.values()), level) if groups else (),
    )


def _columns(episodes: Sequence[EpisodeScore], groups: Sequence[str], issued: int, level: float) -> tuple[Section, ...]:
    """A section per world and per column of a named panel. ``EpisodeScore.group`` is the place of the task in the panel."""
    inside: dict[str, list[EpisodeScore]] = {}
    tasks: Counter[str] = Counter()
    for name in groups:
        for label in dict.fromkeys((name.partition("/")[0], name)):
            inside.setdefault(label, [])
            tasks[label] += 1
    for episode in episodes:
        name = groups[episode.group]
        for label in dict.fromkeys((name.partition("/")[0], name)):
            inside[label].append(episode)
    each = issued // len(groups)
    return tuple(_section(label, inside[label], tasks[label] * each, level) for label in inside)


def _seats_issued(episodes: Iterable[EpisodeScore], issued: Mapping[str, int]) -> Counter[str]:
    players: dict[str, set[str]] = {}
    for episode in episodes:
        if episode.player:
            players.setdefault(episode.env, set()).add(episode.player)
    return Counter({env: count * len(players.get(env, "1")) for env, count in issued.items()})


def _section(name: str, episodes: Sequence[EpisodeScore], issued: int, level: float) -> Section:
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
        causes=dict(Counter(episode.cause for episode in episodes if episode.cause).most_common()),
        retried=sum(episode.attempt for episode in episodes),
        retried_calls=_retried_calls(episodes),
        stops=dict(Counter(episode.stop for episode in episodes).most_common()),
        turns=distribution([episode.turns for episode in scored]),
        tokens=_if_any([episode.tokens for episode in scored]),
        prompt_tokens=_if_any([episode.prompt_tokens for episode in scored]),
        dollars=_if_any([episode.dollars for episode in episodes]),
        seconds=_if_any([episode.seconds for episode in scored]),
        act_seconds=_if_any([seconds for episode in scored for seconds in episode.act_seconds]),
        metrics=_metric_means(scored, level),
    )


def _metric_means(scored: Sequence[EpisodeScore], level: float) -> dict[str, Estimate]:
    found: dict[str, list[Score]] = {}
    for episode in scored:
        for name, value in (episode.metrics or {}).items():
            found.setdefault(name, []).append(Score(_path(episode.env), episode.task, value))
    means = {name: _estimate(found[name], level) for name in sorted(found)}
    return {name: mean for name, mean in means.items() if mean is not None}


def _retried_calls(episodes: Iterable[EpisodeScore]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for episode in episodes:
        if episode.retried_calls is not None:
            total.update(episode.retried_calls)
    return dict(total.most_common())


def _estimate(scores: Sequence[Score], level: float) -> Estimate | None:
    if not scores:
        return None
    return mean_interval(TaskMeans.of(scores), bounds=score_bounds(scores), level=level)


def _if_any(values: Sequence[float]) -> Distribution | None:
    """``None`` for a column of zeros: it was not measured."""
    return distribution(values) if any(values) else None


def _pass_tables(episodes: Sequence[EpisodeScore], level: float) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    pass_at: dict[str, Estimate] = {}
    pass_all: dict[str, Estimate] = {}
    known = [episode for episode in episodes if episode.success is not None]
    if len({(episode.env, episode.task) for episode in known}) == len(known):
        return pass_at, pass_all  # no task has two episodes
    tries: dict[tuple[str, bytes], list[bool]] = {}
    for episode in known:
        tries.setdefault((episode.env, episode.task), []).append(bool(episode.success))
    k = 2
    # A task counts for k only if it has at least k episodes; Estimate.tasks is their number.
    while enough := {key: found for key, found in tries.items() if len(found) >= k}:
        for table, formula in ((pass_at, pass_at_k), (pass_all, pass_all_k)):
            scores = [Score(_path(env), task, formula(len(found), sum(found), k)) for (env, task), found in enough.items()]
            table[str(k)] = mean_interval(scores, level=level)
        k *= 2
    return pass_at, pass_all
