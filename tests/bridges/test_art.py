"""ART gathers and tokenizes the episodes with its own functions: its ids, masks and log-probs are those of the trajectories."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("art")

import art
from art.preprocessing.tokenize import tokenize_trajectory_groups

from palestra import Task
from palestra.bridges import art as adapter
from palestra.core import Sampling
from palestra.errors import UsageError
from palestra.inference.engines.calls import CallEngine
from palestra.inference.rendering import renderer_for
from palestra.policies.sampled import SampledPolicy
from tests.bridges.abandoned import EPISODES, Silent
from tests.bridges.bridging import CONTEXT, MAX_TOKENS, NARROW, Forgetting, Row, Speller, expected, rough_tasks, run
from tests.bridges.contract import (
    FRAMEWORK,
    Bridge,
    Received,
    test_a_thousand_abandoned_episodes_leave_nothing,  # noqa: F401
    test_two_hundred_episodes_arrive_token_by_token,  # noqa: F401
)

pytestmark = FRAMEWORK


class Art(Bridge):
    """Keeps an episode that failed as an exception."""

    context = NARROW

    def policy(self, renderer: Any = None, engine: CallEngine | None = None) -> SampledPolicy:
        chosen = renderer or renderer_for(self.tokenizer, append_only=True)
        return SampledPolicy(chosen, engine or Speller(self.tokenizer).engine(NARROW), Sampling(max_tokens=MAX_TOKENS))

    async def gathered(self, tasks: Sequence[Task], policy: SampledPolicy) -> Any:
        """The groups that ART gathers: four episodes each."""
        groups = (
            art.TrajectoryGroup(
                adapter.rollout(task, policy, tokenizer=self.tokenizer, retries=0) for task in tasks[at : at + 4]
            )
            for at in range(0, len(tasks), 4)
        )
        return await art.gather_trajectory_groups(groups, pbar_desc=None, max_exceptions=len(tasks))

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        groups = run(self.gathered(tasks, self.policy(renderer)))
        failed = [error for group in groups for error in group.exceptions]
        assert sum(map(len, groups)) + len(failed) == len(tasks)
        assert all("broken on purpose" in error.message for error in failed)
        results = tokenize_trajectory_groups(
            self.tokenizer,
            groups,
            allow_training_without_logprobs=False,
            scale_rewards=True,
            drop_zero_advantage_trajectories=False,
        )
        rows = {result.trajectory.metadata["seed"]: row_of(result) for result in results}
        found = {one.metadata["seed"]: Received([rows[one.metadata["seed"]]], one.reward) for group in groups for one in group}
        return [found.get(task.seed) for task in tasks]

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        policy = self.policy(engine=CallEngine(silent, context_length=CONTEXT))
        gathering = asyncio.ensure_future(self.gathered(tasks, policy))
        async with asyncio.timeout(300):  # against hangs
            while silent.asked < EPISODES:
                await asyncio.sleep(0.01)
        gathering.cancel()  # reaches the groups. ART leaves their episodes to the event loop, which ends here.


@pytest.fixture
def bridge(tokenizer: Any) -> Art:
    return Art(tokenizer)


def row_of(result: Any) -> Row:
    start = result.assistant_mask.index(1)
    assert all(math.isnan(value) for value, one in zip(result.logprobs, result.assistant_mask, strict=True) if not one)
    logprobs = [0.0 if math.isnan(value) else value for value in result.logprobs[start:]]
    return Row(result.token_ids[:start], result.token_ids[start:], result.assistant_mask[start:], logprobs)


def test_several_segments_and_a_template_that_does_not_append_are_refused(
    bridge: Art, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = next(one for one in expected(rough_tasks(20), tokenizer) if not one.stop.failed and len(one.turns) > 1)
    with pytest.raises(UsageError, match="ART takes one history"):
        run(adapter.rollout(played.task, bridge.policy(Forgetting(tokenizer))))
    adapter.to_art(played, tokenizer=tokenizer)
    monkeypatch.setattr(tokenizer, "chat_template", "{{ messages | length }}" + tokenizer.chat_template)
    with pytest.raises(UsageError, match="to other tokens than the model saw"):
        adapter.to_art(played, tokenizer=tokenizer)
