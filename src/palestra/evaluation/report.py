"""Trajectories → ``Report``: scores with intervals, cost and time, and the episodes without a score.

A report has one ``Section`` for the suite, one per family and one per environment. An episode that failed (infrastructure, a
deadline, a broken environment), that a budget cut or that was not played has no score. It is counted with the reason, and it is
in no mean.

A mean is of what was asked for. In a section with ``score``, every episode that was asked for has one. Any other section has
``partial``: the mean of the scored part, and the range that holds the mean of all episodes whatever the missing ones score.

Trajectories are reduced one at a time to a few numbers, so a run of any size can be streamed.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from math import isfinite
from operator import attrgetter
from pathlib import Path

import msgspec

from palestra.errors import UsageError
from palestra.evaluation.asked import Asked, Bounds, task_name
from palestra.evaluation.wording import dollars, mean_words
from palestra.foundation.notebooks import html_table
from palestra.foundation.statistics import (
    Distribution,
    Estimate,
    MissingScore,
    PartialMean,
    Score,
    TaskMeans,
    distribution,
    mean_interval,
    partial_mean,
    pass_all_k,
    pass_at_k,
    score_bounds,
)
from palestra.registry import family_of
from palestra.trajectory import Failure, StopReason, Trajectory, verdicts

__all__ = [
    "EpisodeScore",
    "PartialScores",
    "Report",
    "Section",
    "Spending",
    "episode_of",
    "judged",
    "missing_scores",
    "report_on",
    "same_cause",
    "success_scores",
    "task_scores",
]

REPORT_SCHEMA = 2


class PartialScores(msgspec.Struct, frozen=True):
    """The means of the scored part of a section."""

    score: PartialMean | None
    """Mean reward; ``None`` if nothing was scored."""
    success: PartialMean | None
    """Share of solved episodes; ``None`` if no scored episode reports success."""
    metrics: dict[str, PartialMean] = {}


class Section(msgspec.Struct, frozen=True):
    """The figures of the suite, a family or an environment."""

    name: str
    issued: int
    """Episodes that were to be played."""
    scored: int
    score: Estimate | None
    """Mean reward; ``None`` unless every issued episode has a score."""
    success: Estimate | None
    """Share of solved episodes, by ``trajectory.verdicts``; ``None`` if the environment reports none, or if ``score`` is."""
    pass_at: dict[str, Estimate]
    """k → probability that at least one of k episodes solves a task."""
    pass_all: dict[str, Estimate]
    """k → probability that all of k episodes solve a task. Both are empty unless every issued episode has a score."""
    failures: dict[str, int]
    """Boundary → episodes without a score that failed there; also ``budget`` (cut by it) and ``not played``."""
    causes: dict[str, int]
    """Failure message with its place in the code → episodes without a score, the most frequent first."""
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
    partial: PartialScores | None = None
    """The means of the scored episodes if some of the issued ones have no score."""
    replies: int = 0
    """Replies of the policy in the scored episodes."""
    unreadable: int = 0
    """Those of them in which the environment found no answer: ``info["format_error"]``."""

    def __post_init__(self) -> None:
        if self.scored < self.issued and (self.score is not None or self.success is not None):
            raise ValueError(
                f"{self.name}: {self.scored} of {self.issued} episodes have a score, and their mean is not the mean of all. An "
                f"earlier version wrote this: run the evaluation's command again"
            )

    @property
    def coverage(self) -> float:
        """Share of the issued episodes that got a score."""
        return self.scored / self.issued if self.issued else 0.0


class Spending(msgspec.Struct, frozen=True):
    """What an evaluation cost."""

    replies: int
    """Replies of the policy."""
    prompt_tokens: int
    tokens: int
    """Output tokens."""
    dollars: float


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
    spent: Spending | None = None
    """What was paid for, including what was paid for episodes that were cut; ``None`` if nothing was counted."""
    go_on: str = ""
    """What to type in order to play what is missing; empty if nothing is."""
    privileged: bool = False
    """Whether the policy had access to the environment, its oracle included: the score is a baseline."""
    groups: tuple[Section, ...] = ()
    """The columns of a named panel, ``World/Column``, and each ``World`` before its columns."""
    schema: int = REPORT_SCHEMA

    def __str__(self) -> str:
        """A row per environment, and what is missing."""
        sections = [*self.envs, *([self.suite] if len(self.envs) != 1 else [])]
        table = [("", "score", "solved", "scored"), *map(_short_row, sections)]
        widths = [max(len(row[column]) for row in table) for column in range(4)]
        rows = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([self.headline, *rows, *filter(None, [self.privilege, self.go_on])])

    def _repr_html_(self) -> str:
        """One row per environment, for notebooks."""
        head = ("environment", "mean reward, 95 % interval", "solved, 95 % interval", "scored episodes")
        return html_table(self.headline, head, [_short_row(section) for section in (*self.envs, self.suite)])

    @property
    def title(self) -> str:
        """The name of the policy."""
        return f"{self.policy or 'evaluation'}{' (privileged)' * self.privileged}"

    @property
    def headline(self) -> str:
        """The first line of every form of the report: the policy; and if episodes are missing, how many, why, and the cost."""
        if not self.incomplete:
            return self.title
        suite, spent = self.suite, self.spent
        parts = [f"{self.title}: incomplete, {suite.scored} of {suite.issued} episodes asked for have a score"]
        parts += filter(None, [self.stopped])
        if spent is not None:
            money = f"{dollars(spent.dollars)} for " if spent.dollars else ""
            parts.append(f"it cost {money}{spent.replies:,} replies and {spent.prompt_tokens + spent.tokens:,} tokens")
        return "; ".join(parts)

    @property
    def incomplete(self) -> bool:
        """Whether some of the episodes that were asked for have no score."""
        return self.suite.scored < self.suite.issued

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


def _short_row(section: Section) -> tuple[str, str, str, str]:
    part = section.partial or PartialScores(None, None)
    means = mean_words(section.score, part.score), mean_words(section.success, part.success)
    return section.name, *means, f"{section.scored} of {section.issued}"


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
    unreadable: int = 0
    """Replies in which the environment found no answer."""
    place: str = ""
    """Where in the code the episode failed: ``FILE:LINE, in FUNCTION``; empty if it is not known."""
    metrics: dict[str, float] | None = None
    """What the last step reports in ``info["metrics"]``, apart from the reward."""


def episode_of(trajectory: Trajectory) -> EpisodeScore:
    """Reduce a trajectory. The task's name holds the player too: two players of one game are two samples."""
    # This runs between the episodes of a run, so it must be quick.
    turns, stop = trajectory.turns, trajectory.stop
    prompt_tokens = tokens = 0
    dollars = 0.0
    retried: Counter[str] | None = None
    unreadable = 0
    for turn in turns:
        if turn.info and turn.info.get("format_error"):
            unreadable += 1
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
        env=trajectory.task.env,
        task=task_name(trajectory.task, trajectory.player),
        group=trajectory.group,
        member=trajectory.member,
        player=trajectory.player,
        policy=trajectory.policy,
        reward=None if broke else trajectory.reward,
        success=None if broke else trajectory.success,
        stop=stop.value,
        fault="budget" if broke else "" if not stop.failed else failure.boundary.value if failure else "unknown",
        cause="" if failure is None else _cause(failure),
        attempt=trajectory.attempt,
        turns=len(turns),
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        dollars=dollars,
        seconds=trajectory.seconds,
        act_seconds=tuple([turn.act_seconds for turn in turns]),
        retried_calls=retried,
        privileged=trajectory.privileged,
        unreadable=unreadable,
        place="" if failure is None else _place(failure),
        metrics=None if broke or stop.failed or not turns else _metrics(turns[-1].info),
    )


