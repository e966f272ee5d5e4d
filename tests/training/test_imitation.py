"""Teachers, and what recipes make up: variants of environments, models by name."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from palestra.errors import UnknownEnv, UsageError
from palestra.foundation.references import Hook, hook
from palestra.recipes.config import TrainConfig
from palestra.recipes.play import Variant, WarmStart
from palestra.registry import make, unregister
from palestra.rollouts import collect
from palestra.training.imitation import VariedPolicy
from palestra.training.parts import register_variants
from palestra.training.warm_start import warm_start
from palestra.trajectory import Trajectory

pytestmark = pytest.mark.torch

GAME = "game:GuessTheNumber-v0-easy"


def test_a_varied_player_seldom_repeats_itself_but_does() -> None:
    played = collect(GAME, VariedPolicy(), n=400, seed=0, progress=False)
    moves = [[turn.action for turn in one.turns] for one in played]
    repeats = sum(len(made) - len(set(made)) for made in moves)
    chances = sum(len(made) - 1 for made in moves)
    assert 0.005 < repeats / chances < 0.06
    assert not any(turn.info.get("format_error") for one in played for turn in one.turns)


def test_a_variant_is_its_base_with_other_options_and_words() -> None:
    id = "game:GuessTheNumber-v0-tried"
    try:
        for _ in range(2):  # the second time changes nothing
            words = hook("Reword", move="Guess: {}", observations={".*between 1 and 3.*": "1 to 3?"})
            register_variants({id: Variant(hook(GAME, high=3), (words,))})
        env = make(id)
        assert env.reset(seed=0)[0] == "1 to 3?"
        assert env.oracle() == "Guess: 2"
    finally:
        unregister(id)
    with pytest.raises(UnknownEnv):
        register_variants({id: Variant("game:Nowhere-v0")})


ATTEMPTS = [(hook("Attempts", n=2), 4), ("Attempts", 6), (hook("palestra.wrappers:Attempts", n=1), 2)]


@pytest.mark.parametrize(("attempts", "turns"), ATTEMPTS)
def test_each_attempt_of_a_variant_has_the_turns_of_the_limit(attempts: Hook, turns: int) -> None:
    id = "game:GuessTheNumber-v0-again"
    for _ in range(2):
        register_variants({id: Variant(hook(GAME, max_turns=2, low=1, high=1000), (attempts,))})
    with make(id) as env:
        env.reset(seed=0)
        steps = [env.step("\\boxed{1}") for _ in range(turns)]
    assert [step.truncated or step.terminated for step in steps] == [False] * (turns - 1) + [True]


def test_a_warm_start_is_not_slowed_by_the_decay_of_the_run(tiny_model: Path, tmp_path: Path) -> None:
    lessons = {"teacher": "random", "episodes": 4, "epochs": 1, "minibatches": 2, "learning_rate": 1e-2}
    data = {"steps": 1, "model": {"path": str(tiny_model)}, "envs": {GAME: 1.0}, "warm_start": lessons}
    weights = []
    for name, settings in (("steady", {}), ("falling", {"decay": [0, 1]})):
        config = msgspec.convert({**data, "learner": settings}, TrainConfig)
        assert config.warm_start is not None
        made = warm_start(config, config.warm_start, str(tiny_model), tmp_path / name)
        weights.append((made / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def fives(number: int = 5) -> Callable[[str], str]:
    """A teacher of the user's own, as a function of text."""
    return lambda _: rf"\boxed{{{number}}}"


def test_a_teacher_of_ones_own_is_imitated(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taught: list[Trajectory] = []
    monkeypatch.setattr("palestra.training.warm_start.imitate", lambda _, lessons, **options: taught.extend(lessons))
    lessons = {"teacher": {"use": f"{__name__}:fives", "number": 7}, "episodes": 4}
    data = {"steps": 1, "model": {"path": str(tiny_model)}, "envs": {GAME: 1.0}, "warm_start": lessons}
    config = msgspec.convert(data, TrainConfig)
    assert config.warm_start is not None
    warm_start(config, config.warm_start, str(tiny_model), tmp_path / "warm")
    assert {turn.completion.text for one in taught for turn in one.turns} == {r"\boxed{7}"}


def test_an_unknown_teacher_is_refused() -> None:
    with pytest.raises(UsageError, match="one of oracle, random, varied, or your own as module:name"):
        WarmStart(teacher="wizard")
