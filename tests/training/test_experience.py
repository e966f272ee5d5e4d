"""From groups to a batch: everybody's outcome is known, and only the healthy are in any statistic."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.training.samples import VOCABULARY, random_group, random_trajectory
from tests.training.tiny import learner_of, spoil, tiny_network

from palestra.foundation.encoding import floats, ints
from palestra.recipes.algorithms import AdvantageConfig, LossConfig, PartialGroups, Shaping
from palestra.rollouts import read_trajectories
from palestra.training.algorithms.advantage import advantages
from palestra.training.algorithms.groups import episode_of
from palestra.training.algorithms.validity import SampleLimits
from palestra.training.experience import any_used, prepare
from palestra.training.learner.batch import Batch
from palestra.training.learner.learner import Measured
from palestra.training.record import RunRecord
from palestra.training.summary import summarize
from palestra.trajectory import Completion, Segment, StopReason, Task, Tokens, Trajectory, TrajectoryGroup, Turn
from palestra.trajectory.segments import SegmentRecorder

pytestmark = pytest.mark.torch

LIMITS = SampleLimits(VOCABULARY, 1000)
PLAIN = LossConfig(importance="none")


def as_sampled_by(learner: Any, groups: list[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """The same groups, with the log-probabilities that ``learner`` would have recorded."""

    def resampled(member: Trajectory) -> Trajectory:
        batch = Batch.of([member])
        logprobs = learner.measure(batch).logprobs
        segments = tuple(
            msgspec.structs.replace(segment, logprobs=floats(logprobs[batch.segments == s]))
            for s, segment in enumerate(member.segments)
        )
        return msgspec.structs.replace(member, segments=segments)

    return [TrajectoryGroup(g.task, tuple(resampled(m) for m in g.members)) for g in groups]


def prepared(groups: Any, learner: Any, method: str = "grpo", *, rule: str = "at_least", **settings: Any) -> Any:
    """The step that these groups make."""
    partial = msgspec.convert({"rule": rule}, PartialGroups)
    return prepare(groups, learner, AdvantageConfig(method, **settings), partial, LIMITS)


@pytest.fixture
def learner() -> Any:
    return learner_of(loss=PLAIN)


@pytest.fixture
def groups(learner: Any) -> list[TrajectoryGroup]:
    rng = np.random.default_rng(0)
    return as_sampled_by(learner, [random_group(rng, 3, group=g) for g in range(3)])


def change(groups: list[TrajectoryGroup], group: int, member: int, **changes: object) -> list[TrajectoryGroup]:
    members = list(groups[group].members)
    members[member] = msgspec.structs.replace(members[member], **changes)
    made = list(groups)
    made[group] = TrajectoryGroup(groups[group].task, tuple(members))
    return made


def sampled_by_another(groups: list[TrajectoryGroup], group: int, member: int = 0) -> list[TrajectoryGroup]:
    """The groups, with log-probabilities of one member that the learner does not compute."""
    segments = groups[group].members[member].segments
    off = tuple(msgspec.structs.replace(one, logprobs=floats(np.asarray(one.logprobs) - 5.0)) for one in segments)
    return change(groups, group, member, segments=off)


def test_healthy_groups_are_all_used_with_their_advantages(learner: Any, groups: list[TrajectoryGroup]) -> None:
    made = prepared(groups, learner)
    assert made.outcomes == [["used"] * 3] * 3
    assert made.invalid == {}
    expected = advantages([[episode_of(m) for m in g.members] for g in groups], AdvantageConfig("grpo"))
    flat = np.concatenate([credit.per_token() for row in expected for credit in row if credit is not None])
    np.testing.assert_allclose(made.batch.advantages, flat)
    np.testing.assert_allclose(made.batch.old, made.batch.sampled, atol=1e-5)


def test_failed_poisoned_and_mismatched_members_leave_by_their_names(learner: Any, groups: list[TrajectoryGroup]) -> None:
    groups = change(groups, 0, 1, stop=StopReason.ERROR)
    spoiled = groups[1].members[0].turns
    groups = change(groups, 1, 0, turns=(msgspec.structs.replace(spoiled[0], reward=float("nan")), *spoiled[1:]))
    groups = sampled_by_another(groups, 2, 2)
    made = prepared(groups, learner)
    assert made.outcomes == [
        ["used", "failed", "used"],
        ["reward_nan", "used", "used"],
        ["used", "used", "sampler_mismatch"],
    ]
    assert made.invalid == {"reward_nan": 1, "sampler_mismatch": 1}
    assert made.counts.used == 6
    assert made.batch.count == 6
    assert np.isfinite(made.batch.advantages).all()


def test_what_is_quarantined_is_counted_and_in_no_curve(learner: Any, groups: list[TrajectoryGroup]) -> None:
    huge = change(groups, 0, 0, turns=(Turn("o", Completion("a"), 1e9, {"success": True}),))
    huge = change(huge, 1, 2, stop=StopReason.ERROR)
    made = prepared(huge, learner, rule="drop")
    numbers = summarize(huge, made)
    rest = [member for group in made.counted(huge) for member in group.members]
    assert huge[0].members[0] not in rest
    assert numbers["reward"] == pytest.approx(np.mean([member.reward for member in rest if member.reward is not None]))
    assert abs(numbers["env/game:x/reward"]) < 10
    assert numbers["stop/terminated"] == numbers["episodes"] == 7
    assert "success" not in numbers
    counts = {name.partition("/")[2]: value for name, value in numbers.items() if name.startswith("members/")}
    fates = {"used": 3, "failed": 1, "invalid": 1, "dropped": 4, "constant": 0, "masked": 0, "absent": 0}
    assert counts == {"members": 9, **fates}


def test_a_group_of_invalid_members_is_replaced_like_one_that_failed(groups: list[TrajectoryGroup]) -> None:
    rule = PartialGroups("at_least", 2)
    assert any_used(groups[:1], rule, LIMITS, Shaping())
    spoiled = groups
    for member in range(2):
        spoiled = change(spoiled, 0, member, turns=(Turn("o", Completion("a"), 1e9),))
    assert not any_used(spoiled[:1], rule, LIMITS, Shaping())


@pytest.mark.parametrize("method", ["grpo", "reinforce_pp", "ppo_turn", "ppo_token"])
def test_segments_whose_turns_alternate_get_the_advantages_of_separate_ones(method: str) -> None:
    learner = learner_of(loss=PLAIN)
    learner.reference = tiny_network(critic=False)
    rng = np.random.default_rng(2)
    alternating, separate = zip(*(two_agents(rng, member) for member in range(3)), strict=True)
    made = []
    for members in (alternating, separate):
        (group,) = as_sampled_by(learner, [TrajectoryGroup(members[0].task, members)])
        batch = prepared([group], learner, method, kl_in_reward=0.1, discount=0.9).batch
        assert len(np.unique(batch.advantages.round(6))) > 1
        made.append([batch.advantages[batch.tokens_of(e)] for e in range(3)])
    for ours, theirs in zip(*made, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def two_agents(rng: np.random.Generator, member: int) -> tuple[Trajectory, Trajectory]:
    """An episode whose turns belong to two conversations in turn, and the same one with a segment per turn."""
    together = SegmentRecorder()
    separate: list[Segment] = []
    contexts: list[list[int]] = [[1], [2]]
    for turn in range(6):
        prompt = contexts[turn % 2] + rng.integers(3, VOCABULARY, size=2).tolist()
        sampled = rng.integers(3, VOCABULARY, size=int(rng.integers(1, 4))).tolist()
        tokens = Tokens(ints(prompt), ints(sampled), floats([-1.0] * len(sampled)))
        together.add(tokens, turn)
        alone = SegmentRecorder()
        alone.add(tokens, turn)
        separate += alone.segments()
        contexts[turn % 2] = prompt + sampled
    turns = tuple(Turn(f"o{k}", Completion(f"a{k}"), float(rng.normal())) for k in range(6))
    episode = Trajectory(Task("game:x"), StopReason.TERMINATED, turns=turns, segments=together.segments(), member=member)
    assert len(episode.segments) == 2
    return episode, msgspec.structs.replace(episode, segments=tuple(separate))


def test_the_kl_to_the_reference_lowers_the_reward() -> None:
    learner = learner_of(loss=PLAIN)
    learner.reference = tiny_network(critic=False)
    with torch.no_grad():
        for parameter in learner.reference.parameters():
            parameter.mul_(1.2)
    groups = as_sampled_by(learner, [random_group(np.random.default_rng(1), 2)])
    with_kl, without = (prepared(groups, learner, "reinforce", kl_in_reward=weight).batch for weight in (0.5, 0.0))
    for e in range(2):
        tokens = with_kl.tokens_of(e)
        paid = 0.5 * (with_kl.old - with_kl.reference)[tokens].sum()
        assert abs(paid) > 0.1
        # The return of the first token is the whole reward of the episode, less the KL of all its tokens.
        assert without.advantages[tokens][0] - with_kl.advantages[tokens][0] == pytest.approx(paid, abs=1e-5)


def test_what_an_update_sees_of_its_own_batch_is_entered_afterwards(learner: Any, groups: list[TrajectoryGroup]) -> None:
    """Without a measurement before it, the step has the same batch and, after the update, the same metrics and verdicts."""
    measured = prepared(groups, learner)
    learner.measures_first = False
    wrong = sampled_by_another(groups, 1)
    for some, reason in ((groups, "used"), (wrong, "sampler_mismatch")):
        waiting = prepared(some, learner)
        assert waiting.batch.old is None
        assert waiting.measured == {}
        learner.accumulate(waiting.batch)
        seen = waiting.after(learner.seen)
        assert seen.outcomes[1][0] == reason
        assert seen.measured.keys() == measured.measured.keys()
    np.testing.assert_array_equal(prepared(groups, learner).batch.advantages, measured.batch.advantages)
    assert seen.invalid == {"sampler_mismatch": 1}
    assert seen.after(None) is seen


def test_a_member_that_the_update_finds_invalid_does_not_shift_the_recorded_advantages(
    learner: Any, groups: list[TrajectoryGroup], tmp_path: Path
) -> None:
    learner.measures_first = False
    groups = sampled_by_another(groups, 0)
    waiting = prepared(groups, learner)
    learner.accumulate(waiting.batch)
    seen = waiting.after(learner.seen)
    assert seen.outcomes[0] == ["sampler_mismatch", "used", "used"]
    RunRecord(tmp_path).sample(1, groups, seen)
    advantages = seen.batch.advantages
    written = list(read_trajectories(tmp_path / "trajectories.jsonl"))
    assert len(written) == len(seen.members)
    for e, one in enumerate(written):
        noted = [turn.info.get("advantage") for turn in one.turns]
        expected = [None] if e == 0 else [pytest.approx(advantages[seen.batch.tokens_of(e)][0])]
        assert noted == expected * len(one.turns)


@pytest.mark.parametrize("kind", ["recomputed_not_finite", "sampler_mismatch"])
def test_an_episode_that_lost_one_of_its_segments_is_used_and_the_segment_is_counted(kind: str, tmp_path: Path) -> None:
    learner = learner_of(network=tiny_network(critic=False), loss=PLAIN)
    learner.measures_first = False
    rng = np.random.default_rng(3)
    members = [random_trajectory(rng, turns=2, segments=2, member=m) for m in range(3)]
    groups = as_sampled_by(learner, [TrajectoryGroup(members[0].task, tuple(members))])
    if kind == "sampler_mismatch":
        first, second = groups[0].members[0].segments
        groups = change(groups, 0, 0, segments=(first, msgspec.structs.replace(second, logprobs=second.logprobs - 9.0)))
    else:
        spoil(learner.network, groups[0].members[0].segments[1].ids)
    waiting = prepared(groups, learner)
    learner.accumulate(waiting.batch)
    seen = waiting.after(learner.seen)
    assert seen.outcomes == [["used"] * 3]
    assert seen.invalid == {}
    assert seen.left_out == {1: kind}
    assert summarize(groups, seen)[f"left_out/{kind}"] == 1
    RunRecord(tmp_path).sample(1, groups, seen)
    partly, *others = read_trajectories(tmp_path / "trajectories.jsonl")
    assert ["advantage" in turn.info for turn in partly.turns] == [True, False]
    assert all("advantage" in turn.info for one in others for turn in one.turns)


def test_an_episode_without_a_reference_does_not_spoil_its_group() -> None:
    learner = learner_of(loss=PLAIN)
    learner.reference = tiny_network(critic=False)
    groups = as_sampled_by(learner, [random_group(np.random.default_rng(1), 3)])
    spoil(learner.reference, groups[0].members[1].segments[0].ids)
    made = prepared(groups, learner, kl_in_reward=0.1)
    assert made.outcomes == [["used", "recomputed_not_finite", "used"]]
    assert np.isfinite(made.batch.advantages).all()


@pytest.mark.parametrize("spoiled", [1, 2])
def test_what_is_not_finite_under_the_reference_alone_is_entered_before_the_updates(spoiled: int) -> None:
    """The batch is measured first, and the KL is in the loss: the updates leave these segments out, and report nothing."""
    learner = learner_of(network=tiny_network(critic=False), loss=msgspec.structs.replace(PLAIN, kl_coefficient=0.1))
    learner.reference = tiny_network(critic=False)
    rng = np.random.default_rng(3)
    members = [random_trajectory(rng, turns=2, segments=2, member=m) for m in range(3)]
    groups = as_sampled_by(learner, [TrajectoryGroup(members[0].task, tuple(members))])
    for segment in groups[0].members[1].segments[:spoiled]:
        spoil(learner.reference, segment.ids)
    made = prepared(groups, learner).after(None)
    whole = spoiled == 2
    assert made.outcomes == [["used", "recomputed_not_finite" if whole else "used", "used"]]
    assert made.invalid == ({"recomputed_not_finite": 1} if whole else {})
    assert made.left_out == ({} if whole else {2: "recomputed_not_finite"})
    assert learner.accumulate(made.batch)["not_finite"] == pytest.approx(0.0 if whole else 1 / 6)


def test_an_episode_that_was_computed_as_nan_is_not_taken_for_an_idle_one(groups: list[TrajectoryGroup]) -> None:
    learner = learner_of(network=tiny_network(critic=False), loss=PLAIN)
    learner.measures_first = False
    waiting = prepared(groups, learner)
    first = waiting.batch.tokens_of(0)
    idle = waiting.batch.advantages.copy()
    idle[first] = 0.0
    learner.accumulate(replace(waiting.batch, advantages=idle))
    seen = learner.seen
    assert not seen.computed[first].any()
    assert seen.computed.sum() == len(seen.computed) - len(np.arange(len(seen.computed))[first])
    assert waiting.after(seen).outcomes[0][0] == "used"
    wrong = Measured(seen.logprobs, seen.entropies, None, None)
    assert np.isnan(wrong.entropies[first]).all()
    assert waiting.after(wrong).outcomes[0][0] == "recomputed_not_finite"