def _failure(trajectory: Trajectory) -> Failure | None:
    """The failure that ended the episode: the first one of the last attempt. Later ones are its consequences."""
    last = [failure for failure in trajectory.failures if failure.attempt == trajectory.attempt] or trajectory.failures
    return last[0] if last else None


def _metrics(info: Mapping[str, object]) -> dict[str, float] | None:
    """The finite numbers of ``info["metrics"]``; ``None`` if there are none."""
    reported = info.get("metrics")
    if reported is None or not isinstance(reported, Mapping):  # to ask an abstract class takes longer than all the rest
        return None
    numbers = {str(name): float(value) for name, value in reported.items() if isinstance(value, int | float)}
    return {name: value for name, value in numbers.items() if isfinite(value)} or None


def _cause(failure: Failure) -> str:
    """``failure`` in one line, without the numbers that differ from episode to episode."""
    line = failure.message.strip().partition("\n")[0]
    return f"{failure.boundary.value}, {failure.kind}: {_VARIES.sub('…', line)}"[:LONGEST_CAUSE]


_VARIES = re.compile(r"0x[0-9a-fA-F]+|\b\d{6,}\b")
LONGEST_CAUSE = 300
"""Characters of a failure's message that a report shows."""
_DETAILS = re.compile(r"""'[^']*'|"[^"]*"|[-+]?\d[\d.,eE+-]*""")
_PACKAGE = f"{Path(__file__).parents[1].as_posix()}/"
_FRAME = re.compile(r'^ *File "(.+?)", line (\d+), in (\S+)', re.MULTILINE)


