"""From groups of turn rewards to advantages. NumPy, pure functions, no torch.

Notation: an episode has turns k = 1..K with rewards r_k and R = Σ r_k. The discount γ is per TURN: inside a turn nothing is
discounted, however many tokens it has, and environment tokens do not exist here, so credit crosses them untouched.

==================== ==============================================================================================
reinforce            A_k = G_k, with G_k = r_k + γ·G_{k+1}
rebn                 (G_k − mean G) / std G over all turns of all episodes of the batch
grpo                 (R − mean) / (std + ε) inside the group, the same for all turns
dr_grpo              R − mean inside the group (aggregate the loss by a constant)
rloo                 R − mean of the OTHERS of the group
rae                  R − mean over all OTHER episodes of the batch with the same environment and player, for self-play
reinforce_pp         return-to-go of every token, KL in the reward, then whitened over all sampled tokens of the batch
reinforce_pp_group   R − mean inside the group, then whitened over all sampled tokens of the batch
ppo_turn             generalized advantage estimation over turns; V is read before the turn's first token
ppo_token            generalized advantage estimation over sampled tokens; γ acts where a turn ends, λ at every token
gigpo                grpo + w · (G_k − mean) / (std + ε) among the turns of the group that saw the same observation
==================== ==============================================================================================

Tests pin these conventions. Every standard deviation is biased (divides by n) and computed in two passes. Without a comparison
(one member, or no variance) the advantage is 0: not R, not NaN. A truncated episode is bootstrapped with the critic's final
value, if there is a critic; a terminated one never is. The groups are those of the GLOBAL batch: call ``advantages`` once,
before the batch is divided among ranks or micro-batches.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from palestra.errors import UsageError
from palestra.recipes.algorithms import ADVANTAGE, AdvantageConfig
from palestra.training.algorithms.groups import Array, GroupMember, Groups

__all__ = [
    "Credit",
    "Credits",
    "Estimator",
    "advantages",
    "turn_returns",
    "whiten",
]

Estimator = Callable[[Groups, "AdvantageConfig"], "Credits"]
"""A pure function from the groups of a step to credits, aligned with the groups."""

# Below this share of the values' size a spread is rounding, not signal; dividing by it would turn noise into advantages of ±1.
_RELATIVE_ZERO = 1e-9


@dataclass(frozen=True, eq=False)
class Credit:
    """The advantages of one episode, per turn (K) or per sampled token (T), and the critic's targets (T, NaN where none)."""

    episode: GroupMember
    advantages: Array
    per: Literal["turn", "token"] = "turn"
    targets: Array | None = None

    def per_token(self) -> Array:
        """The advantage of every sampled token (T)."""
        return np.repeat(self.advantages, self.episode.lengths) if self.per == "turn" else self.advantages


Credits = list[list[Credit | None]]
"""Aligned with the groups: ``None`` where the member had failed."""


def advantages(groups: Groups, config: AdvantageConfig) -> Credits:
    """Return the advantages of every member of every group under ``config``."""
    method: Callable[[Groups, AdvantageConfig], object] = ADVANTAGE.load(config.method)
    return _checked(method(groups, config), groups)


def _checked(returned: object, groups: Groups) -> Credits:
    """Return what a method ``returned``, or raise ``UsageError`` if it is not aligned with ``groups`` and finite."""
    rows = list(returned) if isinstance(returned, list | tuple) else []
    if [len(row) if isinstance(row, list | tuple) else None for row in rows] != [len(group) for group in groups]:
        got = f"a {type(returned).__name__}" + (f" of {len(rows)}, the first a {type(rows[0]).__name__}" if rows else "")
        raise UsageError(f"advantage.method must return a row per group, with an entry per member; got {got}")
    for row, group in zip(rows, groups, strict=True):
        for credit, member in zip(row, group, strict=True):
            if (credit is None) != (member is None) or not isinstance(credit, Credit | None):
                raise UsageError(
                    "advantage.method must return a palestra.training.Credit for every member, and None where the member is "
                    f"None; got {type(credit).__name__} for a member that is {'None' if member is None else 'an episode'}"
                )
            if credit is not None and member is not None:
                _check_fits(credit, member)
    return [list(row) for row in rows]


