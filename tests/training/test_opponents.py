"""Opponents in games with several players: who plays whom, what is learned from, and which weights the opponent has."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import transformers
from safetensors.torch import load_file

from palestra import Env, Step
from palestra.core import Policy
from palestra.errors import PolicyError, UsageError
from palestra.policies import as_policy
from palestra.recipes.algorithms import Shaping
from palestra.recipes.config import TrainConfig
from palestra.recipes.play import OpponentSettings
from palestra.rollouts import EpisodeKey
from palestra.training.algorithms.shaping import shaped
from palestra.training.assembly import assemble
from palestra.training.opponent_setup import OpponentSetup
from palestra.training.opponents import OpponentInSomeTasks, PastModel
from palestra.training.preflight import preflight
from palestra.training.trainer import Trainer
from palestra.trajectory import Completion, Finish, StopReason, Task, Trajectory, TrajectoryGroup, Turn

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

PLAYERS = ("first", "second")


class Nim(Env):
    """Two players take one or two stones in turn; the player who takes the last one wins."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.stones, self.turn = int(self.rng.integers(3, 8)), 0
        return f"{self.stones} are left", {"player": "first"}

    def step(self, action: str) -> Step:
        self.stones -= 2 if "2" in action else 1
        actor, other = PLAYERS[self.turn % 2], PLAYERS[1 - self.turn % 2]
        self.turn += 1
        if self.stones > 0:
            return Step(f"{self.stones} are left", 0.0, False, False, {"player": other})
        return Step("the end", 1.0, True, False, {"rewards": {actor: 1.0, other: -1.0}})


