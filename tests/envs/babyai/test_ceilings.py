"""AgentGym's 20 turns are too few for some tasks, even for the oracle: its mean score is the declared ceiling."""

from typing import Any

import pytest

from palestra import make
from palestra.envs.babyai import oracle
from palestra.registry import spec
from palestra.trajectory import Task

UNSOLVED = Task("babyai:train-agentgym", 0, index=258)
"""A task of GoToImpUnlock in which every bot walks in a circle."""


@pytest.mark.slow
def test_a_state_from_which_no_bot_finishes_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[oracle.Plan | None] = []
    played = oracle._played

    def counted(world: Any, bot: Any, action: int) -> oracle.Plan | None:
        plans.append(played(world, bot, action))
        return plans[-1]

    monkeypatch.setattr(oracle, "_played", counted)
    with make(UNSOLVED.env) as env:
        env.reset(task=UNSOLVED)
        assert env.oracle() == "turn left"
        assert plans == [None, None], "two bots were tried"
        assert env.oracle() == "turn left"
        assert len(plans) == 2
        env.step("turn left")
        env.oracle()
        assert len(plans) == 4, "another state is searched"


@pytest.mark.full
@pytest.mark.parametrize("split", ["panel", "train"])
def test_the_ceiling_is_the_mean_score_of_the_oracle(split: str) -> None:
    id, scores = f"babyai:{split}-agentgym", []
    rows = spec(id).read_rows()
    assert rows is not None
    with make(id) as env:
        for index in range(len(rows)):
            env.reset(task=Task(id, 0, index=index))
            scores.append(0.0)
            ended = False
            while not ended:
                step = env.step(env.oracle())
                scores[-1] += step.reward
                ended = step.terminated or step.truncated
        assert sum(scores) / len(scores) == pytest.approx(env.unwrapped.ceiling, abs=1e-4)