def _check_fits(credit: Credit, member: GroupMember) -> None:
    turns, tokens = len(member.rewards), member.tokens
    values = np.asarray(credit.advantages)
    if credit.per not in ("turn", "token"):
        raise UsageError(f'advantage.method returned a Credit per {credit.per!r}: it is per="turn" or per="token"')
    expected = turns if credit.per == "turn" else tokens
    if values.shape != (expected,) or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise UsageError(
            f"advantage.method returned advantages of shape {values.shape} per {credit.per} for a member with {turns} turns "
            f"and {tokens} sampled tokens; they must be finite numbers, one per {credit.per}"
        )
    if credit.targets is not None and np.shape(credit.targets) != (tokens,):
        raise UsageError(f"advantage.method returned {np.shape(credit.targets)} targets for {tokens} sampled tokens")


# ------------------------------------------------------------------------------------------------------------ the arithmetic


def turn_returns(rewards: Array, discount: float, bootstrap: float = 0.0) -> Array:
    """G_k = r_k + γ·G_{k+1}, where G_{K+1} is ``bootstrap``."""
    returns = np.empty(len(rewards), dtype=np.float64)
    following = bootstrap
    for k in range(len(rewards) - 1, -1, -1):
        following = returns[k] = rewards[k] + discount * following
    return returns


def whiten(values: Array, weights: Array | None = None) -> Array:
    """(x − mean) / std with the biased, two-pass standard deviation; zeros if there is no spread. Weights count repetitions."""
    weights = np.ones(len(values)) if weights is None else weights.astype(np.float64)
    total = weights.sum()
    if total == 0:
        return np.zeros_like(values)
    centered = values - (weights * values).sum() / total
    spread = np.sqrt((weights * centered**2).sum() / total)
    return np.zeros_like(values) if _is_zero(spread, values) else centered / spread


def _standardize(values: Array, epsilon: float) -> Array:
    spread = values.std()
    return np.zeros_like(values) if _is_zero(spread, values) else (values - values.mean()) / (spread + epsilon)


def _is_zero(spread: float, values: Array) -> bool:
    return bool(spread <= _RELATIVE_ZERO * np.abs(values).max(initial=0.0))


def _turn_rewards(episode: GroupMember, kl_coefficient: float) -> Array:
    """The turns' rewards, less the KL that the turn's tokens cost."""
    if not kl_coefficient:
        return episode.rewards
    turns = np.repeat(np.arange(len(episode.lengths)), episode.lengths)
    return episode.rewards - kl_coefficient * np.bincount(turns, _kl(episode), minlength=len(episode.lengths))


def _kl(episode: GroupMember) -> Array:
    if episode.kl is None:
        raise ValueError("kl_in_reward needs the KL of every sampled token: compute it against the reference first")
    return episode.kl


def _values(episode: GroupMember) -> Array:
    if episode.values is None:
        raise ValueError("the PPO methods need the critic's value of every sampled token: compute them first")
    return episode.values


def _returns(episode: GroupMember, config: AdvantageConfig) -> Array:
    return turn_returns(_turn_rewards(episode, config.kl_in_reward), config.discount, episode.bootstrap)


