"""One episode: an environment, its players, one deadline, and whatever happens recorded as data.

``run_episode`` never raises for what happens inside an episode. It asks, in order, for an environment (boot), its first
observation (reset), then turn by turn for an action (act) and what it led to (step), and gives the environment back (close),
exactly once. If anything fails, or the deadline passes, the phase it happened in says whose fault it is. Only cancellation
from outside passes through, after the environment has been given back.

Each player has a seat: its own conversation, policy, turns and token segments. A game for one has one seat.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import msgspec

from palestra.core import AsyncEnv, Conversation, Policy, Step
from palestra.errors import EnvError, PolicyError
from palestra.policies import policy_name
from palestra.segments import SegmentRecorder
from palestra.trajectory import (
    Completion,
    Content,
    Failure,
    Finish,
    Image,
    Message,
    Phase,
    StopReason,
    Task,
    Text,
    Trajectory,
    Turn,
)

__all__ = ["CLEAN_UP_SHARE", "EnvSupply", "Players", "Ticket", "checked_step", "run_episode"]

Players = Policy | Mapping[str, Policy]
"""One policy for every player, or one for each by name."""

CLEAN_UP_SHARE = 0.1
"""The part of an episode's deadline that is kept for giving the environment back."""

BREATH = 16
"""After this many turns an episode that never waits lets the others go on, and its own deadline be noticed."""

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
        """Close it, or keep it for another episode if it is ``sound`` and made for that."""
        ...


@dataclass(frozen=True, slots=True)
class Ticket:
    """Which episode this is. With the task it fixes every random choice made in it."""

    task: Task
    seed: int = 0
    group: int = 0
    member: int = 0
    attempt: int = 0


class _Seat:
    """What belongs to one player of the episode."""

    __slots__ = ("conversation", "policy", "segments", "turns")

    def __init__(self, policy: Policy, conversation: Conversation) -> None:
        self.policy = policy
        self.conversation = conversation
        self.turns: list[Turn] = []
        self.segments: SegmentRecorder | None = None


class _Episode:
    """The state of one running episode."""

    __slots__ = ("failures", "final", "info", "phase", "players", "seats", "stop", "ticket", "unpaid")

    def __init__(self, ticket: Ticket, players: Players) -> None:
        self.ticket = ticket
        self.players = players
        self.phase = Phase.BOOT
        self.seats: dict[str, _Seat] = {}
        self.stop: StopReason | None = None
        self.final: Content = ""
        self.info: dict[str, Any] = {}
        self.failures: list[Failure] = []
        self.unpaid: dict[str, float] = {}
        """Rewards of players who have not acted yet: credited to their first turn."""

    async def play(self, env: AsyncEnv) -> None:
        """From reset to the end. Sets ``stop``, or raises."""
        self.phase = Phase.RESET
        observation, info = _checked_reset(await env.reset(task=self.ticket.task))
        self.info = info
        turn = 0
        while self.stop is None:
            seat = self._seat(info.get("player", ""), env)
            observation, info = await self._turn(seat, env, observation)
            turn += 1
            if not turn % BREATH:
                await asyncio.sleep(0)
        self.final = observation

    async def _turn(self, seat: _Seat, env: AsyncEnv, observation: Content) -> tuple[Content, dict[str, Any]]:
        self.phase = Phase.ACT
        messages = seat.conversation.messages
        messages.append(Message("user", observation))
        began = perf_counter()
        completion = await seat.policy.act(seat.conversation)
        acted = perf_counter()
        if not isinstance(completion, Completion):
            raise PolicyError(f"{policy_name(seat.policy)}.act() returned a {type(completion).__name__}, not a Completion")
        if completion.tokens is not None or completion.notes:
            completion = self._keep_tokens(seat, completion)
        messages.append(Message("assistant", completion.text, completion.reasoning))
        if completion.finish is not Finish.STOP:
            # A turn that was cut is no move: it is recorded, and the environment never sees it.
            self.stop = _STOP_OF_FINISH[completion.finish]
            seat.turns.append(Turn(observation, completion, act_seconds=acted - began))
            return observation, {}

        self.phase = Phase.STEP
        step = await env.step(completion.text)
        following, reward, terminated, truncated, info = checked_step(step)
        seat.turns.append(Turn(observation, completion, reward, info, acted - began, perf_counter() - acted))
        if self.unpaid or "rewards" in info:
            self._pay(seat, info.get("rewards", {}))
        if terminated:
            self.stop = StopReason.TERMINATED
        elif truncated:
            self.stop = _cut_reason(info)
        return following, info

    def _seat(self, player: str, env: AsyncEnv) -> _Seat:
        seat = self.seats.get(player)
        if seat is None:
            ticket = self.ticket
            path = (ticket.seed, ticket.group, ticket.member, ticket.attempt)
            conversation = Conversation(ticket.task, env, player=player, seed_path=path)
            seat = self.seats[player] = _Seat(self._policy_of(player), conversation)
        return seat

    def _policy_of(self, player: str) -> Policy:
        if not isinstance(self.players, Mapping):
            return self.players
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
            due[player] = due.get(player, 0.0) + _finite(reward)
        self.unpaid = {}
        for player, reward in due.items():
            seat = self.seats.get(player)
            if seat is None or not seat.turns:
                self.unpaid[player] = reward
                continue
            latest = seat.turns[-1]
            # The actor's own entry replaces the step's reward, which is the same thing said twice.
            base = 0.0 if seat is actor and player in rewards else latest.reward
            seat.turns[-1] = msgspec.structs.replace(latest, reward=base + reward)

    def record(self, error: BaseException, clock: asyncio.Timeout, deadline: float) -> None:
        """Record what ended the episode or its clean-up; raise it again if it is a cancellation from outside."""
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise error
        if clock.expired() and isinstance(error, TimeoutError):
            self._overrun(deadline)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failures.append(Failure.of(error, self.phase, self.ticket.attempt))
        if self.stop is None:
            self.stop = StopReason.ERROR

    def _overrun(self, deadline: float) -> None:
        blamed = Failure.of(TimeoutError(), self.phase, self.ticket.attempt)
        message = f"the episode's deadline of {deadline:g} s passed while waiting for {self.phase.value}"
        self.failures.append(msgspec.structs.replace(blamed, kind="Deadline", message=message, detail=""))
        if self.stop is None:
            self.stop = StopReason.DEADLINE

    def trajectories(self, seconds: float) -> tuple[Trajectory, ...]:
        """One for each player who acted; one for an episode in which nobody did."""
        played = tuple(self._trajectory(player, seat, seconds) for player, seat in self.seats.items() if seat.turns)
        return played or (self._trajectory("", None, seconds),)

    def _trajectory(self, player: str, seat: _Seat | None, seconds: float) -> Trajectory:
        assert self.stop is not None
        ticket = self.ticket
        return Trajectory(
            task=ticket.task,
            stop=self.stop,
            turns=() if seat is None else tuple(seat.turns),
            segments=() if seat is None or seat.segments is None else seat.segments.segments(),
            final_observation=self.final,
            info=self.info,
            failures=tuple(self.failures),
            player=player,
            policy="" if seat is None else policy_name(seat.policy),
            seed=ticket.seed,
            group=ticket.group,
            member=ticket.member,
            attempt=ticket.attempt,
            seconds=seconds,
        )