class Resigned(Env):
    """Some moves of the first player end the game, so that the second never acts."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "resign", {"player": "first"}

    def step(self, action: str) -> Step:
        if sum(action.encode()) % 2:
            return Step("the end", -1.0, True, False, {"rewards": {"first": -1.0, "second": 1.0}})
        return Step("resign", 0.0, False, False, {"player": "second"})


def one_stone(setup: OpponentSetup) -> Policy:
    def act(text: str) -> str:
        asked.append(text)
        return "1"

    return as_policy(act)


asked: list[str] = []
"""What the fixed opponent was asked."""


def config(model: Path | str = "m", *, env: str = "Nim", steps: int = 4, opponent: Any = None, **changes: Any) -> TrainConfig:
    table = {"players": list(PLAYERS), "share": 1.0, "every": 2, "pool": 2, **(opponent or {})}
    data = {
        "model": {"path": str(model)},
        "envs": {f"{__name__}:{env}": 1.0},
        "steps": steps,
        "play": {"tasks": 4, "group_size": 2, "max_tokens": 4},
        "advantage": {"method": "rae"},
        "checkpoint_every": 1,
        "samples": 4,
        "opponent": table,
        **changes,
    }
    return msgspec.convert(data, TrainConfig)


def arranged(share: float) -> OpponentInSomeTasks:
    own, other = as_policy("random"), as_policy("oracle")
    return OpponentInSomeTasks(OpponentSettings(PLAYERS, share=share), 3, own, other)


def test_the_model_plays_either_player_in_a_share_of_the_tasks() -> None:
    opponents = arranged(0.4)
    learning = Counter(opponents.learning_player(number) for number in range(2000))
    assert learning[None] / 2000 == pytest.approx(0.6, abs=0.04)
    assert learning["first"] / 2000 == pytest.approx(0.2, abs=0.03)
    for number in range(50):
        chosen = [opponents.policy_of(EpisodeKey(Task("game"), group=number, member=m), one) for m in (0, 1) for one in PLAYERS]
        assert chosen[:2] == chosen[2:]
        own = sum(policy is not opponents.opponent for policy in chosen[:2])
        assert own == (2 if opponents.learning_player(number) is None else 1)


def test_a_player_that_the_recipe_does_not_name_fails_the_episode() -> None:
    with pytest.raises(PolicyError, match=r'game has a player "white", and opponent\.players = '):
        arranged(1.0).policy_of(EpisodeKey(Task("game")), "white")
    assert arranged(1.0).policy_of(EpisodeKey(Task("game")), "") is not arranged(1.0).opponent


def test_the_group_of_the_model_is_learned_from_with_the_episodes_in_which_it_did_not_act() -> None:
    opponents = arranged(1.0)
    learning = str(opponents.learning_player(0))
    other = next(player for player in PLAYERS if player != learning)
    for groups, acted in (
        ([_group(other), _group(learning)], [True, True]),
        ([_group(other), _group(learning, 1)], [False, True]),
        ([_group(other, 0), _group("third", 1)], [False, False]),
    ):
        (group,) = opponents.learned_from(groups)
        assert [(member.member, member.player) for member in group.members] == [(0, learning), (1, learning)]
        assert [bool(member.turns) for member in group.members] == acted


def test_a_cut_belongs_to_the_player_whose_reply_was_cut() -> None:
    def ended(finish: Finish) -> Trajectory:
        turns = (Turn("o", Completion("a"), 1.0), Turn("o", Completion("b", finish), 1.0))
        return Trajectory(Task("game"), StopReason.LENGTH_CUT, turns=turns, player="first")

    assert shaped(ended(Finish.STOP), Shaping(cut=-1.0)) == ended(Finish.STOP)
    cut = shaped(ended(Finish.LENGTH), Shaping(cut=-1.0))
    assert cut is not None
    assert cut.reward == 0.0


SERVED = {"kind": "vllm", "urls": ["http://127.0.0.1:9"]}


def _group(player: str, *numbers: int) -> TrajectoryGroup:
    turns = (Turn("o", Completion("a"), 1.0),)
    members = tuple(
        Trajectory(Task("game"), StopReason.TERMINATED, turns=turns, player=player, member=m) for m in numbers or (0, 1)
    )
    return TrajectoryGroup(members[0].task, members)


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        ({"players": ["one"]}, {}, "length >= 2"),
        ({"players": ["a", "a"]}, {}, "names a player twice"),
        ({"kind": "future"}, {}, "opponent.kind"),
        ({"share": 0.0}, {}, "> 0.0"),
        ({"urls": ["http://127.0.0.1:9"]}, {}, "opponent.urls is for servers"),
        ({"kind": "mine:policy"}, {}, 'opponent.every is for opponent.kind = "past"'),
        ({}, {"engine": SERVED}, r"name others in opponent\.urls"),
        ({"urls": ["http://127.0.0.1:9/"]}, {"engine": SERVED}, r"1:9 is in engine\.urls and in opponent\.urls"),
        ({}, {"agent": {"program": "my_agent:run"}}, "cannot play as an agent"),
    ],
)
def test_wrong_settings_are_named(table: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises((UsageError, msgspec.ValidationError), match=message):
        config(opponent=table, **changes)


@pytest.mark.gate
@pytest.mark.slow
async def test_the_opponent_has_the_weights_of_an_earlier_step_and_a_resumed_run_meets_the_same(
    tiny_model: Path, tmp_path: Path
) -> None:
    whole = await _trained(config(tiny_model), tmp_path / "whole")
    versions = [line["opponent/version"] for line in _metrics(tmp_path / "whole")]
    assert versions == [0.0, 0.0, *([versions[2]] * 2)]
    assert versions[2] in (0.0, 2.0)
    _has_the_weights_of(whole, tmp_path / "whole")
    for steps in (1, 3, 4):
        parts = await _trained(config(tiny_model, steps=steps), tmp_path / "parts")
        _has_the_weights_of(parts, tmp_path / "parts")
    own, other = (
        [{k: v for k, v in line.items() if not k.startswith("seconds") and "per_second" not in k} for line in _metrics(folder)]
        for folder in (tmp_path / "whole", tmp_path / "parts")
    )
    assert own == other


def _has_the_weights_of(trainer: Trainer, folder: Path) -> None:
    opponents = trainer.opponents
    assert isinstance(opponents, OpponentInSomeTasks)
    past = opponents.opponent
    assert isinstance(past, PastModel)
    (file,) = (folder / "opponents" / f"version-{past.version:08d}").glob("*.safetensors")
    kept: dict[str, torch.Tensor] = load_file(file)
    model: transformers.PreTrainedModel = past.engine.model  # type: ignore[attr-defined]
    state = model.state_dict()
    assert kept
    assert all(torch.equal(state[name], tensor) for name, tensor in kept.items())


@pytest.mark.slow
async def test_games_that_end_before_the_model_acts_are_accounted_for_and_the_run_resumes(
    tiny_model: Path, tmp_path: Path
) -> None:
    for steps in (2, 3):
        trainer = await _trained(config(tiny_model, env="Resigned", steps=steps), tmp_path)
        with trainer.ledger:
            assert trainer.ledger.audit().balanced
    lines = _metrics(tmp_path)
    assert [line["members/members"] for line in lines] == [8, 8, 8]
    assert 0 < sum(line["opponent/episodes"] for line in lines) < 24  # in the others the model was absent
    assert not any(name.startswith("invalid/") for line in lines for name in line)


@pytest.mark.slow
async def test_the_preflight_plays_with_the_opponent(tiny_model: Path, tmp_path: Path) -> None:
    asked.clear()
    fixed = {"kind": f"{__name__}:one_stone", "share": 0.001, "every": 20, "pool": 5}
    trainer = assemble(config(tiny_model, opponent=fixed, seed=2), tmp_path / "fixed")  # the model is second in both probes
    await preflight(trainer)
    await trainer.close()
    trainer.ledger.close()
    assert asked
    for players, expected in (("white", "second"), 'has a player "first"'), (("third", "first", "second"), "third"):
        trainer = assemble(config(tiny_model, opponent={"players": list(players)}), tmp_path / players[0])
        found = await preflight(trainer)
        await trainer.close()
        trainer.ledger.close()
        assert any(expected in str(finding) for finding in found), found


async def _trained(settings: TrainConfig, folder: Path) -> Trainer:
    trainer = assemble(settings, folder)
    try:
        await trainer.train()
    finally:
        await trainer.close()
    return trainer


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
