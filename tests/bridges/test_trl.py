"""TRL's own ``GRPOTrainer`` on a CPU, with a tiny model: the tokens that it trains on are those of the trajectories."""

import importlib.util
import signal
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import transformers

from palestra import Task, Trajectory
from palestra.bridges import trl as bridge
from palestra.errors import UsageError
from palestra.inference.engines.calls import CallEngine
from palestra.inference.rendering import renderer_for
from palestra.recipes.algorithms import AdvantageConfig
from palestra.rollouts import RolloutOptions
from palestra.training.algorithms.advantage import advantages
from palestra.training.algorithms.groups import episode_of
from tests.bridges.abandoned import EPISODES, HELD, Silent, all_closed
from tests.bridges.bridging import (
    GAME,
    MAX_TOKENS,
    NARROW,
    ROUGH,
    Forgetting,
    Row,
    Speller,
    assert_rough,
    compare,
    expected,
    rough_tasks,
)
from tests.bridges.contract import FRAMEWORK

pytestmark = [*FRAMEWORK, pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed")]


SIZE = 4
"""Members of a group."""


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Trajectory]:
    """Every trajectory that the bridge hands to TRL."""
    seen: list[Trajectory] = []
    real = bridge._columns

    def columns(trajectories: Sequence[Trajectory], renderer: Any) -> dict[str, list[Any]]:
        seen.extend(trajectories)
        return real(trajectories, renderer)

    monkeypatch.setattr(bridge, "_columns", columns)
    return seen


@cache
def watched() -> Any:
    """Return a trainer of TRL that is imported by the first test: collecting the tests must not take seconds."""
    import trl

    class Watched(trl.GRPOTrainer):
        """Keeps what TRL made of the answers of ``rollout_func``."""

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            made = super()._generate_and_score_completions(inputs)
            self.kept = [*getattr(self, "kept", []), made]
            ids = torch.cat([made["prompt_ids"], made["completion_ids"]], 1)
            attention = torch.cat([made["prompt_mask"], made["completion_mask"]], 1)
            with torch.no_grad():
                logprobs, *_ = self._get_per_token_logps_and_entropies(
                    self.model, ids, attention, made["completion_ids"].size(1)
                )
            sampled = (made["completion_mask"] * made["tool_mask"]).bool()
            difference = (logprobs - made["sampling_per_token_logps"])[sampled].abs()
            self.furthest = max(getattr(self, "furthest", 0.0), float(difference.max()))
            return made

    return Watched


def spelling(running: Any) -> CallEngine:
    """The scripted model, with a narrow context. The members of a group play differently, and so does every step."""
    return Speller(running.processing_class).engine(NARROW, salted=True)


def trainer(folder: Path, tmp_path: Path, tasks: Sequence[Task], steps: int = 2, beta: float = 0.0, **settings: Any) -> Any:
    import trl
    from datasets import Dataset

    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=settings.pop("batch", 8),
        num_generations=SIZE,
        max_steps=steps,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        bf16=False,
        max_completion_length=512,
        save_strategy="no",
        beta=beta,
        seed=1,
    )
    return watched()(
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=bridge.reward,
        args=arguments,
        train_dataset=Dataset.from_list(bridge.task_rows(tasks)),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder),
        rollout_func=bridge.rollout_func(**settings),
    )


def rows_of(made: Any) -> list[Row]:
    """(prompt, response, mask, log-probs) of each sequence, without TRL's padding."""
    rows = []
    for at in range(len(made["prompt_ids"])):
        before, after = made["prompt_mask"][at].bool(), made["completion_mask"][at].bool()
        columns = ("completion_ids", "tool_mask", "sampling_per_token_logps")
        rows.append(Row(made["prompt_ids"][at][before].tolist(), *(made[name][at][after].tolist() for name in columns)))
    return rows


def test_the_log_probs_of_the_engine_are_those_of_the_trainer(folder: Path, tmp_path: Path, played: list[Trajectory]) -> None:
    running = trainer(folder, tmp_path, [Task(GAME, seed) for seed in range(8)], 4, max_tokens=12)
    running.train()
    for row, one in zip([row for made in running.kept for row in rows_of(made)], played, strict=True):
        compare([row], one)
    assert len(played) == 4 * 8
    assert running.furthest < 1e-4


def some_broken(folder: Path) -> list[Task]:
    """Tasks of which one breaks. Two are in a batch: a batch in which every episode failed is an error."""
    words = transformers.AutoTokenizer.from_pretrained(folder)
    broken = next(one.task for one in expected(rough_tasks(64), words) if one.stop.failed)
    return [broken, *(task for task in rough_tasks(16) if task.seed % 8 != 7)]