async def run_episode(supply: EnvSupply, players: Players, ticket: Ticket, *, deadline: float = 60.0) -> tuple[Trajectory, ...]:
    """Play the episode that ``ticket`` names; one trajectory for each player who acted.

    ``deadline`` seconds cover everything from boot to clean-up. What goes wrong is in the trajectories' ``failures``.
    """
    episode = _Episode(ticket, players)
    began = perf_counter()
    env: AsyncEnv | None = None
    try:
        async with asyncio.timeout(deadline * (1 - CLEAN_UP_SHARE)) as clock:
            env = await supply.acquire(ticket.task)
            await episode.play(env)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        episode.record(error, clock, deadline)
    finally:
        if env is not None:
            await _give_back(supply, env, episode, began, deadline)
    return episode.trajectories(perf_counter() - began)


async def _give_back(supply: EnvSupply, env: AsyncEnv, episode: _Episode, began: float, deadline: float) -> None:
    episode.phase = Phase.CLOSE
    sound = episode.stop is not None and not episode.stop.failed
    # Its share is kept even if somebody held the loop beyond the deadline: an environment must be able to free what it holds.
    left = max(began + deadline - perf_counter(), deadline * CLEAN_UP_SHARE)
    try:
        async with asyncio.timeout(left) as clock:
            await supply.give_back(episode.ticket.task, env, sound=sound)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        episode.record(error, clock, deadline)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _checked_reset(result: Any) -> tuple[Content, dict[str, Any]]:
    try:
        observation, info = result
    except (TypeError, ValueError):
        raise EnvError(f"reset() must return an observation and a dict, got {result!r:.200}") from None
    if not isinstance(info, dict):
        raise EnvError(f"reset() must return a dict as info, got a {type(info).__name__}")
    return _content(observation), dict(info)


def checked_step(step: Any) -> Step:
    """``step`` if it keeps the contract; whatever a careless environment returned otherwise becomes an ``EnvError``."""
    try:
        observation, reward, terminated, truncated, info = step
    except (TypeError, ValueError):
        raise EnvError(f"step() must return five values, got {step!r:.200}") from None
    if not isinstance(info, dict):
        raise EnvError(f"step() must return a dict as info, got a {type(info).__name__}")
    # A copy of info, since some environments hand out one dict again and again.
    return Step(_content(observation), _finite(reward), bool(terminated), bool(truncated), dict(info))


def _content(observation: Any) -> Content:
    if isinstance(observation, str):
        return observation
    if isinstance(observation, tuple) and all(isinstance(part, Text | Image) for part in observation):
        return observation
    raise EnvError(f"an observation is text, or a tuple of Text and Image, got {observation!r:.200}")


def _finite(reward: object) -> float:
    try:
        number = float(reward)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise EnvError(f"a reward must be a number, got {reward!r:.200}") from None
    if not math.isfinite(number):
        raise EnvError(f"a reward must be finite, got {number}")
    return number


def _cut_reason(info: Mapping[str, Any]) -> StopReason:
    said = info.get("stop_reason", StopReason.TRUNCATED)
    try:
        reason = StopReason(said)
    except ValueError:
        raise EnvError(f"info['stop_reason'] must be a StopReason, got {said!r:.200}") from None
    return StopReason.TRUNCATED if reason.failed or reason is StopReason.TERMINATED else reason