def _place(failure: Failure) -> str:
    """The innermost line of the author's code in the traceback; that of a library if there is no such line."""
    library = ""
    for match in reversed(list(_FRAME.finditer(failure.detail))):
        path = match[1].replace("\\", "/")
        is_ours = path.startswith(_PACKAGE) or "/site-packages/palestra/" in path
        if is_ours and not any(room in path for room in ("/palestra/suite/", "/palestra/worlds/")):
            continue  # what runs the episode
        line = f"{'/'.join(path.split('/')[-2:])}:{match[2]}, in {match[3]}"
        if is_ours or not any(part in path for part in ("/site-packages/", "/lib/python3", "<frozen")):
            return line
        library = library or line
    return library


def same_cause(episode: EpisodeScore) -> Hashable:
    """What failures with one cause have in common: the boundary, the exception and the line; without a line, the message.

    Messages of environments differ in details (a key, a number) although the cause is one. Those of a policy or of the
    infrastructure keep their numbers: 401 and 404 are two causes.
    """
    if episode.place:
        return episode.cause.partition(":")[0], episode.place
    if episode.fault in ("policy", "infrastructure"):
        return episode.cause
    return _DETAILS.sub("…", episode.cause)


def _causes(episodes: Iterable[EpisodeScore]) -> dict[str, int]:
    """Cause → episodes. A cause with several messages shows the most frequent of them."""
    groups: dict[Hashable, list[EpisodeScore]] = {}
    for episode in episodes:
        if episode.cause:
            groups.setdefault(same_cause(episode), []).append(episode)
    table: Counter[str] = Counter()
    for failed in groups.values():
        texts = Counter(episode.cause for episode in failed)
        text = min(texts, key=lambda text: (-texts[text], text))
        others = f" (and {len(texts) - 1} other messages)" if len(texts) > 1 else ""
        at = f" ({failed[0].place})" if failed[0].place else ""
        table[f"{text}{at}{others}"] += len(failed)
    return dict(sorted(table.items(), key=lambda item: (-item[1], item[0])))


def judged(episodes: Sequence[EpisodeScore]) -> list[EpisodeScore]:
    """``episodes`` with the verdicts of ``trajectory.verdicts``."""
    successes = verdicts(
        [episode.env for episode in episodes], [episode.stop for episode in episodes], [episode.success for episode in episodes]
    )
    return [
        episode if episode.success is verdict else msgspec.structs.replace(episode, success=verdict)
        for episode, verdict in zip(episodes, successes, strict=True)
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
    asked: Asked | None = None,
    player: str | None = None,
    level: float = 0.95,
    about: Mapping[str, str] | None = None,
    groups: Sequence[str] = (),
) -> Report:
    """The report on ``trajectories`` (or on the results of ``episode_of``), all of one policy.

    ``asked`` is what was to be played; without it, the finished episodes are all that was.
    ``player`` selects one of several players; without it, each player of an episode counts as one episode.
    ``groups`` names the column of each task of a named panel, in the order of the tasks.
    """
    scores = (episode if isinstance(episode, EpisodeScore) else episode_of(episode) for episode in trajectories)
    if player is not None:
        # An episode that failed before any player acted has no player: it counts for every player.
        scores = (episode for episode in scores if episode.player in (player, ""))
    # Sorted: the report must not depend on the order in which episodes ended, not even in the last digit.
    episodes = judged(sorted(scores, key=attrgetter("env", "task", "member")))
    planned = _planned(episodes, asked)
    by_env = _by_env(episodes, planned)
    missing = _missing(by_env, planned, asked)
    # An episode that failed before any player acted names no policy.
    policies = sorted({episode.policy for episode in episodes} - {""})
    if len(policies) > 1:
        raise UsageError(
            f"a report is on one policy, these trajectories are of {', '.join(policies)}: make one report for each"
        )

    # Sections with the same episodes (a suite of one family, a family of one environment) are computed once.
    sections: dict[tuple[str, ...], Section] = {}

    def section(name: str, envs: Iterable[str]) -> Section:
        chosen = tuple(envs)
        if chosen not in sections:
            inside = [episode for env in chosen for episode in by_env[env]]
            absent = [score for env in chosen for score in missing.get(env, ())]
            sections[chosen] = _section(name, inside, sum(planned[env] for env in chosen), absent, level)
        return msgspec.structs.replace(sections[chosen], name=name)

    families = sorted({family_of(env) for env in by_env})
    return Report(
        policy=policies[0] if policies else "",
        suite=section("all", by_env),
        families=tuple(section(family, (env for env in by_env if family_of(env) == family)) for family in families),
        envs=tuple(section(env, [env]) for env in by_env),
        about=dict(about or {}),
        privileged=any(episode.privileged for episode in episodes),
        groups=_columns(by_env, groups, asked, level) if groups and asked is not None else (),
    )