def test_two_hundred_different_episodes_with_cuts_overflow_and_failures_arrive_token_by_token(
    folder: Path, tmp_path: Path, played: list[Trajectory]
) -> None:
    steps, options = 25, RolloutOptions(retries=0)  # steps of 8 episodes each
    running = trainer(folder, tmp_path, some_broken(folder), steps, engine=spelling, max_tokens=MAX_TOKENS, options=options)
    running.train()
    rows = [row for made in running.kept for row in rows_of(made)]
    assert len(rows) == len(played) == 8 * steps
    assert len({(*row.prompt, *row.response, *row.logprobs) for row in rows}) == len(rows), "an episode came twice"
    assert_rough(played, overflow=True)
    for row, one in zip(rows, played, strict=True):
        if one.stop.failed:
            assert row.prompt + row.response == one.segments[0].ids.tolist()
            assert not any(row.mask), "a token of a failed episode is in the loss"
        else:
            compare([row], one)
    found = torch.cat([made["advantages"] for made in running.kept]).tolist()
    np.testing.assert_allclose(
        found, [value for at in range(0, len(played), SIZE) for value in scaled(played[at : at + SIZE])], atol=1e-5
    )
    failed = [one.stop.failed for one in played]
    columns = bridge._columns(played[:], renderer_for(running.processing_class, append_only=True))
    assert [value is None for value in columns["palestra_reward"]] == failed
    logged = [entry["reward"] for entry in running.state.log_history if "reward" in entry]
    assert all(value == value for value in logged), "a failed episode made the mean of a batch undefined"


def scaled(group: Sequence[Trajectory]) -> list[float]:
    """Our centered advantages, divided as TRL divides: by the unbiased deviation of the scored members. A failed one has 0."""
    (credits,) = advantages([[episode_of(one) for one in group]], AdvantageConfig(method="dr_grpo"))
    rewards = [one.reward for one in group if one.reward is not None]
    spread = np.std(rewards, ddof=1) if len(rewards) > 1 else 0.0
    return [0.0 if credit is None else float(credit.advantages[0] / (spread + 1e-4)) for credit in credits]


def test_the_loss_does_not_see_the_tokens_of_a_failed_episode(folder: Path, tmp_path: Path, played: list[Trajectory]) -> None:
    """Also not with a KL term: other tokens in their place leave the loss as it is."""
    options = RolloutOptions(retries=0)
    tasks = some_broken(folder)[:2]
    running = trainer(folder, tmp_path, tasks, 1, beta=0.5, engine=spelling, max_tokens=MAX_TOKENS, options=options)
    running.train()
    (made,) = running.kept
    failed = torch.tensor([one.stop.failed for one in played])
    assert 0 < int(failed.sum()) < len(failed)

    def loss(rows: Any) -> float:
        other = dict(made)
        other["completion_ids"] = made["completion_ids"].clone()
        other["completion_ids"][rows] = (other["completion_ids"][rows] + 1) % 50
        with torch.no_grad():
            return float(running._compute_loss(running.model, other))

    assert loss(failed) == loss(failed & False)
    assert loss(~failed) != loss(failed), "this test cannot fail"


def test_an_episode_of_several_segments_is_refused(folder: Path, tmp_path: Path) -> None:
    tasks = [Task(GAME, seed) for seed in range(2)]
    running = trainer(folder, tmp_path, tasks, 1, renderer=Forgetting, engine=spelling, max_tokens=MAX_TOKENS)
    with pytest.raises(UsageError, match="TRL takes one sequence per episode"):
        running.train()


def test_an_environment_that_fails_in_the_tool_loop_of_trl_has_no_reward() -> None:
    env = bridge.environment_factory(ROUGH)()
    env.reset(seed=7)
    env.act(r"\boxed{1}")
    with pytest.raises(RuntimeError, match="broken on purpose"):  # TRL's loop catches it
        env.act(r"\boxed{2}")
    assert env.get_reward() is None
    assert env.act(r"\boxed{3}") == "The episode is over."
    env.reset(seed=8)
    env.act(r"\boxed{1}")
    assert env.get_reward() is not None


class Interrupted(Silent):
    """A model that never answers. Its user presses Ctrl-C when all episodes wait for it."""

    async def __call__(self, *_: Any, **__: Any) -> Any:
        if self.asked + 1 == EPISODES:
            signal.raise_signal(signal.SIGINT)
        await super().__call__()


def test_a_thousand_episodes_that_an_interrupt_of_trl_abandons_leave_nothing(folder: Path, tmp_path: Path) -> None:
    tasks = [Task(HELD, seed) for seed in range(EPISODES // SIZE)]
    silent = Interrupted()
    running = trainer(folder, tmp_path, tasks, 1, batch=EPISODES, engine=lambda _: CallEngine(silent, context_length=NARROW))
    with all_closed(), pytest.raises(KeyboardInterrupt):
        running.train()
    assert silent.asked == EPISODES


def test_a_thousand_environments_that_the_tool_loop_of_trl_drops_are_closed() -> None:
    factory = bridge.environment_factory(HELD)
    with all_closed():
        for seed in range(EPISODES):
            env = factory()
            assert (env.reset(seed=seed), env.act("x"), env.get_reward()) == ("go", "on", 1.0)
        del env
