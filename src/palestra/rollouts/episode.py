"""One episode: an environment, its players and one deadline. Every failure is recorded as data.

``run_episode`` does not raise for failures inside an episode. Its phases are: get an environment (boot), get the first
observation (reset), then turn by turn ask the policy for an action (act) and step the environment (step), and give the
environment back exactly once (close). If anything fails or the deadline passes, the phase says which part failed. Only
cancellation from outside is raised, after the environment has been given back.

Each player has a seat: its own conversation, policy, turns and token segments. A single-player environment has one seat.
"""

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter
from types import CoroutineType
from typing import Any, Protocol, runtime_checkable

import msgspec

from palestra.adapters.direct import Direct
from palestra.core import AsyncEnv, Conversation, Policy
from palestra.errors import Boundary, EnvError, PolicyError
from palestra.foundation.encoding import clean_text, shown
from palestra.foundation.telemetry import TraceSpan, is_tracing, span
from palestra.policies import is_privileged, policy_name
from palestra.policies.acting import completion_of, first_answer, is_awaitable
from palestra.rollouts.defaults import DEADLINE
from palestra.rollouts.driving import EpisodeTask, Overrun, hosted, within
from palestra.rollouts.validation import (
    checked_payments,
    checked_player,
    checked_reward,
    is_plain,
    kept_completion,
    kept_played,
    kept_reset,
    kept_step,
    kept_tools,
)
from palestra.trajectory import (
    Completion,
    Content,
    Failure,
    Finish,
    Message,
    Phase,
    PlayedRecord,
    Segment,
    StopReason,
    Task,
    Trajectory,
    Turn,
    observed,
    opening_of,
)
from palestra.trajectory.segments import SegmentRecorder

__all__ = ["CLEAN_UP_SHARE", "EnvSupply", "EpisodeKey", "Players", "Seating", "run_episode"]

Players = Policy | Mapping[str, Policy]
"""One policy for every player, or one for each by name."""

CLEAN_UP_SHARE = 0.1
"""The share of the deadline that is reserved for giving the environment back."""

FIRST_PAUSE = 0.1
"""Seconds before an episode is played again after an infrastructure failure; doubled each time."""

BREATH = 16
"""An episode that never awaits yields to the event loop after this number of turns."""

_ACT, _STEP, _STOP = Phase.ACT, Phase.STEP, Finish.STOP  # in Python 3.11, to name a member of an enum is a call

_STOP_OF_FINISH = {
    Finish.LENGTH: StopReason.LENGTH_CUT,
    Finish.OVERFLOW: StopReason.CONTEXT_OVERFLOW,
    Finish.EMPTY: StopReason.EMPTY_COMPLETION,
    Finish.BUDGET: StopReason.BUDGET,
}


class EnvSupply(Protocol):
    """Where an episode gets its environment from, and gives it back to."""

    async def acquire(self, task: Task) -> AsyncEnv:
        """An environment for ``task``, new or used."""
        ...

    async def give_back(self, task: Task, env: AsyncEnv, *, sound: bool) -> None:
        """Close ``env``, or keep it for another episode if it is ``sound`` and reusable."""
        ...


class EpisodeKey(msgspec.Struct, frozen=True, gc=False):
    """Which episode of a rollout. Together with the task it fixes every random choice made in the episode."""

    task: Task
    seed: int = 0
    group: int = 0
    member: int = 0
    attempt: int = 0

    @property
    def name(self) -> str:
        """``GROUP.MEMBER``, the name of the episode in a ledger."""
        return f"{self.group}.{self.member}"


@runtime_checkable
class Seating(Protocol):
    """Chooses the policies of an episode by its key, where ``Players`` are the same in every episode."""

    def policy_of(self, key: EpisodeKey, player: str) -> Policy:
        """The policy of ``player`` in the episode ``key``."""
        ...


class _Seat:
    """The conversation, policy, turns and segments of one player."""

    __slots__ = ("conversation", "end", "name", "played", "policy", "privileged", "segments", "turns")

    def __init__(self, policy: Policy, conversation: Conversation, *, privileged: bool) -> None:
        self.policy = policy
        # Asked now: what a stranger's attributes raise is then a failure of the episode.
        self.name = clean_text(policy_name(policy))
        self.privileged = privileged
        self.end = getattr(policy, "end_episode", None)
        self.conversation = conversation
        self.turns: list[Turn] = []
        self.segments: SegmentRecorder | None = None
        self.played: PlayedRecord | None = None
        """The record of a policy with ``end_episode``, which records by itself."""

    @property
    def tokens(self) -> tuple[Segment, ...]:
        if self.played is not None:
            return self.played.segments
        return () if self.segments is None else self.segments.segments()

    async def end_episode(self, final: Content, seconds: float) -> None:
        """Let a policy with ``end_episode`` stop what it started, and keep what it has recorded."""
        assert self.end is not None
        self.played = kept_played(await self.end(self.conversation, final, seconds))

    def open(self, messages: list[Message]) -> None:
        """Put ``messages`` before the first observation."""
        self.conversation.messages[:0] = messages
        self.conversation.opening = len(messages)


