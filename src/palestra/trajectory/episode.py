"""The recorded episode.

A failed episode is data: its ``reward`` is ``None``, never zero, and ``failures`` names the boundary that failed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from palestra.foundation.encoding import encode_msgpack
from palestra.foundation.notebooks import html_table
from palestra.trajectory.agent import AgentRecord
from palestra.trajectory.completion import Completion
from palestra.trajectory.content import Content, text_of
from palestra.trajectory.failure import Failure
from palestra.trajectory.segment import Segment
from palestra.trajectory.task import Task

__all__ = ["LARGEST_REWARD", "SCHEMA_VERSION", "StopReason", "Trajectory", "TrajectoryGroup", "Turn", "verdicts"]

SCHEMA_VERSION = 1
"""Written into every trajectory. It changes when an old reader would misread a new file."""

LARGEST_REWARD = 1e9
"""Bound on the absolute value of a reward: sums and squares of any number of rewards stay finite."""


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One observation, the policy's completion, and the result of the action."""

    observation: Content
    completion: Completion
    reward: Annotated[float, msgspec.Meta(ge=-LARGEST_REWARD, le=LARGEST_REWARD)] = 0.0
    info: dict[str, Any] = {}
    """The ``info`` that the environment returned for this action."""
    act_seconds: float = 0.0
    env_seconds: float = 0.0

    @property
    def action(self) -> str:
        """The text that the environment received."""
        return self.completion.text


class StopReason(StrEnum):
    """Why an episode ended: by the environment (the first), by a limit (the next), or by a failure (the last two)."""

    TERMINATED = "terminated"

    TRUNCATED = "truncated"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - a reason to stop
    CONTEXT_OVERFLOW = "context_overflow"
    LENGTH_CUT = "length_cut"
    EMPTY_COMPLETION = "empty_completion"
    BUDGET = "budget"

    ERROR = "error"
    DEADLINE = "deadline"

    @property
    def failed(self) -> bool:
        """Whether the episode is no evidence of the policy's skill."""
        return self in _FAILED

    @classmethod
    def of_cut(cls, info: Mapping[str, Any]) -> "StopReason":
        """Return why a truncated step ended its episode; ``info`` comes from this step.

        An environment or a wrapper may state ``truncated``, ``turn_limit`` or ``token_limit``. Only the code that runs the
        episode knows all other reasons: stated by an environment, they mean ``truncated``.

        Raises:
            ValueError: ``info["stop_reason"]`` is not a stop reason.
        """
        stated = cls(info.get("stop_reason", cls.TRUNCATED))
        return stated if stated in (cls.TURN_LIMIT, cls.TOKEN_LIMIT) else cls.TRUNCATED


_FAILED = (StopReason.ERROR, StopReason.DEADLINE)  # in Python 3.11, to name a member of an enum is a call


