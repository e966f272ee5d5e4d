"""Can a set of tasks teach a model? Answered from a few hundred of its episodes, before a GPU trains on them.

Methods that compare the members of a group (GRPO and its relatives) learn nothing from a group whose members all have the same
reward. So the share of groups *with a spread* is what a set can teach, and it is an estimate like every other: it has an
interval over tasks. The verdict follows from it, from the room that is left below the ceiling, and from a test of whether the
rewards depend on the actions at all.

The verdict is about signal, not about success: a set with a spread can still fail to teach a model that has too little
capacity, or whose learning rate is wrong. A reward that depends on a hidden coin, and on actions only through it, has a spread
and teaches nothing; no statistic of rewards tells it from luck on a hard task.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.errors import UsageError
from palestra.evaluation.comparison import visible_difference
from palestra.evaluation.report import EpisodeScore, judged
from palestra.foundation.seeding import derive
from palestra.foundation.statistics import Distribution, Estimate, Score, distribution, mean_interval, pass_at_k, score_bounds
from palestra.registry import family_of

__all__ = ["EpisodeKey", "Probe", "ProbeAim", "Verdict", "learnability", "spread_share"]

EpisodeKey = tuple[int, int, str]
Verdict = Literal["yes", "no", "unclear"]
HELD_OUT = (25, 50, 100, 200, 500, 1000)
"""Numbers of held-out tasks whose smallest visible effect a probe lists."""
PERMUTATIONS = 1000
_LEVEL = 0.95


class ProbeAim(NamedTuple):
    """The training that a probe is asked about."""

    groups: int = 32
    """Groups per step."""
    held_out: int = 200
    """Held-out tasks, each played once before and once after training."""


class Probe(msgspec.Struct, frozen=True):
    """What a set of tasks can teach one model."""

    policy: str
    envs: tuple[str, ...]
    verdict: Verdict
    """``yes``, ``no``, or ``unclear`` if more tasks or fewer failures are needed to tell."""
    reasons: tuple[str, ...]
    tasks: int
    """Tasks with at least two scored episodes: the groups of the probe."""
    group_size: int
    coverage: float
    """Share of the planned episodes that have a score."""
    score: Estimate
    """Mean reward of the model."""
    floor: Estimate | None
    """Mean reward of random actions on the same tasks; ``None`` if the environment offers none."""
    ceiling: Estimate | None
    """Mean reward of the oracle on the same tasks; ``None`` if the environment has none."""
    pass_at: dict[str, Estimate]
    """k → chance that at least one of k episodes solves a task; empty if the environment reports no success."""
    solved_shares: dict[str, int]
    """Solved episodes of a task → tasks. Empty if the environment reports no success."""
    flat: Estimate
    """Share of groups with no variance: all members have the same reward."""
    flat_solved: float
    """Share of groups in which every member solved the task, or got the highest reward of the probe."""
    spread_by_size: dict[str, Estimate]
    """Group size → share of groups of this size with a spread."""
    informative: Estimate
    """Groups with a spread per training step."""
    groups: int
    """Groups per step that ``informative`` is for."""
    visible: dict[str, float]
    """Held-out tasks → smallest gain that a comparison of before and after detects with a probability of 80 %."""
    held_out: int
    noise: float
    """Share of the spread that members with the same actions show. 0 if rewards follow from actions."""
    turns: Distribution | None
    tokens: Distribution | None
    """Output tokens per episode; ``None`` if the policy reports none."""
    about: dict[str, str] = {}
    privileged: bool = False
    schema: int = 1


class _Group(NamedTuple):
    path: tuple[str, ...]
    task: bytes
    rewards: tuple[float, ...]
    solved: tuple[bool, ...]
    """Empty if the environment reports no success."""
    actions: tuple[bytes, ...]


def learnability(
    episodes: Sequence[EpisodeScore],
    actions: Mapping[EpisodeKey, bytes],
    *,
    issued: int,
    aim: ProbeAim = ProbeAim(),  # noqa: B008 - an immutable value
    floor: Estimate | None = None,
    ceiling: Estimate | None = None,
) -> Probe:
    """Return what ``episodes`` of one policy, several per task, say about their tasks.

    ``actions`` maps group, member and player of each episode to a digest of its actions. ``issued`` is the number of planned
    episodes; ``floor`` and ``ceiling`` are the scores of random actions and of the oracle on the same tasks. Raises
    ``UsageError`` if no task has two episodes with a score.
    """
    scored = [episode for episode in judged(episodes) if episode.reward is not None]
    groups = _groups(scored, actions)
    if not groups:
        raise UsageError("no task has two episodes with a score: look at the report, correct the cause, and probe again")
    size = max(len(group.rewards) for group in groups)
    every = [Score(group.path, group.task, reward) for group in groups for reward in group.rewards]
    flat = _share((group, float(len(set(group.rewards)) == 1)) for group in groups)
    visible = {n: _visible(groups, n) for n in sorted({*HELD_OUT, aim.held_out})}
    probe = Probe(
        policy=max((episode.policy for episode in scored), default=""),
        envs=tuple(sorted({episode.env for episode in scored})),
        verdict="unclear",
        reasons=(),
        tasks=len(groups),
        group_size=size,
        coverage=len(scored) / max(issued, 1),
        score=mean_interval(every, bounds=score_bounds(every)),
        floor=floor,
        ceiling=ceiling,
        pass_at=_pass_at(groups, size),
        solved_shares=_solved_shares(groups),
        flat=flat,
        flat_solved=_flat_solved(groups),
        spread_by_size=_spread_by_size(groups, size),
        informative=_scaled(flat, aim.groups),
        groups=aim.groups,
        visible={str(n): value for n, value in visible.items()},
        held_out=aim.held_out,
        noise=_noise(groups),
        turns=distribution([episode.turns for episode in scored]),
        tokens=distribution([episode.tokens for episode in scored]) if any(episode.tokens for episode in scored) else None,
        privileged=any(episode.privileged for episode in scored),
    )
    verdict, reasons = _judge(probe, groups)
    return msgspec.structs.replace(probe, verdict=verdict, reasons=reasons)


def _groups(scored: Iterable[EpisodeScore], actions: Mapping[EpisodeKey, bytes]) -> list[_Group]:
    together: dict[tuple[str, bytes], list[EpisodeScore]] = defaultdict(list)
    for episode in scored:
        together[episode.env, episode.task].append(episode)
    return [
        _Group(
            (family_of(env), env),
            task,
            tuple(float(episode.reward or 0.0) for episode in members),
            tuple(bool(episode.success) for episode in members if episode.success is not None),
            tuple(actions.get((episode.group, episode.member, episode.player), b"") for episode in members),
        )
        for (env, task), members in sorted(together.items())
        if len(members) > 1
    ]


# ------------------------------------------------------------------------------------------------------------- figures


def _share(groups: Iterable[tuple[_Group, float]]) -> Estimate:
    return mean_interval([Score(group.path, group.task, value) for group, value in groups])


def _scaled(flat: Estimate, groups: int) -> Estimate:
    """Return the groups with a spread among ``groups``."""
    return msgspec.structs.replace(
        flat, mean=(1.0 - flat.mean) * groups, low=(1.0 - flat.high) * groups, high=(1.0 - flat.low) * groups
    )


def spread_share(rewards: Sequence[float], size: int) -> float:
    """Return the chance that ``size`` of ``rewards``, drawn without replacement, are not all the same."""
    same = sum(math.comb(count, size) for count in Counter(rewards).values())
    return 1.0 - same / math.comb(len(rewards), size)


def _powers(size: int) -> list[int]:
    return sorted({2**power for power in range(1, size.bit_length()) if 2**power <= size} | {size})


def _spread_by_size(groups: Sequence[_Group], size: int) -> dict[str, Estimate]:
    return {
        str(k): _share((group, spread_share(group.rewards, k)) for group in groups if len(group.rewards) >= k)
        for k in _powers(size)
    }


def _pass_at(groups: Sequence[_Group], size: int) -> dict[str, Estimate]:
    if not all(group.solved for group in groups):
        return {}
    return {
        str(k): _share(
            (group, pass_at_k(len(group.solved), sum(group.solved), k)) for group in groups if len(group.solved) >= k
        )
        for k in [1, *_powers(size)]
    }


def _solved_shares(groups: Sequence[_Group]) -> dict[str, int]:
    counts = Counter(sum(group.solved) for group in groups if group.solved)
    return {str(solved): counts[solved] for solved in sorted(counts)}


def _flat_solved(groups: Sequence[_Group]) -> float:
    values = [reward for group in groups for reward in group.rewards]
    top, varied = max(values), min(values) < max(values)
    at_top = [
        all(group.solved) if group.solved else varied and min(group.rewards) == top
        for group in groups
        if len(set(group.rewards)) == 1
    ]
    return sum(at_top) / len(groups)


def _within(groups: Sequence[_Group]) -> float:
    """Return the variance between the episodes of one task, averaged over tasks."""
    return float(np.mean([np.var(group.rewards, ddof=1) for group in groups]))


def _visible(groups: Sequence[_Group], tasks: int) -> float:
    """Return the smallest gain that shows on ``tasks`` tasks, each played once before and once after.

    It is the least that can be hoped for: the gain is taken to be the same on every task, so that only chance within tasks
    hides it.
    """
    values = [reward for group in groups for reward in group.rewards]
    low, high = score_bounds([Score((), b"", value) for value in values])
    error = math.sqrt(2.0 * _within(groups) / tasks) or (high - low) / tasks
    return min(visible_difference(error, tasks - 1.0, tasks), high - low)


# --------------------------------------------------------------------------------------------------- actions and rewards


def _noise(groups: Sequence[_Group]) -> float:
    """Return the variance among members with the same actions, as a share of that among all members."""
    between = inside = 0.0
    freedom = 0
    for group in groups:
        for rewards in _by_actions(group).values():
            inside += float(np.var(rewards)) * len(rewards)
            freedom += len(rewards) - 1
        between += float(np.var(group.rewards, ddof=1))
    if not freedom or not between:
        return 0.0
    return min(inside / freedom / (between / len(groups)), 1.0)


def _by_actions(group: _Group) -> dict[bytes, list[float]]:
    rewards: dict[bytes, list[float]] = defaultdict(list)
    for action, reward in zip(group.actions, group.rewards, strict=True):
        rewards[action].append(reward)
    return rewards


def _depends_on_actions(groups: Sequence[_Group]) -> bool:
    """Whether members with the same actions have more similar rewards than members of the group at large (permutation test)."""
    rng = derive(0, "actions and rewards")
    rewards = np.concatenate([group.rewards for group in groups])
    group_numbers = np.repeat(np.arange(len(groups)), [len(group.rewards) for group in groups])
    names = {key: number for number, key in enumerate(dict.fromkeys(_members(groups)))}
    alike = np.array([names[key] for key in _members(groups)])
    sizes = np.bincount(alike)

    def explained(values: npt.NDArray[np.float64]) -> float:
        """Return the sum of squares between members with different actions; terms that no permutation changes are left out."""
        return float((np.bincount(alike, values) ** 2 / sizes).sum())

    observed = explained(rewards) * (1.0 - 1e-12)
    # Sorted by group and then by a random number, the rewards are permuted within groups.
    reached = sum(
        explained(rewards[np.argsort(group_numbers + rng.random(len(rewards)))]) >= observed for _ in range(PERMUTATIONS)
    )
    return (reached + 1) / (PERMUTATIONS + 1) <= 1.0 - _LEVEL


def _members(groups: Sequence[_Group]) -> Iterable[tuple[int, bytes]]:
    return ((number, action) for number, group in enumerate(groups) for action in group.actions)


# ------------------------------------------------------------------------------------------------------------- verdict


def _judge(probe: Probe, groups: Sequence[_Group]) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict and its reasons, the decisive ones first."""
    against, doubts = _against(probe, groups), _doubts(probe)
    if against:
        return "no", (*against, *doubts)
    if doubts:
        return "unclear", doubts
    share, room = probe.informative, _room(probe, groups)
    below = "the ceiling is unknown" if room is None else f"the score is {room:.2f} below the ceiling"
    return "yes", (
        f"{share.mean:.1f} of {probe.groups} groups per step have a spread of rewards (at least {share.low:.1f})",
        f"{below}, and {probe.held_out} held-out tasks show a gain of {probe.visible[str(probe.held_out)]:.2f}",
    )


