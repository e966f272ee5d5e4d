"""Checks before the first step: can this model, with this chat template, play these environments and be graded?

The environment's oracle plays two tasks in plain text, and then the same two through the model's tokens: its text is encoded,
ended with the stop token, read back by the renderer and played, in the prompts and limits of the run. If the oracle wins in
text but not in tokens, the model could never learn to win. Every tool of the environment is called once in the same way. Then
the model itself plays, and the learner computes the log-probabilities of the sampled tokens. If they differ from the engine's,
the policy that samples is not the policy that learns. At last, the parts that a step calls after its episodes are called once:
a part of your own that raises, or that returns something else, would otherwise end the run after its first episodes.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import transformers

from palestra.agents.capture import Capture, probe
from palestra.core import Conversation
from palestra.errors import UsageError
from palestra.foundation.seeding import derive_seed
from palestra.inference.servers.publishing import PolicyWeights
from palestra.policies import as_policy
from palestra.recipes.algorithms import PartialGroups
from palestra.registry import spec
from palestra.rollouts import RolloutOptions, play_episodes, rollout
from palestra.rollouts.supply import row_count
from palestra.training.algorithms.horizon import schedule_of, turns_at
from palestra.training.algorithms.loss import PolicyTokens, TokenStatistics, policy_loss
from palestra.training.algorithms.validity import SampleLimits
from palestra.training.difficulty import SolveRate, difficulty_weights
from palestra.training.experience import prepare
from palestra.training.imitation import TaughtPolicy
from palestra.training.learner.batch import Batch
from palestra.training.opponents import OpponentInSomeTasks
from palestra.training.prompts import prompt_options
from palestra.training.trainer import Trainer
from palestra.trajectory import AgentRecord, Completion, Finish, StopReason, Task, ToolCall, Trajectory, TrajectoryGroup
from palestra.trajectory.calls import format_call

__all__ = ["PreflightFinding", "examine", "preflight"]

_TASKS = 2
_SHOWN = 200
"""Characters of a text that a finding quotes."""


class PreflightFinding(msgspec.Struct, frozen=True):
    """A problem that makes the run useless (``fatal``), or a smaller one that the user should know."""

    fatal: bool
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


async def examine(trainer: Trainer, say: Callable[[str], None]) -> None:
    """Raise if a run of ``trainer`` would learn nothing; pass smaller problems to ``say``."""
    findings = await preflight(trainer)
    for finding in findings:
        if not finding.fatal:
            say(str(finding))
    fatal = [str(finding) for finding in findings if finding.fatal]
    if fatal:
        raise UsageError(
            "the preflight failed. Correct the recipe, or skip the preflight with --no-check:\n  " + "\n  ".join(fatal)
        )


async def preflight(trainer: Trainer) -> list[PreflightFinding]:
    """Return all problems, fatal ones first. Takes about as long as a few episodes."""
    await trainer.engine.update_weights(PolicyWeights(trainer.learner), 0)
    findings: list[PreflightFinding] = []
    for env in trainer.config.envs:
        spec(env).factory()  # raises for an unknown id or a missing package
        findings += [*_few_rows(trainer, env), *await _Examination(trainer, env).findings()]
    if not any(finding.fatal for finding in findings):
        findings += [*await _sampling(trainer), *await _opposed(trainer)]
    return sorted(findings, key=lambda finding: not finding.fatal)


def _few_rows(trainer: Trainer, env: str) -> list[PreflightFinding]:
    """Note that more rows are held out than are left to train on."""
    rows, count = trainer.drawing.rows[env], row_count(spec(env))
    if rows is None or count is None or 2 * len(rows) >= count:
        return []
    what = f"{count - len(rows)} of its {count} rows are held out, so training draws only {len(rows)}: lower evaluation.n?"
    return [PreflightFinding(False, env, what)]


class _Examination:
    """One environment, played by its oracle in text and in tokens."""

    def __init__(self, trainer: Trainer, env: str) -> None:
        self.trainer = trainer
        self.config = trainer.config
        self.env = env
        tokenizer = transformers.AutoTokenizer.from_pretrained(trainer.learner.network.config.path)
        self.encode: Callable[[str], list[int]] = lambda text: list(tokenizer.encode(text, add_special_tokens=False))
        self.tasks = [Task(env, derive_seed(self.config.seed, "preflight", env, n)) for n in range(_TASKS)]

    async def findings(self) -> list[PreflightFinding]:
        plain = await _play(self.tasks, as_policy("oracle"), self.config.play.deadline)
        broken = [trajectory for trajectory in plain if trajectory.stop.failed]
        if any(trajectory.failures[-1].kind == "Unsupported" for trajectory in broken):
            return [self._warn("has no oracle, so whether a right answer would be graded as right could not be tried")]
        if broken:
            return [self._fatal(f"cannot be played: {_failure(broken[0])}")]
        spoken = await self._say(as_policy("oracle"))
        findings = [problem for pair in zip(plain, spoken, strict=True) for problem in self._compare(*pair)]
        if not any(trajectory.success for trajectory in plain):
            findings.append(self._warn("its own oracle did not win, so whether a right answer is graded as right is not known"))
        for schema in plain[0].info.get("tools", ()) if isinstance(plain[0].info.get("tools"), Sequence) else ():
            findings += await self._call(schema)
        return list(dict.fromkeys(findings))

    async def _say(self, teacher: Any) -> list[Trajectory]:
        """Let ``teacher`` play the tasks through the model's tokens."""
        policy = self.trainer.sampled
        context, options = self.trainer.engine.context_length, prompt_options(self.config.prompt)
        taught = TaughtPolicy(teacher, policy.renderer, self.encode, context, sampling=policy.sampling, **options)
        return await _play(self.tasks, taught, self.config.play.deadline)

    def _compare(self, plain: Trajectory, spoken: Trajectory) -> list[PreflightFinding]:
        actions = [turn.action for turn in plain.turns]
        match spoken.stop:
            case StopReason.ERROR | StopReason.DEADLINE:
                return [self._fatal(f"cannot be played through this model's tokens: {_failure(spoken)}")]
            case StopReason.LENGTH_CUT:
                return [self._too_long("an action of its oracle", actions)]
            case StopReason.CONTEXT_OVERFLOW:
                context = self.trainer.engine.context_length
                return [self._fatal(f"turn {len(spoken.turns)} of its oracle does not fit the model's {context} positions")]
            case StopReason.EMPTY_COMPLETION:
                return [self._fatal(f"the renderer reads nothing from the tokens of {_quoted(actions[len(spoken.turns) - 1])}")]
        for text, turn in zip(actions, spoken.turns, strict=False):
            if text != turn.action and plain.reward != spoken.reward:
                what = f"{_quoted(text)} of its oracle reads back as {_quoted(turn.action)} from this model's tokens"
                return [self._fatal(f"{what}, and scores {spoken.reward:g} instead of {plain.reward:g}")]
        return self._horizon(len(actions))

    def _horizon(self, turns: int) -> list[PreflightFinding]:
        if self.config.horizon is None:
            return []
        most = getattr(schedule_of(self.config.horizon, self.env), "longest", None)
        if most is None or turns <= most:
            return []
        return [self._warn(f"its oracle needs {turns} turns, but the horizon never exceeds {most}")]

    async def _call(self, schema: dict[str, Any]) -> list[PreflightFinding]:
        """Call a tool as the model would."""
        function = schema.get("function", schema)
        call = ToolCall(function["name"], _arguments(function.get("parameters", {})))
        played = (await self._say(_Caller(format_call(call))))[0]
        if played.stop.failed:
            return [self._fatal(f"the tool {call.name} fails: {_failure(played)}")]
        if played.turns[0].completion.finish is Finish.LENGTH:
            return [self._too_long(f"a call of the tool {call.name}", [format_call(call)])]
        totals: dict[str, int] = next(
            (turn.info["tools"].get("totals", {}) for turn in played.turns if "tools" in turn.info), {}
        )
        if not totals:
            return [self._fatal(f"a call of the tool {call.name} is not recognized: {_quoted(played.turns[0].action)}")]
        faults = {name: count for name, count in totals.items() if name not in ("ok", "failed")}
        return [self._fatal(f"a call of the tool {call.name} ends as {', '.join(faults)}")] if faults else []

    def _too_long(self, what: str, texts: Sequence[str]) -> PreflightFinding:
        longest = max(len(self.encode(text)) + 1 for text in texts)  # and the stop token
        return self._fatal(f"{what} takes {longest} tokens, and play.max_tokens is {self.config.play.max_tokens}")

    def _fatal(self, what: str) -> PreflightFinding:
        return PreflightFinding(True, self.env, what)

    def _warn(self, what: str) -> PreflightFinding:
        return PreflightFinding(False, self.env, what)