class RunningEpisode:
    """The state of one running episode."""

    __slots__ = (
        "cancelled_in",
        "cut_as_invalid",
        "env",
        "failures",
        "final",
        "info",
        "key",
        "phase",
        "players",
        "seats",
        "stop",
        "unpaid",
    )

    def __init__(self, key: EpisodeKey, players: Players | Seating, *, cut_as_invalid: bool) -> None:
        self.key = key
        self.players = players
        self.cut_as_invalid = cut_as_invalid
        self.phase = Phase.BOOT
        self.cancelled_in: Phase | None = None
        self.env: AsyncEnv | None = None
        self.seats: dict[str, _Seat] = {}
        self.stop: StopReason | None = None
        self.final: Content = ""
        self.info: dict[str, Any] = {}
        self.failures: tuple[Failure, ...] = ()
        self.unpaid: dict[str, float] = {}
        """Rewards of players who have not acted yet: credited to their first turn."""

    @property
    def task(self) -> Task:
        return self.key.task

    async def play(self, supply: EnvSupply) -> None:
        """Get an environment, and play from reset to the end. Sets ``stop``, or raises."""
        env = self.env = await supply.acquire(self.key.task)
        self.phase = Phase.RESET
        observation, info = kept_reset(await env.reset(task=self.key.task))
        self.info = info
        if "opening" in info:
            self._seat(checked_player(info), env).open(opening_of(info))
        turn = 0
        seat: _Seat | None = None
        while self.stop is None:
            if seat is None or info or seat.conversation.player:
                seat = self._next_seat(info, env)
            # What ``observed`` returns, without a call where info is empty.
            seat.conversation.messages.append(observed(observation, info) if info else Message("user", observation))
            with span("turn", number=turn):
                self.phase = _ACT
                began = perf_counter()
                # As next_completion does, without a coroutine of its own: this is done in every turn of every episode.
                answer = first_answer(seat.policy, seat.conversation)
                if type(answer) is CoroutineType or is_awaitable(answer):
                    answer = await answer
                completion = self._answered(seat, answer)
                acted = perf_counter()
                cut = None if completion.finish is _STOP else _STOP_OF_FINISH[completion.finish]
                if cut is StopReason.BUDGET or (cut is not None and not self.cut_as_invalid):
                    self.stop = cut
                    # A cut turn is not a move: it is recorded, and the environment does not see it.
                    seat.turns.append(Turn(observation, completion, act_seconds=acted - began))
                    break
                self.phase = _STEP
                action = completion.text if cut is None else ""
                # A plain environment is called without a coroutine, too.
                step = env.step_now(action) if type(env) is Direct else await env.step(action)
                following, reward, terminated, truncated, info = kept_step(step)
                seat.turns.append(Turn(observation, completion, reward, info, acted - began, perf_counter() - acted))
                observation = following
                if self.unpaid or "rewards" in info:
                    self._pay(seat, checked_payments(info))
                if cut is not None:
                    self.stop = cut
                elif terminated:
                    self.stop = StopReason.TERMINATED
                elif truncated:
                    self.stop = _cut_reason(info)
            turn += 1
            if not turn % BREATH:
                await asyncio.sleep(0)
        self.final = observation
        self._report_forfeits()

    def _next_seat(self, info: dict[str, Any], env: AsyncEnv) -> _Seat:
        """The seat of the player who acts next, with the tools that ``info`` offers."""
        seat = self._seat(checked_player(info), env)
        if "tools" in info and (offered := kept_tools(info)) is not None:
            seat.conversation.tools = offered
        return seat

    def _answered(self, seat: _Seat, answer: Any) -> Completion:
        """Return the policy's answer as it is kept."""
        completion: Completion = answer
        if not is_plain(answer):
            completion = kept_completion(completion_of(seat.policy, answer))
            if completion.tokens is not None or completion.notes:
                completion = self._keep_tokens(seat, completion)
        seat.conversation.messages.append(Message("assistant", completion.text, completion.reasoning))
        return completion

    def _report_forfeits(self) -> None:
        for player, reward in self.unpaid.items():
            if reward:  # not a reason to fail: the other players have played
                forfeit = EnvError(
                    f'player "{player}" never acted, so no trajectory has the reward of {reward:g} that it was paid'
                )
                self.failures += (Failure.of(forfeit, self.phase, self.key.attempt),)

    def _seat(self, player: str, env: AsyncEnv) -> _Seat:
        seat = self.seats.get(player)
        if seat is None:
            key = self.key
            path = (key.seed, key.group, key.member, key.attempt)
            self.phase = Phase.ACT
            policy = self._policy_of(player)
            privileged = is_privileged(policy)
            conversation = Conversation(key.task, env if privileged else None, player=player, seed_path=path)
            seat = self.seats[player] = _Seat(policy, conversation, privileged=privileged)
        return seat

    def _policy_of(self, player: str) -> Policy:
        if not isinstance(self.players, Mapping):
            # One question instead of isinstance(…, Seating), which takes 30 of them and is asked in every episode.
            policy_of = getattr(self.players, "policy_of", None)
            return self.players if policy_of is None else policy_of(self.key, player)  # type: ignore[return-value]
        if player not in self.players:
            raise PolicyError(f'no policy for player "{player}"; there are {sorted(self.players)}')
        return self.players[player]

    @staticmethod
    def _keep_tokens(seat: _Seat, completion: Completion) -> Completion:
        if seat.segments is None:
            seat.segments = SegmentRecorder()
        return seat.segments.take(completion, len(seat.turns))

    def _pay(self, actor: _Seat, rewards: Mapping[str, float]) -> None:
        """Credit what the other players earned by this step to their latest turns."""
        due = {**self.unpaid}
        for player, reward in rewards.items():
            due[player] = checked_reward(due.get(player, 0.0) + reward)
        self.unpaid = {}
        for player, reward in due.items():
            seat = self.seats.get(player)
            if seat is None or not seat.turns:
                self.unpaid[player] = reward
                continue
            latest = seat.turns[-1]
            # The actor's own entry replaces the reward of the step: both state the same reward.
            base = 0.0 if seat is actor and player in rewards else latest.reward
            seat.turns[-1] = msgspec.structs.replace(latest, reward=checked_reward(base + reward))

    def record(self, error: BaseException, deadline: float) -> None:
        """Record the error that ended the episode or its cleanup."""
        # Asked of the type: the exception of a stranger may lie about its __class__.
        if type(error) is Overrun:
            self._overrun(deadline, error)
        else:
            phase, self.cancelled_in = self.cancelled_in, None
            if phase is None or not issubclass(type(error), asyncio.CancelledError):
                phase = self.phase
            self.failures += (Failure.of(error, phase, self.key.attempt),)
            if self.stop is None:
                self.stop = StopReason.ERROR

    def _overrun(self, deadline: float, error: Overrun) -> None:
        blamed = Failure.of(TimeoutError(), self.phase, self.key.attempt)
        message = f"the episode's deadline of {deadline:g} s passed while waiting for {self.phase.value}"
        if error.abandoned:
            message += ", which did not end when it was cancelled and has been abandoned"
        self.failures += (msgspec.structs.replace(blamed, kind="Deadline", message=message, detail=""),)
        if self.stop is None:
            self.stop = StopReason.DEADLINE

    @property
    def infrastructure_failed(self) -> bool:
        """Whether the episode ended with a failure that another attempt may not meet."""
        if not self.failures or self.stop is None or not self.stop.failed:
            return False
        return self.failures[0].boundary is Boundary.INFRASTRUCTURE

    def trajectories(self, seconds: float, earlier: tuple[Failure, ...]) -> tuple[Trajectory, ...]:
        """One trajectory per player that acted, or a single one if no player did. ``earlier`` attempts failed."""
        acted = {player: seat for player, seat in self.seats.items() if seat.turns or seat.played is not None}
        failures = earlier + self.failures
        played = tuple([self._trajectory(player, seat, seconds, failures) for player, seat in acted.items()])
        return played or (self._trajectory("", None, seconds, failures),)

    def _trajectory(self, player: str, seat: _Seat | None, seconds: float, failures: tuple[Failure, ...]) -> Trajectory:
        assert self.stop is not None
        key = self.key
        return Trajectory(
            task=key.task,
            stop=self.stop,
            turns=() if seat is None else tuple(seat.turns),
            segments=() if seat is None else seat.tokens,
            final_observation=self.final,
            info=self.info,
            failures=failures,
            player=player,
            policy="" if seat is None else seat.name,
            privileged=seat is not None and seat.privileged,
            seed=key.seed,
            group=key.group,
            member=key.member,
            attempt=key.attempt,
            seconds=seconds,
            agent=msgspec.UNSET if seat is None or seat.played is None else seat.played.agent or msgspec.UNSET,
        )


