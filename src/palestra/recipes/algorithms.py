"""Options of the mathematics of training: advantages, losses, horizons, groups, and the shaping of rewards."""

from typing import Annotated, Literal, NamedTuple

import msgspec

from palestra.errors import UsageError
from palestra.foundation.references import Hook, Role

__all__ = [
    "ADVANTAGE",
    "HORIZON",
    "LOSS",
    "AdvantageConfig",
    "Anneal",
    "Cut",
    "EntropyTarget",
    "HorizonConfig",
    "LossConfig",
    "Overlong",
    "PartialGroups",
    "Shaping",
    "checked_buffer",
]

ADVANTAGE = Role(
    "advantage.method",
    ("groups", "config"),
    {
        name: f"palestra.training.algorithms.advantage:{name}"
        for name in (
            "reinforce",
            "rebn",
            "rae",
            "grpo",
            "dr_grpo",
            "rloo",
            "reinforce_pp",
            "reinforce_pp_group",
            "ppo_turn",
            "ppo_token",
            "gigpo",
        )
    },
)
LOSS = Role(
    "learner.loss.kind",
    ("new", "ratio", "tokens", "config"),
    {
        name: f"palestra.training.algorithms.loss:{function}"
        for name, function in {"clip": "clip", "gspo": "clip", "cispo": "cispo", "plain": "plain"}.items()
    },
)
HORIZON = Role(
    "horizon",
    ("step", "outcomes"),
    {
        name: f"palestra.training.algorithms.horizon:{schedule}"
        for name, schedule in {
            "fixed": "Fixed",
            "stepwise": "Stepwise",
            "linear": "Linear",
            "success_gated": "SuccessGated",
        }.items()
    },
)
_Fraction = Annotated[float, msgspec.Meta(ge=0.0)]


class AdvantageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The estimator and its options."""

    method: Hook = "rebn"
    """``reinforce``, ``rebn``, ``rae``, ``grpo``, ``dr_grpo``, ``rloo``, ``reinforce_pp``, ``reinforce_pp_group``,
    ``ppo_turn``, ``ppo_token``, ``gigpo``, or your own as ``module:name``."""
    discount: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 1.0
    """γ, per turn."""
    gae_lambda: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.95
    """λ of the PPO methods: per turn with a turn critic, per token with a token critic."""
    epsilon: Annotated[float, msgspec.Meta(ge=0.0)] = 1e-6
    """Added to a group's standard deviation (GRPO, GiGPO)."""
    kl_in_reward: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """Coefficient of the KL that is subtracted from the reward of every sampled token."""
    kl: Literal["k1", "k2", "k3"] = "k1"
    """Estimator of that KL; ``learner.loss.kl`` explains the choice."""
    anchor_weight: Annotated[float, msgspec.Meta(ge=0.0)] = 1.0
    """GiGPO: the weight w of the comparison between turns that saw the same observation."""
    bootstrap: bool = True
    """Whether the PPO methods add the critic's value after the last turn of a truncated episode. Set it to false if the turn
    limit is a rule of the game: otherwise running out of turns may pay more than winning."""
    whiten: bool = True
    """Whether the PPO methods whiten their advantages over all sampled tokens of the batch. Value targets are never
    whitened."""

    def __post_init__(self) -> None:
        ADVANTAGE.check(self.method)


class LossConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The objective of the policy, its clipping, and the terms that are added to it."""

    kind: Hook = "clip"
    """``clip`` clips the ratio of the token (PPO, GRPO), ``gspo`` that of the segment. ``cispo`` multiplies A·log π by the
    clipped ratio, as a constant weight. ``plain`` is A·log π: the plain policy gradient, and with A = 1 supervised learning. Or
    your own as ``module:name``."""
    clip_low: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.2
    """How far below 1 the ratio may fall."""
    clip_high: _Fraction = 0.2
    """How far above 1 the ratio may rise. DAPO takes 0.28."""
    dual_clip: Annotated[float, msgspec.Meta(gt=1.0)] | None = None
    """If set, the loss of a token with a negative advantage is at most −A·dual_clip. Off by default."""
    old: Literal["recomputed", "sampled"] = "recomputed"
    """Which log-probs are in the denominator of the ratio: those that the learner computes before the update, or those
    recorded at sampling."""
    importance: Literal["truncate", "mask", "none"] = "truncate"
    """What happens to the importance weight π_old/μ, where μ is the sampling policy. ``truncate``: it is capped at
    ``importance_cap``. ``mask``: tokens above the cap, or below ``importance_floor``, are left out. ``none``: it is not
    used."""
    importance_cap: Annotated[float, msgspec.Meta(gt=0.0)] = 2.0
    """The largest importance weight."""
    importance_floor: _Fraction = 0.0
    """With ``mask``: the smallest importance weight. IcePop masks on both sides, for example outside [0.5, 5]."""
    importance_level: Literal["token", "segment", "segment_mean"] = "token"
    """Whose weight it is. ``token``: its own. ``segment``: the product over all sampled tokens of the segment.
    ``segment_mean``: their geometric mean. A mask on the level of segments leaves out whole segments."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of KL(π‖reference). In a loss k1 has a gradient that is zero on average: use k2 or k3 there, k1 in a reward."""
    kl_coefficient: _Fraction = 0.0
    """Weight of the KL in the loss."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: _Fraction = 0.5
    """Weight of the critic's loss."""
    value_clip: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    """PPO's value clipping: how far a value may move from the old value before its loss is clipped."""
    aggregation: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    """``token_mean``: every token has the same weight. ``sequence_mean``: every episode has the same weight. ``constant``: the
    sum is divided by episodes · ``constant``, as in Dr. GRPO."""
    constant: Annotated[int, msgspec.Meta(ge=1)] = 1024
    """For ``aggregation = "constant"``: the divisor per episode, usually the longest response in tokens."""

    def __post_init__(self) -> None:
        LOSS.check(self.kind)
        if self.importance_floor and self.importance != "mask":
            raise ValueError('importance_floor is for importance = "mask"; "truncate" has only a cap')
        if self.importance_floor > self.importance_cap:
            raise ValueError(f"importance_floor = {self.importance_floor} is above importance_cap = {self.importance_cap}")


