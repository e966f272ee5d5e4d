"""``evaluate``: a panel of tasks, a policy, ``group_size`` episodes per task → a report, with all its data in a run folder.

The panel is fixed before the first episode: ``n`` tasks per environment, drawn from the seed. Every episode of it gets at most
one score, however often the run is interrupted. Its random choices depend only on the task, its number in the group and the
seed, so a run that was killed and resumed has the same report as one that was not. A resumed run plays failed episodes again.

An evaluation that cannot succeed stops early: if the first episodes all fail because of the policy or the infrastructure (a
wrong key, a server that is down), the rest would fail too.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from palestra.adapters.loop_thread import run_anywhere
from palestra.confidential import mask
from palestra.core import Tool
from palestra.durable import Inside
from palestra.encoding import encode_json
from palestra.errors import UsageError
from palestra.evaluation.budget import Budget, BudgetMeter, metered
from palestra.evaluation.folder import EvaluationConfig, RunFolder
from palestra.evaluation.panel import Panel
from palestra.evaluation.report import EpisodeScore, Report, episode_of, report_on
from palestra.evaluation.versions import UNKNOWN, environment_versions, package_versions
from palestra.notebooks import ProgressLine, in_notebook
from palestra.policies import as_policy, policy_name
from palestra.registry import WrapperFactory
from palestra.rendering.vocabulary import write_vocabulary
from palestra.rollout import AnyPolicy, Envs, Players, RolloutFunction, RolloutOptions, TrajectoryWriter, play_episodes
from palestra.rollout.defaults import CONCURRENCY, DEADLINE, RETRIES
from palestra.rollout.resuming import FAILED, resume, set_aside
from palestra.rollout.supply import data_table
from palestra.trajectory import StopReason, Trajectory

__all__ = ["EvaluationOptions", "Progress", "evaluate", "evaluate_async"]

FIRST_EPISODES = 8
"""If this many episodes end and all of them failed because of the policy or the infrastructure, the evaluation stops."""


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

    def __post_init__(self) -> None:
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


def _usual_watch() -> Callable[[Progress], None] | None:
    """What watches an evaluation if the caller does not: in a notebook a progress line, elsewhere nothing."""
    if not in_notebook():
        return None
    line = ProgressLine("evaluating")
    return lambda progress: line.show(len(progress.episodes), progress.total)


def evaluate(
    envs: Envs,
    policy: AnyPolicy,
    *,
    n: int | None = None,
    group_size: int = 1,
    out: str | Path | None = None,
    budget: Budget | None = None,
    watch: Callable[[Progress], None] | None = None,
    player: str | None = None,
    about: Mapping[str, str] | None = None,
    concurrency: int = CONCURRENCY,
    seed: int = 0,
    deadline: float = DEADLINE,
    max_turns: int | None = None,
    retries: int = RETRIES,
    wrappers: Sequence[WrapperFactory | str] = (),
    tools: Sequence[Tool | str] = (),
    rollout: RolloutFunction = play_episodes,
) -> Report:
    """Play a panel of tasks with ``policy`` and return the report. Blocks; also works in a notebook.

    With ``out``, the same call resumes an interrupted evaluation and plays failed episodes again. ``evaluate_async`` takes the
    same arguments and returns the same report.

    Args:
        envs: An id, a pattern (``"game:*-easy"``), a list of these, an environment class, explicit ``Task`` objects, or a
            named panel (``palestra.envs.panels.load_panel("agentgym-rl")``).
        policy: A policy, a function of text, ``"random"`` or ``"oracle"``; or a mapping with one of these for each player.
        n: Tasks per environment; by default 100. If ``envs`` are explicit tasks: how many of them; by default all.
        group_size: Episodes per task.
        out: The run folder. Without one, only the report is kept.
        budget: Tokens or dollars at which the evaluation stops; see ``parse_budget``.
        watch: Called with a ``Progress`` after each episode; by default, a notebook shows a progress line.
        player: The player whose episodes are scored, if each player has its own policy.
        about: What else tells this policy from others (a temperature, an address); written into the folder and the report.
        concurrency: Episodes played at the same time.
        seed: Tasks and all random choices are derived from this seed.
        deadline: Seconds per episode.
        max_turns: Truncate episodes after this many actions; by default only the environment's own limit applies.
        retries: Further attempts per episode after infrastructure failures.
        wrappers: Wrappers of every environment, innermost first: classes, functions, or names such as ``TurnLimit?turns=3``.
        tools: Tools that the agent may call in every environment: objects, or names such as ``python`` or ``module:name``.
        rollout: Plays the episodes; by default this process. ``Dispatcher.rollout`` plays them on a cluster.

    Example::

        report = palestra.evaluate("game:*-easy", "random", n=20, out="runs/random")
        print(report.suite.score)
    """
    playing = evaluate_async(
        envs,
        policy,
        n=n,
        group_size=group_size,
        out=out,
        budget=budget,
        watch=watch,
        player=player,
        about=about,
        concurrency=concurrency,
        seed=seed,
        deadline=deadline,
        max_turns=max_turns,
        retries=retries,
        wrappers=wrappers,
        tools=tools,
        rollout=rollout,
    )
    return run_anywhere(playing)


async def evaluate_async(
    envs: Envs,
    policy: AnyPolicy,
    *,
    n: int | None = None,
    group_size: int = 1,
    out: str | Path | None = None,
    budget: Budget | None = None,
    watch: Callable[[Progress], None] | None = None,
    player: str | None = None,
    about: Mapping[str, str] | None = None,
    concurrency: int = CONCURRENCY,
    seed: int = 0,
    deadline: float = DEADLINE,
    max_turns: int | None = None,
    retries: int = RETRIES,
    wrappers: Sequence[WrapperFactory | str] = (),
    tools: Sequence[Tool | str] = (),
    rollout: RolloutFunction = play_episodes,
) -> Report:
    """The async version of ``evaluate``: the same arguments, the same report."""
    play = RolloutOptions(
        n=n,
        group_size=group_size,
        concurrency=concurrency,
        seed=seed,
        deadline=deadline,
        max_turns=max_turns,
        retries=retries,
        wrappers=wrappers,
        tools=tools,
    )
    options = EvaluationOptions(
        play=play, out=out, budget=budget, watch=watch or _usual_watch(), player=player, about=about or {}, rollout=rollout
    )
    return await _evaluated(envs, policy, options)


async def _evaluated(envs: Envs, policy: AnyPolicy, options: EvaluationOptions) -> Report:
    panel = Panel.of(envs, options.play.n, options.play.seed)
    options.play.around()  # refuses an unknown name before the folder is made
    players = _players(policy, options.player)
    config = _config(panel, players, options)
    if options.out is None:
        return await _evaluate(panel, players, options, config, None)
    with RunFolder.claimed(options.out, config) as folder:
        return await _evaluate(panel, players, options, config, folder)


async def _evaluate(
    panel: Panel, players: Players, options: EvaluationOptions, config: EvaluationConfig, folder: RunFolder | None
) -> Report:
    if folder is not None:
        _write_vocabulary(players, folder.inside)
    episodes = [] if folder is None else resume(folder.trajectories, episode_of)
    with ExitStack() as stack:
        meter = BudgetMeter(options.budget or Budget(), folder.inside / "spending.log" if folder and options.budget else None)
        stack.callback(meter.close)
        writer = stack.enter_context(TrajectoryWriter(folder.trajectories)) if folder else None
        record = _EndedEpisodes(episodes, meter, writer)
        await _play(panel, metered(players, meter) if options.budget else players, options, record)
    about = {**config.about, **panel.notes, "seed": str(config.seed), "panel": config.panel, **config.versions}
    about |= {name: ", ".join(names) for name, names in (("wrappers", config.wrappers), ("tools", config.tools)) if names}
    if folder is not None and (before := len(set_aside(folder.inside))):
        about["failed episodes that were played again"] = f"{before}, recorded in {FAILED}"
    issued = panel.issued(options.play.group_size)
    report = report_on(episodes, issued=issued, player=options.player, about=about, groups=panel.groups)
    # If every episode failed before the policy acted, the episodes do not name it.
    named = players[options.player] if isinstance(players, Mapping) and options.player else players
    name = report.policy or (config.policy if isinstance(named, Mapping) else policy_name(named))
    report = msgspec.structs.replace(report, policy=name, stopped=record.hopeless)
    if folder is not None:
        folder.write_report(report)
    return report


def _write_vocabulary(players: Players, folder: Inside) -> None:
    """Write ``vocabulary.json`` if one of ``players`` samples tokens and its tokenizer is known."""
    for player in players.values() if isinstance(players, Mapping) else [players]:
        tokenizer = getattr(getattr(player, "renderer", None), "tokenizer", None)
        if tokenizer is not None:
            write_vocabulary(folder, tokenizer)


class _EndedEpisodes:
    """The episodes that have ended.

    As a container it holds the episodes not to play: those recorded before, and all once the budget is spent.
    """

    def __init__(self, episodes: list[EpisodeScore], meter: BudgetMeter, writer: TrajectoryWriter | None) -> None:
        self.episodes = episodes
        self._before = {(episode.group, episode.member) for episode in episodes}
        self._meter = meter
        self._writer = writer
        self._ended = 0
        self._succeeded = bool(episodes)  # a resumed run that has scores has shown that it can succeed

    def __contains__(self, key: object) -> bool:
        return key in self._before or self._meter.spent

    def add(self, trajectory: Trajectory) -> None:
        if self._writer is not None:
            trajectory = self._writer.write(trajectory)
        episode = episode_of(trajectory)
        self.episodes.append(episode)
        self._ended += 1
        # An environment's own failure says nothing about the other environments of the panel.
        self._succeeded = self._succeeded or episode.fault not in ("policy", "infrastructure")

    @property
    def hopeless(self) -> str:
        """Why the evaluation should stop early; empty if it should continue."""
        if self._succeeded or self._ended < FIRST_EPISODES:
            return ""
        return f"the first {self._ended} episodes all failed"


async def _play(panel: Panel, players: Players, options: EvaluationOptions, record: _EndedEpisodes) -> None:
    # The panel has drawn its n tasks: all of them are played.
    play = replace(options.play, n=None, skip=record)
    progress = Progress(len(panel.tasks) * play.group_size, record.episodes, options.player)
    changed = bool(play.wrappers or play.tools)  # they change what players see
    if changed:
        await panel.check_starts()
    async with aclosing(options.rollout(panel.source, players, play)) as stream:
        async for trajectory in stream:
            # The budget ran out before this episode ended: it counts as not played.
            if trajectory.stop is StopReason.BUDGET:
                continue
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
        return {player: as_policy(one) for player, one in policy.items()}
    return as_policy(policy)


def _config(panel: Panel, players: Players, options: EvaluationOptions) -> EvaluationConfig:
    named = {name: policy_name(one) for name, one in players.items()} if isinstance(players, Mapping) else policy_name(players)
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
        about={**options.about, **{f"{env} is played at": mask(place) for env, place in panel.places.items()}},
        versions=package_versions(),
        environments={**environment_versions(panel.envs, panel.factory), **dict.fromkeys(panel.places, UNKNOWN)},
    )