async def run_episode(
    supply: EnvSupply,
    players: Players | Seating,
    key: EpisodeKey,
    *,
    deadline: float = DEADLINE,
    cut_as_invalid: bool = False,
    retries: int = 0,
) -> tuple[Trajectory, ...]:
    """Play the episode ``key``, and return one trajectory per player that acted.

    ``deadline`` seconds cover everything from boot to cleanup. Errors are in the ``failures`` of the trajectories. With
    ``cut_as_invalid``, a cut turn gets the reward that the environment pays for an empty action. If infrastructure failed, the
    episode is played again, up to ``retries`` times; the failures of all attempts are kept.
    """
    task = asyncio.current_task()
    if not isinstance(task, EpisodeTask) or task.episode is not None:
        work = run_episode(supply, players, key, deadline=deadline, cut_as_invalid=cut_as_invalid, retries=retries)
        return await hosted(work)
    earlier: tuple[Failure, ...] = ()
    while True:
        episode = task.episode = RunningEpisode(key, players, cut_as_invalid=cut_as_invalid)
        began = perf_counter()
        with span("episode", env=key.task.env, group=key.group, member=key.member, attempt=key.attempt) as traced:
            try:
                await within(task, deadline * (1 - CLEAN_UP_SHARE), episode.play(supply))
            except BaseException as error:  # noqa: BLE001 - a stranger's code may raise anything
                if not task.stopping:
                    episode.stop = None  # a step that came after the deadline, or after a cancellation, decides nothing
                    episode.record(error, deadline)
            await _end_policies(task, episode, began, deadline)
            if episode.env is not None:
                await _give_back(task, supply, episode.env, episode, began, deadline)
            task.episode = None
            if task.stopping:
                raise asyncio.CancelledError
            played = episode.trajectories(perf_counter() - began, earlier)
            if is_tracing():
                _describe(played, traced)
        if not episode.infrastructure_failed or key.attempt >= retries:
            return played
        earlier += episode.failures
        await asyncio.sleep(FIRST_PAUSE * 2**key.attempt)
        key = msgspec.structs.replace(key, attempt=key.attempt + 1)