class Anneal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A coefficient that goes linearly from ``start`` to ``stop`` over ``steps`` steps, and stays at ``stop``."""

    start: float
    stop: float = 0.0
    steps: Annotated[int, msgspec.Meta(ge=1)] = 100

    def at(self, step: int) -> float:
        """The coefficient of ``step``."""
        return self.start + (self.stop - self.start) * min(step / self.steps, 1.0)


class EntropyTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entropy coefficient that follows the entropy of the policy."""

    target: Annotated[float, msgspec.Meta(gt=0.0)]
    """The entropy to keep, in nats per token."""
    start: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """The coefficient of the first step."""
    rate: Annotated[float, msgspec.Meta(gt=0.0)] = 0.005
    """How much the coefficient rises after a step whose entropy was below the target, and falls after one above it."""
    largest: Annotated[float, msgspec.Meta(gt=0.0)] = 0.1
    """The largest coefficient. The smallest is 0."""

    def after(self, coefficient: float, entropy: float) -> float:
        """The coefficient of the next step."""
        moved = coefficient + (self.rate if entropy < self.target else -self.rate)
        return min(max(moved, 0.0), self.largest)


class PartialGroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to a group in which an episode has no result, because it failed or its trajectory is invalid."""

    rule: Literal["at_least", "drop"] = "at_least"
    """``at_least``: use the members that finished, if there are at least ``minimum`` of them. ``drop``: drop the group."""
    minimum: Annotated[int, msgspec.Meta(ge=1)] = 2
    """For ``at_least``: how many members must have finished."""
    keep_constant: bool = True
    """Keep groups whose members all have the same reward. DAPO drops them: a method that compares members learns nothing from
    them."""
    refill: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Dynamic sampling: groups that would be dropped by the rules above are replaced by new groups before the step begins. At
    most ``refill`` · ``play.tasks`` groups per step are replaced, on average since the start of the run; then steps take what
    there is. 0 replaces none."""


class HorizonConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule of every environment."""

    default: Hook
    """``fixed``, ``stepwise``, ``linear``, ``success_gated``, or your own schedule as ``module:name``."""
    environments: dict[str, Hook] = {}
    """Other schedules, by environment id."""

    def __post_init__(self) -> None:
        for schedule in (self.default, *self.environments.values()):
            HORIZON.check(schedule)


Cut = Literal["as_invalid", "mask"] | float


def checked_buffer(buffer: int, limit: int) -> int:
    """Return ``buffer``, or raise ``UsageError`` if it is longer than a turn of ``limit`` tokens."""
    if not 0 < buffer <= limit:
        raise UsageError(f"overlong.buffer must lie in 1..{limit} (max_tokens), got {buffer}")
    return buffer


class Overlong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DAPO's soft penalty on long turns."""

    buffer: Annotated[float, msgspec.Meta(gt=0.0)]
    """The penalty begins this many tokens below ``play.max_tokens`` and grows linearly up to it. A number below 1 is a share of
    ``play.max_tokens``; DAPO takes 0.2."""
    weight: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0
    """The penalty of a turn that reaches ``play.max_tokens``."""

    def tokens(self, limit: int) -> int:
        """The buffer in tokens, where ``limit`` is ``play.max_tokens``.

        Raises:
            UsageError: The buffer is longer than a turn.
        """
        return checked_buffer(max(1, round(self.buffer * limit)) if self.buffer < 1 else int(self.buffer), limit)


class Shaping(NamedTuple):
    """How rewards are shaped."""

    cut: Cut = "as_invalid"
    overlong: Overlong | None = None
    limit: int = 1
    """``play.max_tokens``."""