class _Caller:
    """Calls a tool, then answers ``done``."""

    name = "caller"

    def __init__(self, call: str) -> None:
        self._call = call

    async def act(self, conversation: Conversation) -> Completion:
        return Completion("done" if conversation.turn else self._call)


def _arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    """Minimal arguments that fit a tool's schema."""
    plain: dict[str, Any] = {"string": "1", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    properties = parameters.get("properties", {})
    return {name: plain.get(properties.get(name, {}).get("type"), "1") for name in parameters.get("required", ())}


async def _sampling(trainer: Trainer) -> list[PreflightFinding]:
    """Let the model play, and compare the engine's log-probabilities with the learner's."""
    seed = derive_seed(trainer.config.seed, "preflight")
    tasks = [Task(env, derive_seed(seed, env, n)) for env in trainer.config.envs for n in range(_TASKS)]
    played = await _play(tasks, trainer.policy, trainer.config.play.deadline)
    findings = [
        PreflightFinding(True, trajectory.task.env, f"the model cannot play it: {_failure(trajectory)}")
        for trajectory in played
        if trajectory.stop.failed
    ]
    sound = [trajectory for trajectory in played if not trajectory.stop.failed and trajectory.segments]
    findings += await _captured(trainer, played)
    if any(finding.fatal for finding in findings) or not sound:
        return list(dict.fromkeys(findings)) or [PreflightFinding(True, "model", "nothing was sampled in any probe episode")]
    for env in trainer.config.envs:
        stops = [trajectory.stop for trajectory in sound if trajectory.task.env == env]
        if stops and all(stop is StopReason.LENGTH_CUT for stop in stops):
            most = trainer.config.play.max_tokens
            findings.append(
                PreflightFinding(False, env, f"every probe reply ran into play.max_tokens = {most} without a stop token")
            )
    findings += await _rescoring(trainer, sound[0])
    findings += _learning(trainer, sound)
    batch = Batch.of(sound)
    apart = float(np.abs(trainer.learner.measure(batch).logprobs - batch.sampled).mean())
    limit = SampleLimits(vocabulary=1, context=1).mismatch
    if apart > limit:
        findings.append(
            PreflightFinding(True, "model", f"engine and learner differ by {apart:.3g} nats a token, more than {limit:g}")
        )
    elif apart > 0.05:
        findings.append(PreflightFinding(False, "model", f"engine and learner differ by {apart:.3g} nats a token"))
    return findings


async def _opposed(trainer: Trainer) -> list[PreflightFinding]:
    """Play with the opponent, and compare the players that act with those that the recipe names."""
    config, opponents = trainer.config, trainer.opponents
    if not isinstance(opponents, OpponentInSomeTasks) or config.opponent is None:
        return []
    await opponents.follow(PolicyWeights(trainer.learner), 0)
    seed = derive_seed(config.seed, "preflight", "opponent")
    options = RolloutOptions(n=_TASKS, deadline=config.play.deadline, retries=0, seed=seed, seating=opponents.always())
    played = [trajectory async for trajectory in play_episodes(list(config.envs), trainer.policy, options)]
    findings = [
        PreflightFinding(True, trajectory.task.env, f"it cannot be played with the opponent: {_failure(trajectory)}")
        for trajectory in played
        if trajectory.stop.failed
    ]
    idle = [name for name in config.opponent.players if name not in {trajectory.player for trajectory in played}]
    if idle and not findings:
        findings.append(
            PreflightFinding(False, "opponent.players", f"{', '.join(idle)} did not act in {len(played)} probe games")
        )
    return list(dict.fromkeys(findings))


async def _captured(trainer: Trainer, played: Sequence[Trajectory]) -> list[PreflightFinding]:
    """State what is recorded of an agent's calls, and how many of them continue recorded ids."""
    if trainer.config.agent is None:
        return []
    level = await probe(trainer.engine, trainer.sampled.renderer)
    name = trainer.config.agent.program
    if level < Capture.TOKENS:
        return [PreflightFinding(True, name, f"the engine captures {level.name.lower()}, and training needs token ids")]
    records = [trajectory.agent for trajectory in played if isinstance(trajectory.agent, AgentRecord)]
    links: Counter[str] = Counter()
    for record in records:
        links.update(record.links)
    counted = ", ".join(f"{count} {link}" for link, count in sorted(links.items())) or "none"
    captured = "token ids and log-probs" if level is Capture.LOGPROBS else "token ids"
    what = f"records {captured} of its calls; calls in {len(records)} probe episodes by link: {counted}"
    overridden = sorted({key for record in records for key in record.overridden})
    if overridden:
        what += f"; its {', '.join(overridden)} had no effect, because training samples with the recipe's settings"
    return [PreflightFinding(False, name, what)]


async def _rescoring(trainer: Trainer, probe: Trajectory) -> list[PreflightFinding]:
    """Call ``play.grader`` and ``play.group_reward`` once, with a group of copies of ``probe``."""
    try:
        await trainer.rescored([TrajectoryGroup(probe.task, (probe,) * trainer.config.play.group_size)])
    except UsageError as error:
        return [PreflightFinding(True, "play", str(error))]
    return []


def _learning(trainer: Trainer, played: Sequence[Trajectory]) -> list[PreflightFinding]:
    """Call the parts that a step calls after its episodes once, with the probe episodes of each environment as a group."""
    config = trainer.config
    groups: list[TrajectoryGroup] = []
    for env in config.envs:
        probes = [trajectory for trajectory in played if trajectory.task.env == env]
        if not probes:
            continue
        changes = [{"task": probes[0].task, "group": len(groups), "member": member} for member in range(len(probes))]
        members = [msgspec.structs.replace(trajectory, **change) for trajectory, change in zip(probes, changes, strict=True)]
        # The players of a game are groups of their own.
        for player in sorted({trajectory.player for trajectory in members}):
            groups.append(TrajectoryGroup(probes[0].task, tuple(member for member in members if member.player == player)))

    def advantage() -> None:
        learner = trainer.learner
        limits = trainer.limits(0, 0)
        batch = prepare(groups, learner, config.advantage, PartialGroups(minimum=1), limits, config.play.shaping).batch
        if batch.advantages is None or not len(batch.positions):
            return
        old = torch.tensor(batch.sampled if batch.old is None else batch.old, dtype=torch.float32, requires_grad=True)
        tensors = {"sampled": batch.sampled, "advantages": batch.advantages, "weights": np.full(len(old), 1 / len(old))}
        others = {name: torch.from_numpy(array).float() for name, array in tensors.items()}
        reference = None if batch.reference is None else torch.from_numpy(batch.reference).float()
        segments = torch.from_numpy(batch.segments)
        tokens = PolicyTokens(old.detach(), **others, shares=others["weights"], segments=segments, reference=reference)
        policy_loss(TokenStatistics(old, torch.ones_like(old)), tokens, config.learner.loss)[0].backward()

    def schedules() -> None:
        if config.horizon is not None:
            for env in config.envs:
                turns_at(schedule_of(config.horizon, env), 0)
        difficulty_weights(config.play.difficulty, [SolveRate(0, 0.0), SolveRate(4, 0.5)])

    findings = []
    for names, part in (("advantage.method or learner.loss.kind", advantage), ("horizon or play.difficulty", schedules)):
        try:
            part()
        except UsageError as error:
            findings.append(PreflightFinding(True, "recipe", str(error)))
        except Exception as error:  # noqa: BLE001 - whatever a part of the user's own raises
            last = traceback.extract_tb(error.__traceback__)[-1]
            position = f"{Path(last.filename).name}, line {last.lineno}"
            what = f"fails on the probe episodes ({position}): {type(error).__name__}: {error}"
            findings.append(PreflightFinding(True, names, what))
    return findings


async def _play(tasks: Sequence[Task], policy: Any, deadline: float) -> list[Trajectory]:
    """Play one episode per task, and return the trajectories in the order of the tasks; of several players the first."""
    played: dict[int, Trajectory] = {}
    async for trajectory in rollout(tasks, policy, deadline=deadline, retries=0):
        played.setdefault(trajectory.group, trajectory)
    return [played[n] for n in range(len(tasks))]


def _failure(trajectory: Trajectory) -> str:
    failure = trajectory.failures[-1]
    return f"{failure.kind} while {_DOING[failure.phase]}: {failure.message}"


_DOING = {"boot": "starting", "reset": "resetting", "act": "acting", "step": "stepping", "close": "closing"}


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
