"""ART gathers and tokenizes the episodes with its own functions: its ids, masks and log-probs are those of the trajectories."""

import asyncio
import math
from typing import Any

import pytest

pytest.importorskip("art")

import art
from art.preprocessing.tokenize import tokenize_trajectory_groups

from palestra import Task, Trajectory
from palestra.core import Sampling
from palestra.engines.calls import CallEngine
from palestra.errors import UsageError
from palestra.integrations import art as bridge
from palestra.policies.sampled import SampledPolicy
from palestra.rendering import renderer_for
from tests.integrations.abandoned import EPISODES, HELD, Silent, all_closed
from tests.integrations.bridging import (
    CONTEXT,
    MAX_TOKENS,
    NARROW,
    Forgetting,
    Row,
    Speller,
    assert_rough,
    compare,
    expected,
    rough_tasks,
    run,
)

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


def policy_of(tokenizer: Any, renderer: Any = None, engine: CallEngine | None = None) -> SampledPolicy:
    chosen = renderer or renderer_for(tokenizer, append_only=True)
    return SampledPolicy(chosen, engine or Speller(tokenizer).engine(NARROW), Sampling(max_tokens=MAX_TOKENS))


async def gathered(tasks: list[Task], policy: SampledPolicy, tokenizer: Any, most: int = 0) -> Any:
    """The groups that ART gathers: four episodes each. ``most`` of the episodes may fail."""
    size = 4
    groups = (
        art.TrajectoryGroup(bridge.rollout(task, policy, tokenizer=tokenizer, retries=0) for task in tasks[at : at + size])
        for at in range(0, len(tasks), size)
    )
    return await art.gather_trajectory_groups(groups, pbar_desc=None, max_exceptions=most)


def test_two_hundred_episodes_arrive_token_by_token_and_failed_ones_are_exceptions(tokenizer: Any) -> None:
    tasks = rough_tasks(200)
    played = expected(tasks, tokenizer, context_length=NARROW)
    assert_rough(played, overflow=True)
    groups = run(gathered(tasks, policy_of(tokenizer), tokenizer, len(tasks)))
    kept = [one for one in played if not one.stop.failed]
    failed = [error for group in groups for error in group.exceptions]
    assert sum(map(len, groups)) == len(kept)
    assert len(failed) == len(played) - len(kept) > 0
    assert all("broken on purpose" in error.message for error in failed)
    rewards = {(one.metadata["env"], one.metadata["seed"]): one.reward for group in groups for one in group}
    assert rewards == {(one.task.env, one.task.seed): one.reward for one in kept}
    results = tokenize_trajectory_groups(
        tokenizer, groups, allow_training_without_logprobs=False, scale_rewards=True, drop_zero_advantage_trajectories=False
    )
    found = {result.trajectory.metadata["seed"]: row_of(result) for result in results}
    compare([found[one.task.seed] for one in kept], kept)


def row_of(result: Any) -> Row:
    start = result.assistant_mask.index(1)
    assert all(math.isnan(value) for value, one in zip(result.logprobs, result.assistant_mask, strict=True) if not one)
    logprobs = [0.0 if math.isnan(value) else value for value in result.logprobs[start:]]
    return Row(result.token_ids[:start], result.token_ids[start:], result.assistant_mask[start:], logprobs)


def test_an_episode_of_several_segments_is_refused(tokenizer: Any) -> None:
    policy = policy_of(tokenizer, Forgetting(tokenizer))
    task = several_turns(tokenizer)
    with pytest.raises(UsageError, match="ART takes one history"):
        run(bridge.rollout(task, policy))


def test_a_template_that_does_not_append_is_noticed(tokenizer: Any) -> None:
    (played,) = expected([several_turns(tokenizer)], tokenizer)
    bridge.to_art(played, tokenizer=tokenizer)
    template = tokenizer.chat_template
    try:
        tokenizer.chat_template = "{{ messages | length }}" + template
        with pytest.raises(UsageError, match="to other tokens than the model saw"):
            bridge.to_art(played, tokenizer=tokenizer)
    finally:
        tokenizer.chat_template = template


def several_turns(tokenizer: Any) -> Task:
    def good(one: Trajectory) -> bool:
        return not one.stop.failed and len(one.turns) > 1

    return next(one.task for one in expected(rough_tasks(20), tokenizer) if good(one))


def test_a_thousand_episodes_that_art_abandons_leave_nothing(tokenizer: Any) -> None:
    run(gathered(rough_tasks(4), policy_of(tokenizer), tokenizer))  # loads what ART loads once
    silent = Silent()
    policy = policy_of(tokenizer, engine=CallEngine(silent, context_length=CONTEXT))

    async def abandon() -> None:
        gathering = asyncio.ensure_future(gathered([Task(HELD, seed) for seed in range(EPISODES)], policy, tokenizer))
        async with asyncio.timeout(300):  # against hangs
            while silent.asked < EPISODES:
                await asyncio.sleep(0.01)
        gathering.cancel()  # reaches the groups. ART leaves their episodes to the event loop, which ends here.

    with all_closed():
        run(abandon())
