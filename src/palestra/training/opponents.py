"""Opponents in games with several players.

Without the table ``[opponent]`` the model plays all players of a game and learns from each: self-play. A model that meets only
itself can forget how to beat what it has beaten before. With the table, the model plays one of the players in a share of the
tasks, and an opponent plays the others. All episodes of a group have the same arrangement, so they can be compared. What the
opponent plays is not learned from.

``past`` is the model itself with the weights of an earlier step. Every ``every`` steps the run keeps the weights, and draws
the next opponent from those that it keeps. They are in the run folder, so a resumed run meets the same opponents::

    run/opponents/version-00000040/   config.json  model-00000-00000.safetensors  …

With ``staleness`` above 0, episodes may be running when the opponent changes. They continue with the new one, as they continue
with the new weights of the model.
"""

import asyncio
from collections.abc import Sequence

import msgspec
import numpy as np

from palestra.core import Conversation, Engine, Policy
from palestra.errors import PolicyError
from palestra.foundation.seeding import derive
from palestra.inference.servers.publishing import PolicyWeights, PublishedWeights
from palestra.policies import is_privileged, next_completion
from palestra.recipes.play import OpponentSettings
from palestra.rollouts import EpisodeKey, Seating
from palestra.trajectory import Completion, Trajectory, TrajectoryGroup

__all__ = [
    "OPPONENTS",
    "OpponentInSomeTasks",
    "Opponents",
    "PastModel",
]

OPPONENTS = "opponents"
"""The name of the folder in the run folder."""


class Opponents:
    """Without opponents the model plays all players of a game, and learns from each."""

    seating: Seating | None = None

    def learned_from(self, groups: Sequence[TrajectoryGroup]) -> Sequence[TrajectoryGroup]:
        """Return those of a task's ``groups`` that the model can learn from."""
        return groups

    def metrics(self, step: int, groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
        """What the metrics of a step say about opponents."""
        return {}

    async def follow(self, weights: PolicyWeights, version: int) -> None:
        """Take notice of new weights of the model."""

    async def close(self) -> None:
        """Free what the opponents hold."""


class OpponentInSomeTasks(Opponents):
    """Decides which policy plays which player of a task, and which trajectories are learned from."""

    def __init__(self, settings: OpponentSettings, seed: int, model: Policy, opponent: Policy) -> None:
        self._settings = settings
        self._seed = seed
        self._model = model
        self.opponent = opponent
        self.seating = self

    def always(self) -> "OpponentInSomeTasks":
        """The same, with the opponent in every task."""
        settings = msgspec.structs.replace(self._settings, share=1.0)
        return OpponentInSomeTasks(settings, self._seed, self._model, self.opponent)

    def learning_player(self, number: int) -> str | None:
        """The player that the model plays against an opponent in the task ``number``; ``None`` if it plays all of them."""
        rng = derive(self._seed, "opponent", number)
        if rng.random() >= self._settings.share:
            return None
        return self._settings.players[int(rng.integers(len(self._settings.players)))]

    def policy_of(self, key: EpisodeKey, player: str) -> Policy:
        """The policy of ``player`` in the episode ``key``."""
        if not player:
            return self._model  # an environment for one player
        if player not in self._settings.players:
            raise PolicyError(f'{key.task.env} has a player "{player}", and opponent.players = {list(self._settings.players)}')
        return self._model if self.learning_player(key.group) in (None, player) else self.opponent

    def learned_from(self, groups: Sequence[TrajectoryGroup]) -> Sequence[TrajectoryGroup]:
        """Return the group of the player that the model is, with every episode of the task.

        In an episode that ended before this player acted, its trajectory is a copy without turns: the episode is accounted for,
        and nothing is learned from it.
        """
        learning = self.learning_player(groups[0].members[0].group)
        if learning is None or not any(member.player for group in groups for member in group.members):
            return groups
        of_learner: dict[int, Trajectory] = {}
        for trajectory in (member for group in groups for member in group.members):
            if trajectory.player == learning:
                of_learner[trajectory.member] = trajectory
            else:
                empty = msgspec.structs.replace(trajectory, player=learning, turns=(), segments=(), policy="")
                of_learner.setdefault(trajectory.member, empty)
        return [TrajectoryGroup(groups[0].task, tuple(of_learner[number] for number in sorted(of_learner)))]

    def metrics(self, step: int, groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
        """The model's mean reward against the opponent, and the version of the opponent's weights."""
        opposed = [
            trajectory
            for group in groups
            for trajectory in group.members
            if trajectory.player and self.learning_player(trajectory.group) is not None
        ]
        rewards = [member.reward for member in opposed if member.reward is not None and member.turns]
        numbers = {"opponent/episodes": float(len(rewards))}
        if rewards:
            numbers["opponent/reward"] = float(np.mean(rewards))
        if isinstance(self.opponent, PastModel):
            numbers["opponent/version"] = float(self.opponent.version_at(step))
        return numbers

    async def follow(self, weights: PolicyWeights, version: int) -> None:
        if isinstance(self.opponent, PastModel):
            await self.opponent.follow(weights, version)

    async def close(self) -> None:
        close = getattr(self.opponent, "close", None)
        if close is not None:
            await close()


class PastModel:
    """The model with the weights of an earlier step."""

    name = "past model"

    def __init__(self, policy: Policy, engine: Engine, kept: PublishedWeights, settings: OpponentSettings, seed: int) -> None:
        self._policy = policy
        self.engine = engine
        self._kept = kept
        self._settings = settings
        self._seed = seed
        self.version = -1
        """The version of the weights that play; -1 before the first."""
        self.privileged = is_privileged(policy)

    async def close(self) -> None:
        """Close the engine."""
        await self.engine.close()

    async def act(self, conversation: Conversation) -> Completion:
        completion = await next_completion(self._policy, conversation)
        return msgspec.structs.replace(completion, tokens=None, notes=())  # nothing that could be learned from

    async def follow(self, weights: PolicyWeights, version: int) -> None:
        """Keep the weights of ``version`` if their turn has come, and load the opponent of this version."""
        if version % self._settings.every == 0:
            await asyncio.to_thread(self._kept.write, weights, version)
        if (wanted := self.version_at(version)) != self.version:
            await self.engine.update_weights(str(self._kept.path_of(wanted)), wanted)
            self.version = wanted

    def version_at(self, step: int) -> int:
        """The version that plays after ``step`` steps, drawn from those that the run has kept until then."""
        newest = step - step % self._settings.every
        kept = range(newest, -1, -self._settings.every)[: self._settings.pool]
        return kept[int(derive(self._seed, "opponent weights", newest).integers(len(kept)))]