def _describe(played: Sequence[Trajectory], traced: TraceSpan) -> None:
    for trajectory in played:
        traced.set_attribute("palestra.stop", trajectory.stop.value)
        traced.set_attribute("palestra.turns", len(trajectory.turns))
        if trajectory.reward is not None:
            traced.set_attribute("palestra.reward", trajectory.reward)


async def _end_policies(task: EpisodeTask[Any], episode: RunningEpisode, began: float, deadline: float) -> None:
    """Call ``end_episode`` of every policy that has it: it stops what it started, and returns what it recorded."""
    for seat in episode.seats.values():
        if seat.end is None:
            continue
        left = max(began + deadline - perf_counter(), deadline * CLEAN_UP_SHARE)
        sound = episode.stop is not None and not episode.stop.failed and not task.stopping
        episode.phase = Phase.ACT
        try:
            await within(task, left, seat.end_episode(episode.final, left / 2 if sound else 0.0), cleanup=True)
        except BaseException as error:  # noqa: BLE001 - as above
            episode.record(error, deadline)


async def _give_back(
    task: EpisodeTask[Any], supply: EnvSupply, env: AsyncEnv, episode: RunningEpisode, began: float, deadline: float
) -> None:
    episode.phase = Phase.CLOSE
    sound = episode.stop is not None and not episode.stop.failed and not task.stopping
    # Cleanup keeps its share even if the event loop was blocked beyond the deadline: an environment must free its resources.
    left = max(began + deadline - perf_counter(), deadline * CLEAN_UP_SHARE)
    try:
        await within(task, left, supply.give_back(episode.key.task, env, sound=sound), cleanup=True)
    except BaseException as error:  # noqa: BLE001 - as above
        episode.record(error, deadline)


def _cut_reason(info: Mapping[str, Any]) -> StopReason:
    try:
        return StopReason.of_cut(info)
    except ValueError:
        raise EnvError(f"info['stop_reason'] must be a StopReason, got {shown(info['stop_reason'])}") from None
