"""``evaluate``: a panel of tasks, a policy, ``group_size`` episodes per task → a report, with all its data in a run folder.

The panel is fixed before the first episode: ``n`` tasks per environment, drawn from the seed. Every episode of it gets at most
one score, however often the run is interrupted. Its random choices depend only on the task, its number in the group and the
seed, so a run that was killed and resumed has the same report as one that was not. A resumed run plays failed episodes again.

An evaluation that cannot succeed stops early: if the first episodes all fail because of the policy or the infrastructure (a
wrong key, a server that is down), the rest would fail too. If the first episodes of an environment all fail for one cause, its
other episodes would fail too and are not played.

A budget stops it as well: see ``budget``. A report of an evaluation that stopped says so in its first line.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

import msgspec

from palestra.adapters.loop_thread import run_anywhere
from palestra.durable import Inside
from palestra.errors import UnknownEnv, UsageError
from palestra.evaluation.asked import Asked, score_ranges
from palestra.evaluation.budget import Budget, BudgetMeter, budget_text, larger, metered
from palestra.evaluation.folder import EvaluationConfig, RunFolder
from palestra.evaluation.panel import Panel
from palestra.evaluation.report import EpisodeScore, Report, Spending, episode_of, report_on, same_cause
from palestra.evaluation.versions import UNKNOWN, environment_versions, package_versions
from palestra.foundation.confidential import mask
from palestra.foundation.encoding import encode_json
from palestra.foundation.notebooks import ProgressLine, in_notebook
from palestra.inference.rendering.vocabulary import write_vocabulary
from palestra.policies import as_policy, policy_name
from palestra.registry import EnvSpec, spec
from palestra.rollouts import (
    AnyPolicy,
    Envs,
    PanelKeywords,
    Players,
    RolloutFunction,
    RolloutOptions,
    TrajectoryWriter,
    play_episodes,
    read_trajectories,
    shows_keywords,
)
from palestra.rollouts.playable import check_playable
from palestra.rollouts.resuming import FAILED, resume, set_aside
from palestra.rollouts.supply import data_table
from palestra.trajectory import StopReason, Trajectory

__all__ = ["EvaluationOptions", "Progress", "evaluate", "evaluate_async"]

FIRST_EPISODES = 8
"""If this many episodes end and all of them failed because of the policy or the infrastructure, the evaluation stops."""
FIRST_OF_ENVIRONMENT = 20
"""If this many episodes of an environment end and all of them failed for one cause, no other episode of it is played."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """The settings of an evaluation."""

    play: RolloutOptions
    """Which episodes, and how they are played."""
    out: str | Path | None = None
    """The run folder. Without one, only the report is kept."""
    budget: Budget | None = None
    """Tokens or dollars at which the evaluation stops."""
    watch: Callable[["Progress"], None] | None = None
    """Called after each episode."""
    player: str | None = None
    """The player whose episodes are scored, if each player has its own policy."""
    about: Mapping[str, str] = field(default_factory=dict)
    """What else tells this policy from others (a temperature, an address); written into the folder and the report."""
    rollout: RolloutFunction = play_episodes
    """Plays the episodes; by default in this process."""
    command: Callable[[Budget | None], str] | None = None
    """Returns what to type to go on, with this budget; by default the call in Python."""

    def __post_init__(self) -> None:
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise UsageError(f"budget must be a Budget, got {self.budget!r:.80}: write parse_budget({str(self.budget)!r:.80})")
        if self.budget is not None and self.rollout is not play_episodes:
            raise UsageError(
                "a budget works only if this process plays the episodes: leave out the budget, or leave out the cluster"
            )


@dataclass(frozen=True)
class Progress:
    """The state of a running evaluation."""

    total: int
    """Episodes of the panel."""
    episodes: Sequence[EpisodeScore] = field(repr=False)
    """The episodes that have ended. The list grows while the evaluation runs."""
    player: str | None = None

    @property
    def failed(self) -> int:
        """Episodes without a score so far."""
        return sum(episode.reward is None for episode in self.episodes)

    def report(self) -> Report:
        """The report on the episodes so far."""
        return report_on(self.episodes, player=self.player)


def _usual_watch(progress: bool | None) -> Callable[[Progress], None] | None:
    """What watches an evaluation if the caller does not: in a notebook or if asked for a progress line, elsewhere nothing."""
    if not (in_notebook() if progress is None else progress):
        return None
    line = ProgressLine("evaluating")
    return lambda progress: line.show(len(progress.episodes), progress.total)


@shows_keywords
def evaluate(
    envs: Envs,
    policy: AnyPolicy,
    *,
    out: str | Path | None = None,
    budget: Budget | None = None,
    watch: Callable[[Progress], None] | None = None,
    progress: bool | None = None,
    player: str | None = None,
    about: Mapping[str, str] | None = None,
    rollout: RolloutFunction = play_episodes,
    command: Callable[[Budget | None], str] | None = None,
    **options: Unpack[PanelKeywords],
) -> Report:
    """Play a panel of tasks with ``policy`` and return the report.

    Blocking: it returns when the last episode has ended. It also works in a notebook, where an event loop runs already.
    With ``out``, the same call resumes an interrupted evaluation and plays failed episodes again. ``evaluate_async`` takes the
    same arguments and returns the same report.

    Args:
        envs: An id, a pattern (``"game:*-easy"``), a list of these, an environment class, explicit ``Task`` objects, or a
            named panel (``palestra.suite.panels.load_panel("agentgym-rl")``).
        policy: A policy, a function of text, ``"random"`` or ``"oracle"``; or a mapping with one of these for each player.
        out: The run folder. Without one, only the report is kept.
        budget: Tokens or dollars at which the evaluation stops; see ``parse_budget``.
        watch: Called with a ``Progress`` after each episode, instead of the progress line.
        progress: Show a progress line; by default only in a notebook.
        player: The player whose episodes are scored, if each player has its own policy.
        about: What else tells this policy from others (a temperature, an address); written into the folder and the report.
        rollout: Plays the episodes; by default this process. ``Dispatcher.rollout`` plays them on a cluster.
        command: A function from a budget to the text that the report of an incomplete evaluation shows as the way to go on; by
            default that text names this call.
        options: The keywords of ``rollout`` that concern a panel: ``n``, ``group_size``, ``concurrency``, ``seed``,
            ``deadline``, ``max_turns``, ``retries``, ``wrappers`` and ``tools``.

    Example::

        report = palestra.evaluate("game:*-easy", "random", n=20, out="runs/random")
        print(report.suite.score)
    """
    playing = evaluate_async(
        envs,
        policy,
        out=out,
        budget=budget,
        watch=watch,
        progress=progress,
        player=player,
        about=about,
        rollout=rollout,
        command=command,
        **options,
    )
    return run_anywhere(playing)


@shows_keywords
async def evaluate_async(
    envs: Envs,
    policy: AnyPolicy,
    *,
    out: str | Path | None = None,
    budget: Budget | None = None,
    watch: Callable[[Progress], None] | None = None,
    progress: bool | None = None,
    player: str | None = None,
    about: Mapping[str, str] | None = None,
    rollout: RolloutFunction = play_episodes,
    command: Callable[[Budget | None], str] | None = None,
    **options: Unpack[PanelKeywords],
) -> Report:
    """``await`` the report of an evaluation: the async version of ``evaluate``, with the same arguments."""
    settings = EvaluationOptions(
        play=RolloutOptions(**options),
        out=out,
        budget=budget,
        watch=watch or _usual_watch(progress),
        player=player,
        about=about or {},
        rollout=rollout,
        command=command,
    )
    return await _evaluated(envs, policy, settings)


async def _evaluated(envs: Envs, policy: AnyPolicy, options: EvaluationOptions) -> Report:
    panel = Panel.of(envs, options.play.n, options.play.seed)
    options.play.around()  # refuses an unknown name before the folder is made
    specs = _specs_of(panel)
    if options.rollout is play_episodes:  # on a cluster, only the workers can say what they reach
        await check_playable(specs, options.play)
    players = _players(policy, options.player)
    ranges = score_ranges(specs, options.play.max_turns, options.play.wrappers)
    asked = Asked(panel.tasks, options.play.group_size, ranges)
    config = _config(panel, players, asked, options)
    if options.out is None:
        return await _evaluate(panel, asked, players, options, config, None)
    with RunFolder.claimed(options.out, config) as folder:
        return await _evaluate(panel, asked, players, options, config, folder)


async def _evaluate(
    panel: Panel, asked: Asked, players: Players, options: EvaluationOptions, config: EvaluationConfig, folder: RunFolder | None
) -> Report:
    if folder is not None:
        _write_vocabulary(players, folder.inside)
    with ExitStack() as stack:
        meter = BudgetMeter(options.budget or Budget(), folder.inside / "spending.log" if folder and options.budget else None)
        stack.callback(meter.close)
        episodes = [] if folder is None else _recorded(folder, meter)
        writer = stack.enter_context(TrajectoryWriter(folder.trajectories)) if folder else None
        record = _EndedEpisodes(panel, episodes, meter, writer)
        await _play(panel, metered(players, meter) if options.budget else players, options, record)
    about = {**config.about, **panel.notes, "seed": str(config.seed), "panel": config.panel, **config.versions}
    about |= {name: ", ".join(names) for name, names in (("wrappers", config.wrappers), ("tools", config.tools)) if names}
    played = {(episode.group, episode.member) for episode in episodes}
    if folder is not None and (again := len(set_aside(folder.inside) & played)):
        about["failed episodes that were played again"] = f"{again}, recorded in {FAILED}"
    report = report_on(episodes, asked=asked, player=options.player, about=about, groups=panel.groups)
    # If every episode failed before the policy acted, the episodes do not name it.
    named = players[options.player] if isinstance(players, Mapping) and options.player else players
    name = report.policy or (config.policy if isinstance(named, Mapping) else policy_name(named))
    report = msgspec.structs.replace(
        report,
        policy=name,
        stopped=record.stopped(report.suite.failures) if report.incomplete else "",
        spent=_spent(episodes, meter, metered=options.budget is not None),
        go_on=_go_on(report, record, options),
    )
    if folder is not None:
        folder.write_report(report)
    return report


def _recorded(folder: RunFolder, meter: BudgetMeter) -> list[EpisodeScore]:
    """The episodes that ``folder`` has. Those that failed or were cut are set aside, unless there is no money to play them."""
    if meter.spent and folder.trajectories.exists():
        return [episode_of(trajectory) for trajectory in read_trajectories(folder.trajectories)]
    return resume(folder.trajectories, episode_of)


def _spent(episodes: Sequence[EpisodeScore], meter: BudgetMeter, *, metered: bool) -> Spending | None:
    """What the evaluation cost. A meter also counts what was paid for attempts that are no longer on record."""
    if metered:
        paid = meter.ledger
        return Spending(paid.calls, paid.prompt_tokens, paid.completion_tokens, paid.dollars)
    replies = sum(episode.turns for episode in episodes)
    if not replies:
        return None
    prompts, written = (sum(getattr(episode, name) for episode in episodes) for name in ("prompt_tokens", "tokens"))
    return Spending(replies, prompts, written, sum(episode.dollars for episode in episodes))


def _go_on(report: Report, record: "_EndedEpisodes", options: EvaluationOptions) -> str:
    """What to do in order to play what is missing; empty if nothing is."""
    if not report.incomplete:
        return ""
    budget = options.budget
    if budget is not None and record.broke:
        budget = larger(budget, report.suite.coverage)
    first = "First correct the causes below. " if report.suite.causes else ""
    if options.command is not None:
        return f"{first}To play what is missing, type: {options.command(budget)}"
    larger_one = f" and budget={budget!r}" if record.broke else ""
    if options.out is None:
        return f"{first}To keep what is played, call evaluate with out=FOLDER. Without it, nothing can be continued."
    return f"{first}To play what is missing, call evaluate again with out={str(options.out)!r}{larger_one}."


def _write_vocabulary(players: Players, folder: Inside) -> None:
    """Write ``vocabulary.json`` if one of ``players`` samples tokens and its tokenizer is known."""
    for player in players.values() if isinstance(players, Mapping) else [players]:
        tokenizer = getattr(getattr(player, "renderer", None), "tokenizer", None)
        if tokenizer is not None:
            write_vocabulary(folder, tokenizer)


class _EndedEpisodes:
    """The episodes that have ended.

    As a container it holds the episodes not to play: those recorded before, those of an environment that cannot succeed, and
    all once the budget is spent.
    """

    def __init__(self, panel: Panel, episodes: list[EpisodeScore], meter: BudgetMeter, writer: TrajectoryWriter | None) -> None:
        self.episodes = episodes
        self._tasks = panel.tasks
        self._envs = len(panel.envs)
        self._before = {(episode.group, episode.member) for episode in episodes}
        self._meter = meter
        self._writer = writer
        self._ended = 0
        # What has scores, also from before, has shown that it can succeed.
        self._succeeded = any(episode.fault not in _BEYOND for episode in episodes)
        self._working = {episode.env for episode in episodes if not episode.fault}
        self._failing: dict[str, Counter[Hashable]] = {}
        self.causes: dict[str, str] = {}
        """Environment that cannot succeed → the cause of its failures."""

    def __contains__(self, key: object) -> bool:
        if key in self._before or self._meter.spent:
            return True
        return bool(self.causes) and isinstance(key, tuple) and self._tasks[key[0]].env in self.causes

    def add(self, trajectory: Trajectory) -> None:
        if self._writer is not None:
            trajectory = self._writer.write(trajectory)
        episode = episode_of(trajectory)
        self.episodes.append(episode)
        if trajectory.stop is StopReason.BUDGET:
            return
        self._ended += 1
        # An environment's own failure says nothing about the other environments of the panel.
        self._succeeded = self._succeeded or episode.fault not in _BEYOND
        if not episode.fault:
            self._working.add(episode.env)
        elif episode.env not in self._working and episode.fault not in _BEYOND:
            failing = self._failing.setdefault(episode.env, Counter())
            failing[same_cause(episode)] += 1
            if failing.total() >= FIRST_OF_ENVIRONMENT and len(failing) == 1:
                at = f" ({episode.place})" if episode.place else ""
                self.causes[episode.env] = f"{episode.cause}{at}"

    @property
    def broke(self) -> bool:
        """Whether the budget is used up."""
        return self._meter.spent

    @property
    def hopeless(self) -> bool:
        """Whether nothing that is left to play can succeed."""
        if len(self.causes) == self._envs:
            return True
        return not self._succeeded and self._ended >= FIRST_EPISODES

    def stopped(self, failures: Mapping[str, int]) -> str:
        """Why some episodes were not played to their end; ``failures`` counts them. Empty if all were."""
        if not self._succeeded and self._ended >= FIRST_EPISODES:
            return f"the first {self._ended} episodes all failed"
        if self.causes and "not played" in failures:
            return "; ".join(
                f"the first {FIRST_OF_ENVIRONMENT} episodes of {env} all failed for one cause: {cause}"
                for env, cause in sorted(self.causes.items())
            )
        cut = "not played" in failures or "budget" in failures
        return f"the budget of {budget_text(self._meter.budget)} ran out" if self.broke and cut else ""


_BEYOND = ("policy", "infrastructure")
"""The boundaries whose failures concern every environment."""


async def _play(panel: Panel, players: Players, options: EvaluationOptions, record: _EndedEpisodes) -> None:
    # The panel has drawn its n tasks: all of them are played.
    play = replace(options.play, n=None, skip=record)
    progress = Progress(len(panel.tasks) * play.group_size, record.episodes, options.player)
    changed = bool(play.wrappers or play.tools)  # they change what players see
    if changed:
        await panel.check_starts()
    async with aclosing(options.rollout(panel.source, players, play)) as stream:
        async for trajectory in stream:
            if not changed:
                panel.check(trajectory)
            record.add(trajectory)
            if options.watch is not None:
                options.watch(progress)
            if record.hopeless:
                break


def _players(policy: AnyPolicy, player: str | None) -> Players:
    if isinstance(policy, Mapping):
        if player not in policy:
            raise UsageError(f"player must name the player to score, one of {sorted(policy)}; got {player}")
        return {player: as_policy(player_policy) for player, player_policy in policy.items()}
    return as_policy(policy)


def _specs_of(panel: Panel) -> list[EnvSpec]:
    specs = {env_spec.id: env_spec for env_spec in panel.source.specs}
    for env in panel.envs:  # explicit tasks name their environments, but say nothing else about them
        if env not in specs:
            with suppress(UnknownEnv):  # their episodes fail with the reason
                specs[env] = spec(env)
    return list(specs.values())


def _config(panel: Panel, players: Players, asked: Asked, options: EvaluationOptions) -> EvaluationConfig:
    named = (
        {name: policy_name(policy) for name, policy in players.items()}
        if isinstance(players, Mapping)
        else policy_name(players)
    )
    wrappers, tools = options.play.names_around()
    return EvaluationConfig(
        policy=named if isinstance(named, str) else encode_json(named).decode(),
        envs=panel.envs,
        tasks=len(panel.tasks),
        group_size=options.play.group_size,
        seed=options.play.seed,
        max_turns=options.play.max_turns,
        wrappers=wrappers,
        tools=tools,
        panel=panel.digest,
        data=data_table(panel.source.specs),
        about={**options.about, **{f"{env} is played at": mask(address) for env, address in panel.places.items()}},
        versions=package_versions(),
        asked=dict(Counter(task.env for task in panel.tasks)),
        score_ranges=dict(asked.ranges),
        environments={**environment_versions(panel.envs, panel.factory), **dict.fromkeys(panel.places, UNKNOWN)},
    )
