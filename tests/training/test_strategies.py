"""A recipe trains with a strategy: the learner computes the log-probs that the engine recorded."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from palestra.inference.models import build_tiny
from palestra.training import TrainConfig, train
from palestra.training.record import read_metrics

pytestmark = pytest.mark.torch

GUESS = "game:GuessTheNumber-v0-easy"
POLICIES: dict[str, dict[str, Any]] = {
    "react": {"use": "react", "keep": False},
    "plan": {"use": "plan", "every": 2},
    "scratchpad": {"use": "scratchpad"},
    "reflect": {"use": "reflect"},
    "best_of": {"use": "best_of", "n": 2, "judge": "likelihood"},
    "tree": {"use": "tree", "width": 2, "forks": 8},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan", *(pytest.param(one, marks=pytest.mark.full) for one in POLICIES if one != "plan")])
def test_a_step_with_a_strategy(name: str, tmp_path: Path) -> None:
    # A vocabulary of phrases, and room for long replies: most replies of the random model end, so that games are played.
    model = build_tiny(tmp_path / "model", envs=GUESS, words=0, width=32)
    data = {
        "model": {"path": str(model)},
        "variants": {"own:Again-v0": {"env": GUESS, "wrappers": [{"use": "Attempts", "n": 2}]}},
        "envs": {"own:Again-v0" if name == "reflect" else GUESS: 1.0},
        "steps": 1,
        "policy": POLICIES[name],
        "play": {"tasks": 2, "group_size": 2, "max_tokens": 256, "cut": -1.0},
        "advantage": {"method": "reinforce"},  # equal rewards have no advantage with other methods, and nothing is measured
    }
    train(msgspec.convert(data, TrainConfig), tmp_path / "run")
    (step,) = read_metrics(tmp_path / "run")
    assert step["failed"] == 0
    assert step["tokens"] > 0
    assert step["sampler/worst_token"] < 1e-3
    assert name != "reflect" or step["turns"] > 4  # more than an attempt has