def _columns(
    by_env: Mapping[str, Sequence[EpisodeScore]], groups: Sequence[str], asked: Asked, level: float
) -> tuple[Section, ...]:
    """A section per world and per column of a named panel. ``EpisodeScore.group`` is the place of the task in the panel."""
    labels = [tuple(dict.fromkeys((name.partition("/")[0], name))) for name in groups]
    played: dict[str, list[EpisodeScore]] = {label: [] for of_group in labels for label in of_group}
    absent: dict[str, list[MissingScore]] = {label: [] for label in played}
    issued: Counter[str] = Counter()
    episodes = [episode for inside in by_env.values() for episode in inside]
    for episode in episodes:
        for label in labels[episode.group]:
            played[label].append(episode)
    players = _players(episodes)
    bounds = {env: _possible(inside, asked.ranges.get(env)) for env, inside in by_env.items()}
    scored = Counter((episode.group, episode.player) for episode in episodes if episode.reward is not None)
    for group, task in enumerate(asked.tasks):
        for player in players.get(task.env) or ("",):
            sample = MissingScore(_path(task.env), task_name(task, player), bounds[task.env])
            for label in labels[group]:
                issued[label] += asked.group_size
                absent[label] += [sample] * (asked.group_size - scored[group, player])
    return tuple(_section(label, played[label], issued[label], absent[label], level) for label in played)


def missing_scores(episodes: Sequence[EpisodeScore], asked: Asked) -> list[MissingScore]:
    """The episodes that were asked for and have no score among ``episodes``."""
    planned = _planned(episodes, asked)
    return [score for scores in _missing(_by_env(episodes, planned), planned, asked).values() for score in scores]


def _by_env(episodes: Iterable[EpisodeScore], planned: Iterable[str]) -> dict[str, list[EpisodeScore]]:
    by_env: dict[str, list[EpisodeScore]] = {env: [] for env in sorted(planned)}
    for episode in episodes:
        by_env[episode.env].append(episode)
    return by_env


def _players(episodes: Iterable[EpisodeScore]) -> dict[str, dict[str, None]]:
    """Environment → its players, where there are several."""
    players: dict[str, dict[str, None]] = {}
    for episode in episodes:
        if episode.player:
            players.setdefault(episode.env, {})[episode.player] = None
    return players


def _planned(episodes: Sequence[EpisodeScore], asked: Asked | None) -> Counter[str]:
    """Environment → episodes that were asked for. Each player of an episode counts as one."""
    if asked is None:
        return Counter(episode.env for episode in episodes)
    players = _players(episodes)
    planned = Counter({env: count * len(players.get(env, "1")) for env, count in asked.counts.items()})
    finished = Counter(episode.env for episode in episodes)
    if extra := sorted(env for env in finished if finished[env] > planned[env]):
        raise UsageError(f"{extra[0]} has {finished[extra[0]]} episodes but {planned[extra[0]]} were asked for")
    return planned


def _missing(
    by_env: Mapping[str, Sequence[EpisodeScore]], planned: Mapping[str, int], asked: Asked | None
) -> dict[str, list[MissingScore]]:
    """Environment → the episodes that were asked for and have no score."""
    scored = {env: Counter(episode.task for episode in inside if episode.reward is not None) for env, inside in by_env.items()}
    if all(scored[env].total() == count for env, count in planned.items()):
        return {}
    if asked is None:
        samples = {env: [episode.task for episode in inside] for env, inside in by_env.items()}
    else:
        samples = asked.names(_players(episode for inside in by_env.values() for episode in inside))
    table: dict[str, list[MissingScore]] = {}
    for env, inside in by_env.items():
        bounds = None if asked is None else _possible(inside, asked.ranges.get(env))
        left = Counter(samples[env])
        left.subtract(scored[env])
        table[env] = [MissingScore(_path(env), task, bounds) for task, count in left.items() for _ in range(count)]
    return table


