"""An episode may open with several messages: what the policy sees, what counts as a turn, and what is written to files."""

from collections.abc import Sequence
from typing import Any

import pytest

from palestra import Env, Message, Step, StopReason, collect
from palestra.core import Conversation
from palestra.interchange import messages_of
from palestra.policies.history import LastObservation, Summary, Window
from palestra.trajectory import opening_of

OPENING = [{"role": "system", "content": "You count."}, {"role": "user", "content": "0"}, {"role": "assistant", "content": "1"}]


class Counting(Env):
    opening: Any = OPENING

    def reset(self, *, seed: int | None = None, task: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.number = 1
        return "1", {"opening": self.opening}

    def step(self, action: str) -> Step:
        right, self.number = action == str(self.number + 1), self.number + 1
        return Step(str(self.number), float(right), self.number == 5, False, {})


class Broken(Counting):
    opening: Any = ({"role": "tool", "content": "x"},)


class Watching:
    def __init__(self) -> None:
        self.seen: list[list[Message]] = []
        self.turns: list[int] = []

    def act(self, conversation: Conversation) -> str:
        self.seen.append(list(conversation.messages))
        self.turns.append(conversation.turn)
        return str(int(str(conversation.observation)) + 1)


def test_the_policy_sees_the_opening_before_the_first_observation() -> None:
    policy = Watching()
    (played,) = collect(Counting, policy, n=1)
    opening = [Message("system", "You count."), Message("user", "0"), Message("assistant", "1")]
    assert policy.seen[0] == [*opening, Message("user", "1")]
    assert policy.seen[1] == [*opening, Message("user", "1"), Message("assistant", "2"), Message("user", "2")]
    assert policy.turns == [0, 1, 2, 3]
    assert (played.stop, played.reward, len(played.turns)) == (StopReason.TERMINATED, 4.0, 4)
    assert messages_of(played)[:5] == [*opening, Message("user", "1"), Message("assistant", "2")]


def test_an_opening_that_is_none_is_a_failure_of_the_environment() -> None:
    (played,) = collect(Broken, "random", n=1)
    assert played.reward is None
    assert 'info["opening"] must be a list' in played.failures[0].message
    for opening in (None, 3, ["x"], [{"role": "user"}], [{"role": "user", "content": 1}]):
        with pytest.raises(ValueError, match="opening"):
            opening_of({"opening": opening})
    assert opening_of({}) == []


async def never(_: Sequence[Message]) -> str:
    return "summed up"


@pytest.mark.parametrize("history", [Window(1), LastObservation(), Summary(1)], ids=lambda one: type(one).__name__)
async def test_no_history_drops_the_opening(history: Any) -> None:
    conversation = Conversation(task=None)  # type: ignore[arg-type]
    conversation.messages = [*opening_of({"opening": OPENING}), Message("user", "1")]
    conversation.opening = 3
    assert list(await history.view(conversation, never)) == conversation.messages
    for number in range(2, 5):
        conversation.messages += [Message("assistant", str(number)), Message("user", str(number))]
        shown = list(await history.view(conversation, never))
        assert shown[:3] == conversation.messages[:3]
        assert str(shown[3].content).startswith("1")
        assert str(shown[-1].content).endswith(str(number))
        assert len(shown) < 7
