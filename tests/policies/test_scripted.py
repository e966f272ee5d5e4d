import asyncio
import time
import warnings

import pytest

from palestra import Completion, Conversation, Message, Task, as_async
from palestra.errors import HeldLoop, PolicyError, UsageError
from palestra.policies import CallablePolicy, HumanPolicy, OraclePolicy, RandomPolicy, as_policy, policy_name
from palestra.registry import make_async
from tests.test_core import Dice


async def _conversation(member: int = 0, text: str = "hello") -> Conversation:
    env = as_async(Dice())
    await env.reset(task=Task("d", 1))
    conversation = Conversation(env.task, env, seed_path=(0, member))
    conversation.messages.append(Message("user", text))
    return conversation


async def test_random_players_of_one_task_differ_and_each_repeats_itself() -> None:
    async def two(member: int) -> list[str]:
        conversation = await _conversation(member)
        return [(await RandomPolicy().act(conversation)).text for _ in range(2)]

    assert await two(0) == await two(0)
    assert await two(0) != await two(1)


async def test_the_oracle_asks_the_environment() -> None:
    env = make_async("game:GuessTheNumber-v0-easy")
    await env.reset(seed=0)
    assert (await OraclePolicy().act(Conversation(env.task, env))).text == await env.oracle()


async def _later(text: str) -> str:
    await asyncio.sleep(0)
    return text.upper()


@pytest.mark.parametrize("function", [str.upper, _later], ids=["plain", "async"])
async def test_a_function_of_text_is_a_policy(function: object) -> None:
    assert await as_policy(function).act(await _conversation()) == Completion("HELLO")  # type: ignore[arg-type]


async def test_a_function_that_does_not_return_text_is_told_so() -> None:
    with pytest.raises(PolicyError, match="returned a int, a policy returns text"):
        await CallablePolicy(len).act(await _conversation())  # type: ignore[arg-type]


async def test_a_function_that_holds_the_loop_is_named_once() -> None:
    def ponder(text: str) -> str:
        time.sleep(0.11)
        return text

    policy = CallablePolicy(ponder)
    with pytest.warns(
        HeldLoop, match=r"the policy ponder\(\) held the event loop for \d+ ms.* asyncio.to_thread\(ponder, text\)"
    ):
        await policy.act(await _conversation())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await policy.act(await _conversation())


async def test_a_person_sees_the_observation_and_types() -> None:
    shown: list[str] = []
    assert await HumanPolicy(ask=lambda: "my move", show=shown.append).act(await _conversation()) == Completion("my move")
    assert shown == ["hello"]


def test_what_a_policy_may_be() -> None:
    assert policy_name(as_policy("random")) == "random"
    assert policy_name(as_policy("oracle")) == "oracle"
    assert policy_name(as_policy(_later)) == "_later"
    human = HumanPolicy()
    assert as_policy(human) is human
    with pytest.raises(UsageError, match='no policy is called "clever"; there are "random" and "oracle"'):
        as_policy("clever")
    with pytest.raises(UsageError, match="is a function of text, got int"):
        as_policy(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"got the class RandomPolicy: pass RandomPolicy\(\)"):
        as_policy(RandomPolicy)  # type: ignore[arg-type]
