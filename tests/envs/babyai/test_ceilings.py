"""AgentGym's 20 turns are too few for some tasks, even for the oracle: its mean score is the declared ceiling."""

import pytest

from palestra import make
from palestra.registry import spec
from palestra.trajectory import Task


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
