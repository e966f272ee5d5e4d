import asyncio
import time
import warnings
from typing import Any

import pytest

from palestra import Completion, Conversation, Message, Task, as_async, collect
from palestra.errors import Boundary, EventLoopBlocked, PolicyError, UsageError
from palestra.policies import CallablePolicy, RandomPolicy, as_policy, next_completion, policy_name
from palestra.trajectory import text_of
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


async def _later(text: str) -> str:
    await asyncio.sleep(0)
    return text.upper()


@pytest.mark.parametrize("function", [str.upper, _later], ids=["plain", "async"])
async def test_a_function_of_text_is_a_policy(function: object) -> None:
    assert await next_completion(as_policy(function), await _conversation()) == Completion("HELLO")  # type: ignore[arg-type]


class _Plain:
    def act(self, conversation: Conversation) -> Completion:
        return Completion(text_of(conversation.observation).upper())


class _PlainText:
    def act(self, conversation: Conversation) -> str:
        return text_of(conversation.observation).upper()


class _AsyncText:
    async def act(self, conversation: Conversation) -> str:
        return text_of(conversation.observation).upper()


class _Future:
    def act(self, conversation: Conversation) -> asyncio.Future[str]:
        return asyncio.ensure_future(_later(text_of(conversation.observation)))


@pytest.mark.parametrize("kind", [_Plain, _PlainText, _AsyncText, _Future])
async def test_act_may_be_plain_or_async_and_return_text_or_a_completion(kind: type[Any]) -> None:
    assert await next_completion(kind(), await _conversation()) == Completion("HELLO")


@pytest.mark.parametrize("kind", [_Plain, _PlainText, _AsyncText])
def test_every_form_of_act_plays_an_episode(kind: type[Any]) -> None:
    (played,) = collect("game:GuessTheNumber-v0-easy", kind(), n=1)
    assert not played.failures
    assert played.policy == kind.__name__
    assert not played.privileged


async def test_a_policy_that_returns_something_else_is_told_what_was_expected() -> None:
    with pytest.raises(PolicyError, match="the policy len returned a int; expected text or a Completion"):
        await next_completion(CallablePolicy(len), await _conversation())  # type: ignore[arg-type]


async def test_a_policy_that_blocks_the_event_loop_is_named_once() -> None:
    def ponder(text: str) -> str:
        time.sleep(0.11)
        return text

    policy = CallablePolicy(ponder)
    with pytest.warns(EventLoopBlocked, match=r"the policy ponder held the event loop for \d+ ms.* asyncio.to_thread"):
        await next_completion(policy, await _conversation())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await next_completion(policy, await _conversation())


class _Peeking:
    async def act(self, conversation: Conversation) -> str:
        return await conversation.env.oracle()


class _Search(_Peeking):
    privileged = True


def test_only_a_privileged_policy_reaches_the_environment() -> None:
    (refused,) = collect("game:GuessTheNumber-v0-easy", _Peeking(), n=1)
    (failure,) = refused.failures
    assert failure.boundary is Boundary.POLICY
    assert "`privileged = True`" in failure.message
    assert not refused.privileged
    (allowed,) = collect("game:GuessTheNumber-v0-easy", _Search(), n=1)
    assert allowed.success
    assert allowed.privileged


def test_what_a_policy_may_be() -> None:
    assert policy_name(as_policy("random")) == "random"
    assert policy_name(as_policy("oracle")) == "oracle"
    assert policy_name(as_policy(_later)) == "_later"
    plain = _Plain()
    assert as_policy(plain) is plain
    with pytest.raises(UsageError, match='no policy is called "clever"; there are "random", "oracle", "tiny"'):
        as_policy("clever")
    with pytest.raises(UsageError, match="is a function of text, got int"):
        as_policy(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"got the class RandomPolicy: pass RandomPolicy\(\)"):
        as_policy(RandomPolicy)  # type: ignore[arg-type]