class Trajectory(msgspec.Struct, frozen=True):
    """One episode of one player."""

    task: Task
    stop: StopReason
    turns: tuple[Turn, ...] = ()
    segments: tuple[Segment, ...] = ()
    final_observation: Content = ""
    info: dict[str, Any] = {}
    """The ``info`` that ``reset`` returned."""
    failures: tuple[Failure, ...] = ()
    """All errors: of earlier attempts, of this one, and of the clean-up."""
    player: str = ""
    """Empty in a single-player environment."""
    policy: str = ""
    privileged: bool = False
    """Whether the policy had access to the environment, its oracle included: its score is a baseline."""
    seed: int = 0
    """The seed of the run. With task, group, member and attempt it fixes every random choice of this episode."""
    group: int = 0
    """Members of one group played the same task under the same horizon."""
    member: int = 0
    attempt: int = 0
    """Number of earlier attempts that failed because of infrastructure."""
    seconds: float = 0.0
    schema: int = SCHEMA_VERSION
    agent: AgentRecord | msgspec.UnsetType = msgspec.UNSET
    """The calls of a foreign agent; missing for every other policy."""

    def __post_init__(self) -> None:
        if self.schema != SCHEMA_VERSION:
            raise ValueError(f"this trajectory has schema {self.schema}, this version of palestra reads {SCHEMA_VERSION}")

    @property
    def reward(self) -> float | None:
        """The sum of the turns' rewards; ``None``, not zero, if the episode failed."""
        return None if self.stop.failed else sum([turn.reward for turn in self.turns])

    @property
    def success(self) -> bool | None:
        """The environment's verdict, ``info["success"]`` of the last turn; ``None`` if it gave none."""
        verdict = None if self.stop.failed or not self.turns else self.turns[-1].info.get("success")
        return None if verdict is None else bool(verdict)

    @property
    def terminated(self) -> bool:
        """Whether the environment ended the episode."""
        return self.stop is StopReason.TERMINATED

    @property
    def truncated(self) -> bool:
        """Whether a limit cut the episode short; its future value is unknown, not zero."""
        return not self.terminated and not self.stop.failed

    def _repr_html_(self) -> str:
        """One row per turn, for notebooks."""
        reward = "no reward" if self.reward is None else f"reward {self.reward:.2f}"
        caption = (
            f"{self.task.env}, played by {self.policy or 'a policy'}: {reward}, {self.stop.value} after {len(self.turns)} turns"
        )
        rows = [(n, text_of(turn.observation), turn.action, turn.reward) for n, turn in enumerate(self.turns, 1)]
        return html_table(caption, ("turn", "observation", "action", "reward"), rows)

    def digest(self) -> str:
        """Return a SHA-256 over everything but times, retries and tracebacks: equal digests mean the same episode."""
        turns = tuple(_timeless(turn) for turn in self.turns)
        failures = tuple(msgspec.structs.replace(failure, detail="") for failure in self.failures)
        agent = self.agent.timeless if isinstance(self.agent, AgentRecord) else self.agent
        bare = msgspec.structs.replace(self, turns=turns, failures=failures, seconds=0.0, agent=agent)
        return hashlib.sha256(encode_msgpack(bare)).hexdigest()


def _timeless(turn: Turn) -> Turn:
    """Return ``turn`` without what differs between two runs of the same episode."""
    completion = turn.completion
    if completion.usage is not None and completion.usage.retries:
        completion = msgspec.structs.replace(completion, usage=msgspec.structs.replace(completion.usage, retries={}))
    return msgspec.structs.replace(turn, completion=completion, act_seconds=0.0, env_seconds=0.0)


def verdicts(envs: Sequence[object], stops: Sequence[str], successes: Sequence[bool | None]) -> list[bool | None]:
    """Say of each episode whether the task was solved; ``None`` where nothing is known.

    ``envs``, ``stops`` and ``successes`` have one entry per episode. An environment judges if it says of at least one episode
    whether it was solved. An episode of such an environment that a limit cut before the verdict counts as not solved; otherwise
    the share of solved episodes would leave out the long ones.
    """
    judging = {env for env, success in zip(envs, successes, strict=True) if success is not None}
    return [
        False if success is None and env in judging and stop not in _NO_VERDICT else success
        for env, stop, success in zip(envs, stops, successes, strict=True)
    ]


_NO_VERDICT = frozenset({StopReason.TERMINATED, StopReason.BUDGET, StopReason.ERROR, StopReason.DEADLINE})
"""Episodes that stopped like this and have no verdict say nothing about the policy."""


class TrajectoryGroup(msgspec.Struct, frozen=True):
    """Several episodes of one task under one horizon."""

    task: Task
    members: tuple[Trajectory, ...]

    def _repr_html_(self) -> str:
        """One row per member, for notebooks."""
        rows = [
            (member.member, "none" if member.reward is None else member.reward, member.stop.value, len(member.turns))
            for member in self.members
        ]
        return html_table(f"{self.task.env}, {len(rows)} episodes of one task", ("member", "reward", "ended by", "turns"), rows)

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """The reward of each member; ``None`` for those that failed."""
        return tuple(member.reward for member in self.members)