def _possible(episodes: Iterable[EpisodeScore], bounds: Bounds | None) -> Bounds | None:
    """``bounds``, unless one of ``episodes`` has got more or less: its environment is not held to the declaration."""
    kept = bounds is None or all(
        bounds[0] - 1e-9 <= episode.reward <= bounds[1] + 1e-9 for episode in episodes if episode.reward is not None
    )
    return bounds if kept else None


def _section(
    name: str, episodes: Sequence[EpisodeScore], issued: int, missing: Sequence[MissingScore], level: float
) -> Section:
    scored = [episode for episode in episodes if episode.reward is not None]
    failures = Counter(episode.fault for episode in episodes if episode.fault)
    if issued > len(episodes):
        failures["not played"] = issued - len(episodes)
    complete = len(scored) == issued
    pass_at, pass_all = _pass_tables(episodes, level) if complete else ({}, {})
    measured = _metric_scores(scored)
    return Section(
        name=name,
        issued=issued,
        scored=len(scored),
        score=_estimate(task_scores(episodes), level) if complete else None,
        success=_estimate(_said_scores(episodes), level) if complete else None,
        pass_at=pass_at,
        pass_all=pass_all,
        failures=dict(sorted(failures.items())),
        causes=_causes(episodes),
        retried=sum(episode.attempt for episode in episodes),
        retried_calls=_retried_calls(episodes),
        stops=dict(Counter(episode.stop for episode in episodes).most_common()),
        turns=distribution([episode.turns for episode in scored]),
        tokens=_if_any([episode.tokens for episode in scored]),
        prompt_tokens=_if_any([episode.prompt_tokens for episode in scored]),
        dollars=_if_any([episode.dollars for episode in episodes]),
        seconds=_if_any([episode.seconds for episode in scored]),
        act_seconds=_if_any([seconds for episode in scored for seconds in episode.act_seconds]),
        metrics={name: mean for name, scores in measured.items() if (mean := _estimate(scores, level))} if complete else {},
        partial=None if complete else _partial_scores(scored, missing, measured, level),
        replies=sum(episode.turns for episode in scored),
        unreadable=sum(episode.unreadable for episode in scored),
    )


def _partial_scores(
    scored: Sequence[EpisodeScore], missing: Sequence[MissingScore], measured: Mapping[str, Sequence[Score]], level: float
) -> PartialScores:
    judging = {episode.env for episode in scored if episode.success is not None}
    silent = {episode.env for episode in scored} - judging
    # An environment without a scored episode may report success. Counted as one that does, it only widens the range.
    unsolved = [score._replace(bounds=(0.0, 1.0)) for score in missing if score.path[-1] not in silent]
    unmeasured = [score._replace(bounds=None) for score in missing]
    return PartialScores(
        partial_mean(task_scores(scored), missing, level=level),
        partial_mean(_said_scores(scored), unsolved, level=level),
        {name: mean for name, scores in measured.items() if (mean := partial_mean(scores, unmeasured, level=level))},
    )


def _metric_scores(scored: Sequence[EpisodeScore]) -> dict[str, list[Score]]:
    values: dict[str, list[Score]] = {}
    for episode in scored:
        for name, value in (episode.metrics or {}).items():
            values.setdefault(name, []).append(Score(_path(episode.env), episode.task, value))
    return {name: values[name] for name in sorted(values)}


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
    judged_episodes = [episode for episode in episodes if episode.success is not None]
    if len({(episode.env, episode.task) for episode in judged_episodes}) == len(judged_episodes):
        return pass_at, pass_all  # no task has two episodes
    tries: dict[tuple[str, bytes], list[bool]] = {}
    for episode in judged_episodes:
        tries.setdefault((episode.env, episode.task), []).append(bool(episode.success))
    k = 2
    # A task counts for k only if it has at least k episodes; Estimate.tasks is their number.
    while enough := {key: outcomes for key, outcomes in tries.items() if len(outcomes) >= k}:
        for table, formula in ((pass_at, pass_at_k), (pass_all, pass_all_k)):
            scores = [
                Score(_path(env), task, formula(len(outcomes), sum(outcomes), k)) for (env, task), outcomes in enough.items()
            ]
            table[str(k)] = mean_interval(scores, level=level)
        k *= 2
    return pass_at, pass_all
