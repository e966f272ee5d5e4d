"""What a cut turn pays: never more than a finished reply that holds no move."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.samples import VOCABULARY, random_trajectory
from tests.training.tiny import learner_of, tiny_network

from palestra.core import Conversation
from palestra.errors import UsageError
from palestra.foundation.encoding import floats, ints
from palestra.recipes.algorithms import AdvantageConfig, LossConfig, Overlong, PartialGroups, Shaping
from palestra.recipes.play import PlaySettings
from palestra.rollouts import grouped, rollout
from palestra.training.algorithms.shaping import CUTS, overlong_penalty, shaped
from palestra.training.algorithms.validity import SampleLimits
from palestra.training.experience import prepare
from palestra.trajectory import Completion, Finish, StopReason, Task, Tokens, TrajectoryGroup

pytestmark = pytest.mark.torch

GAME = "game:GuessTheNumber-v0-easy"
LIMITS = SampleLimits(VOCABULARY, 1000, mismatch=1e9)


class MostlyCut:
    """The first reply stops without a move; all others run into the token limit, one of them behind a legal move."""

    name = "mostly cut"

    def __init__(self) -> None:
        self.replies = iter(
            [Completion("I do not know"), *(Completion(text, Finish.LENGTH) for text in ("well", "\\boxed{5} or", "hm"))]
        )

    async def act(self, conversation: Conversation) -> Completion:
        tokens = Tokens(ints([1, 2, 3]), ints([4, 5]), floats([-3.0, -3.0]))
        return msgspec.structs.replace(next(self.replies), tokens=tokens)


async def lesson(play: PlaySettings, method: str, **network: Any) -> Any:
    """One group of four, played and prepared as the trainer does it."""
    episodes = rollout([Task(GAME, 1)], MostlyCut(), group_size=4, cut_as_invalid=play.cut == "as_invalid")
    groups = [group async for group in grouped(episodes, 4)]
    learner = learner_of(network=tiny_network(**network), loss=LossConfig(importance="none"))
    return prepare(groups, learner, AdvantageConfig(method), PartialGroups(), LIMITS, play.shaping)


@pytest.mark.parametrize("method", ["grpo", "rebn", "rloo", "ppo_turn", "ppo_token"])
@pytest.mark.parametrize("cut", ["as_invalid", -0.1, -1.0])
async def test_a_cut_never_pays_more_than_a_finished_reply_without_a_move(method: str, cut: Any) -> None:
    made = await lesson(PlaySettings(cut=cut), method, critic=method.startswith("ppo"))
    stopped, *cuts = (made.batch.advantages[made.batch.tokens_of(e)].mean() for e in range(made.batch.count))
    assert len(cuts) == 3
    assert all(one <= stopped + 1e-9 for one in cuts)


async def test_by_default_a_cut_pays_what_the_environment_pays_for_no_move() -> None:
    policy = MostlyCut()
    played = [one async for one in rollout([Task(GAME, 1)], policy, group_size=4, cut_as_invalid=True)]
    assert sorted(one.stop for one in played) == [StopReason.LENGTH_CUT] * 3 + [StopReason.TERMINATED]
    assert [one.reward for one in played] == [-0.1] * 4
    unseen = [one async for one in rollout([Task(GAME, 1)], MostlyCut(), group_size=4)]
    assert sorted(one.reward or 0.0 for one in unseen) == [-0.1, 0.0, 0.0, 0.0]


async def test_a_masked_member_is_counted_and_in_no_statistic() -> None:
    made = await lesson(PlaySettings(cut="mask"), "grpo")
    # One finished member is too few for a group under the default rule, as if the others had failed.
    assert made.outcomes == [["dropped", "masked", "masked", "masked"]]
    assert made.batch.count == 0


@given(seed=st.integers(0, 2**31), turns=st.integers(1, 5), segments=st.integers(1, 3), stop=st.sampled_from(CUTS))
def test_masking_takes_the_last_turn_and_nothing_else(seed: int, turns: int, segments: int, stop: StopReason) -> None:
    one = random_trajectory(np.random.default_rng(seed), turns=turns, segments=min(segments, turns))
    cut = msgspec.structs.replace(one, stop=stop)
    assert shaped(one, Shaping("mask")) is one
    left: Any = shaped(cut, Shaping("mask"))
    if turns == 1:
        assert left is None
        return
    assert left.turns == cut.turns[:-1]
    assert {span.turn for segment in left.segments for span in segment.spans} == set(range(turns - 1))
    for before, after in zip(cut.segments, left.segments, strict=False):
        np.testing.assert_array_equal(before.ids[: len(after.ids)], after.ids)
        np.testing.assert_array_equal(before.logprobs[: len(after.logprobs)], after.logprobs)


@given(seed=st.integers(0, 2**31), reward=st.floats(-10, 10))
def test_a_number_replaces_the_reward_of_the_cut_turn_alone(seed: int, reward: float) -> None:
    one = random_trajectory(np.random.default_rng(seed), turns=3)
    cut = msgspec.structs.replace(one, stop=StopReason.LENGTH_CUT)
    paid: Any = shaped(cut, Shaping(reward))
    assert [turn.reward for turn in paid.turns] == [*(turn.reward for turn in one.turns[:-1]), reward]
    assert shaped(one, Shaping(reward)) is one


def test_the_soft_penalty_is_linear_in_the_buffer() -> None:
    # limit 100, buffer 20: free to 80, half way −0.5, full at 100
    assert [overlong_penalty(n, 100, 20) for n in (0, 80, 90, 100, 500)] == [0.0, 0.0, -0.5, -1.0, -1.0]
    assert overlong_penalty(95, 100, 100) == -0.95
    assert [Overlong(buffer).tokens(100) for buffer in (0.2, 0.001, 0.99, 1, 30.0)] == [20, 1, 99, 1, 30]
    with pytest.raises(UsageError, match=r"must lie in 1\.\.100 \(max_tokens\), got 0"):
        overlong_penalty(5, 100, 0)
    with pytest.raises(UsageError, match=r"overlong\.buffer must lie in 1\.\.10 \(max_tokens\)"):
        PlaySettings(max_tokens=10, overlong=Overlong(buffer=11))


def test_the_soft_penalty_reaches_the_advantages() -> None:
    rng = np.random.default_rng(0)
    members = []
    for m in range(2):
        one = random_trajectory(rng, turns=1, member=m, longest=8)
        turn = msgspec.structs.replace(one.turns[0], reward=1.0)
        members.append(msgspec.structs.replace(one, turns=(turn,)))
    lengths = [len(one.segments[0].logprobs) for one in members]
    assert lengths[0] != lengths[1]
    learner = learner_of(loss=LossConfig(importance="none"))
    groups = [TrajectoryGroup(Task("game:x", 0), tuple(members))]

    def advantages(shaping: Shaping) -> list[float]:
        made: Any = prepare(groups, learner, AdvantageConfig("dr_grpo"), PartialGroups(), LIMITS, shaping)
        return [float(made.batch.advantages[made.batch.tokens_of(e)][0]) for e in range(2)]

    assert advantages(Shaping()) == [0.0, 0.0]
    penalties = [-2.0 * min(length, 8) / 8 for length in lengths]
    expected = np.array(penalties) - np.mean(penalties)
    np.testing.assert_allclose(advantages(Shaping(overlong=Overlong(8, 2.0), limit=8)), expected)