def _against(probe: Probe, groups: Sequence[_Group]) -> tuple[str, ...]:
    reasons = []
    # A step in which no group has a spread changes nothing.
    if probe.informative.high < 1.0:
        most = "solves" if probe.flat_solved > probe.flat.mean / 2.0 else "fails or scores the same on"
        reasons.append(
            f"fewer than one group per step has a spread of rewards (at most {probe.informative.high:.2f} of {probe.groups}): "
            f"the model {most} nearly every task in every episode"
        )
    visible, room = probe.visible[str(probe.held_out)], _room(probe, groups)
    if room is not None and room < visible:
        reasons.append(
            f"the score is only {room:.3f} below the ceiling, and {probe.held_out} held-out tasks show no gain "
            f"below {visible:.3f}"
        )
    if probe.noise > 0.0 and not _depends_on_actions(groups):
        reasons.append(
            "the rewards do not depend on the actions: members of a group with the same actions differ as much as others"
        )
    return tuple(reasons)


def _doubts(probe: Probe) -> tuple[str, ...]:
    doubts = []
    if probe.coverage < 0.5:
        doubts.append(f"only {100 * probe.coverage:.0f} % of the episodes have a score: correct the failures first")
    if probe.informative.low < 1.0 <= probe.informative.high:
        doubts.append(
            f"between {probe.informative.low:.1f} and {probe.informative.high:.1f} groups per step have a spread of rewards: "
            f"probe more tasks than {probe.tasks}"
        )
    return tuple(doubts)


def _room(probe: Probe, groups: Sequence[_Group]) -> float | None:
    """Return how far the model is below the ceiling; ``None`` if the ceiling is unknown.

    The ceiling is the oracle's score, or 1 if there is no oracle and no reward is above 1.
    """
    if probe.ceiling is None and any(reward > 1.0 for group in groups for reward in group.rewards):
        return None
    top = 1.0 if probe.ceiling is None else probe.ceiling.mean
    return max(top - probe.score.mean, 0.0)