def _starts(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The index of each turn's first token among the sampled ones."""
    return np.cumsum(lengths) - lengths


# ------------------------------------------------------------------------------------------------- one episode at a time


def _each(groups: Groups, score: Callable[[GroupMember], Credit]) -> Credits:
    return [[None if member is None else score(member) for member in group] for group in groups]


def _members(credits: Credits) -> Iterator[tuple[int, int, Credit]]:
    for g, group in enumerate(credits):
        for m, credit in enumerate(group):
            if credit is not None:
                yield g, m, credit


def _whiten_all(credits: Credits, *, by_turn: bool = False) -> Credits:
    """Whiten over the batch: every sampled token counts once, or with ``by_turn`` every turn does."""
    members = list(_members(credits))
    if not members:
        return credits
    weights = [_weights(credit, by_turn) for _, _, credit in members]
    flat = whiten(np.concatenate([credit.advantages for _, _, credit in members]), np.concatenate(weights))
    out: Credits = [list(group) for group in credits]
    start = 0
    for g, m, credit in members:
        stop = start + len(credit.advantages)
        out[g][m] = replace(credit, advantages=flat[start:stop])
        start = stop
    return out


def _weights(credit: Credit, by_turn: bool) -> Array:
    if by_turn or credit.per == "token":
        return np.ones(len(credit.advantages))
    return credit.episode.lengths.astype(np.float64)


def reinforce(groups: Groups, config: AdvantageConfig) -> Credits:
    return _each(groups, lambda episode: Credit(episode, _returns(episode, config)))


def rebn(groups: Groups, config: AdvantageConfig) -> Credits:
    return _whiten_all(reinforce(groups, config), by_turn=True)


def rae(groups: Groups, config: AdvantageConfig) -> Credits:
    """Role-conditioned: in most games one player wins more often than the other, whatever the model does.

    The baseline is the mean of this batch. The published method keeps a running mean of earlier steps instead.
    """

    def total(episode: GroupMember) -> float:
        return float(_turn_rewards(episode, config.kl_in_reward).sum())

    totals: dict[tuple[str, str], list[float]] = {}
    for episode in (member for group in groups for member in group if member is not None):
        totals.setdefault(episode.role, []).append(total(episode))

    def score(episode: GroupMember) -> Credit:
        same = totals[episode.role]
        others = (sum(same) - total(episode)) / (len(same) - 1) if len(same) > 1 else total(episode)
        return Credit(episode, np.full(len(episode.rewards), total(episode) - others))

    return _each(groups, score)


def reinforce_pp(groups: Groups, config: AdvantageConfig) -> Credits:
    def score(episode: GroupMember) -> Credit:
        # The reward is earned by the turn's last token and KL by each: the return of a token is its turn's return, less the KL
        # that the turn's earlier tokens have already paid.
        returns = np.repeat(_returns(episode, config), episode.lengths)
        if config.kl_in_reward:
            paid = np.cumsum(_kl(episode)) - _kl(episode)
            before_turn = np.repeat(np.append(paid, 0.0)[_starts(episode.lengths)], episode.lengths)
            returns = returns + config.kl_in_reward * (paid - before_turn)
        return Credit(episode, returns, per="token")

    return _whiten_all(_each(groups, score))


# ----------------------------------------------------------------------------------------------------- against the group


def _against_group(groups: Groups, config: AdvantageConfig, compare: Callable[[Array], Array]) -> Credits:
    """Compare the episodes' total rewards inside each group; all turns of an episode share the result."""
    credits: Credits = []
    for group in groups:
        present = [member for member in group if member is not None]
        totals = np.array([_turn_rewards(member, config.kl_in_reward).sum() for member in present])
        # Nothing to compare with is exactly zero: a later whitening must not blow rounding up.
        alike = len(present) < 2 or _is_zero(totals.std(), totals)
        scores = iter(np.zeros(len(present)) if alike else compare(totals))
        credits.append([None if m is None else Credit(m, np.full(len(m.rewards), next(scores))) for m in group])
    return credits


def grpo(groups: Groups, config: AdvantageConfig) -> Credits:
    return _against_group(groups, config, lambda totals: _standardize(totals, config.epsilon))


def dr_grpo(groups: Groups, config: AdvantageConfig) -> Credits:
    return _against_group(groups, config, lambda totals: totals - totals.mean())


def rloo(groups: Groups, config: AdvantageConfig) -> Credits:
    return _against_group(groups, config, lambda totals: totals - (totals.sum() - totals) / (len(totals) - 1))


def reinforce_pp_group(groups: Groups, config: AdvantageConfig) -> Credits:
    return _whiten_all(dr_grpo(groups, config))


def gigpo(groups: Groups, config: AdvantageConfig) -> Credits:
    credits = grpo(groups, config)
    for group in credits:
        members = [(i, credit) for i, credit in enumerate(group) if credit is not None]
        returns = {i: _returns(credit.episode, config) for i, credit in members}
        steps = {i: np.zeros(len(credit.advantages)) for i, credit in members}
        for turns in _same_anchor([(i, credit.episode) for i, credit in members]):
            scores = _standardize(np.array([returns[i][k] for i, k in turns]), config.epsilon)
            for (i, k), value in zip(turns, scores, strict=True):
                steps[i][k] = value
        for i, credit in members:
            group[i] = replace(credit, advantages=credit.advantages + config.anchor_weight * steps[i])
    return credits


def _same_anchor(members: Sequence[tuple[int, GroupMember]]) -> list[list[tuple[int, int]]]:
    """(member, turn) pairs of one group that saw the same observation, for every observation seen more than once."""
    seen: dict[Hashable, list[tuple[int, int]]] = {}
    for i, episode in members:
        if len(episode.anchors) != len(episode.rewards):
            raise ValueError(f"GiGPO needs one anchor per turn: {len(episode.anchors)} for {len(episode.rewards)} turns")
        for k, anchor in enumerate(episode.anchors):
            seen.setdefault(anchor, []).append((i, k))
    return [turns for turns in seen.values() if len(turns) > 1]


# -------------------------------------------------------------------------------------------------------- with a critic


class _Spoken(NamedTuple):
    """The turns with sampled tokens. A turn without any has no token that could carry a value or a reward."""

    turns: npt.NDArray[np.int64]
    rewards: Array
    """The turn's own, and those of the silent turns that follow it, discounted."""
    discounts: Array
    """From this turn to the next that spoke, or to the end."""


def _spoken(episode: GroupMember, rewards: Array, discount: float) -> _Spoken:
    turns = np.flatnonzero(episode.lengths)
    ends = np.append(turns[1:], len(rewards))[: len(turns)]
    folded = [turn_returns(rewards[k:end], discount)[0] for k, end in zip(turns, ends, strict=True)]
    return _Spoken(turns, np.array(folded), discount ** (ends - turns).astype(np.float64))


def ppo_turn(groups: Groups, config: AdvantageConfig) -> Credits:
    def score(episode: GroupMember) -> Credit:
        spoken = _spoken(episode, _turn_rewards(episode, config.kl_in_reward), config.discount)
        firsts = _starts(episode.lengths)[spoken.turns]
        values = _values(episode)[firsts]
        estimate = _generalized(spoken.rewards, values, _after(episode, config), spoken.discounts, config.gae_lambda)
        by_turn = np.zeros(len(episode.rewards))
        by_turn[spoken.turns] = estimate
        targets = np.full(episode.tokens, np.nan)
        targets[firsts] = estimate + values
        return Credit(episode, by_turn, targets=targets)

    credits = _each(groups, score)
    return _whiten_all(credits) if config.whiten else credits


def ppo_token(groups: Groups, config: AdvantageConfig) -> Credits:
    def score(episode: GroupMember) -> Credit:
        spoken = _spoken(episode, episode.rewards, config.discount)
        lasts = np.cumsum(episode.lengths)[spoken.turns] - 1
        rewards = -config.kl_in_reward * _kl(episode) if config.kl_in_reward else np.zeros(episode.tokens)
        rewards[lasts] += spoken.rewards
        discounts = np.ones(episode.tokens)
        discounts[lasts] = spoken.discounts
        values = _values(episode)
        estimate = _generalized(rewards, values, _after(episode, config), discounts, config.gae_lambda)
        return Credit(episode, estimate, per="token", targets=estimate + values)

    credits = _each(groups, score)
    return _whiten_all(credits) if config.whiten else credits


def _after(episode: GroupMember, config: AdvantageConfig) -> float:
    """The value of what comes after the last turn."""
    return episode.bootstrap if config.bootstrap else 0.0


def _generalized(rewards: Array, values: Array, bootstrap: float, discounts: Array, trace: float) -> Array:
    """A_t = δ_t + γ_t·λ·A_{t+1}, with δ_t = r_t + γ_t·V_{t+1} − V_t and V after the last = ``bootstrap``."""
    deltas: Array = rewards + discounts * np.append(values[1:], bootstrap)[: len(values)] - values
    estimate = np.empty_like(deltas)
    following = 0.0
    for t in range(len(deltas) - 1, -1, -1):
        following = estimate[t] = deltas[t] + discounts[t] * trace * following
    return estimate
