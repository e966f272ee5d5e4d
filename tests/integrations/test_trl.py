"""TRL's own ``GRPOTrainer`` on a CPU, with a tiny model: the tokens that it trains on are those of the trajectories."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
import transformers
import trl
from datasets import Dataset

from palestra import Task, Trajectory
from palestra.engines.calls import CallEngine
from palestra.errors import UsageError
from palestra.integrations import trl as bridge
from palestra.models.tiny import build_tiny
from palestra.rendering import renderer_for
from palestra.rollout import RolloutOptions
from tests.integrations.abandoned import EPISODES, HELD, all_closed
from tests.integrations.bridging import GAME, MAX_TOKENS, Forgetting, Row, Speller, assert_rough, compare, expected, rough_tasks

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("model") / "tiny", envs=GAME)


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


class Watched(trl.GRPOTrainer):  # type: ignore[misc]
    """Keeps what TRL made of the answers of ``rollout_func``."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        made = super()._generate_and_score_completions(inputs)
        self.kept = [*getattr(self, "kept", []), made]
        ids = torch.cat([made["prompt_ids"], made["completion_ids"]], 1)
        attention = torch.cat([made["prompt_mask"], made["completion_mask"]], 1)
        with torch.no_grad():
            logprobs, *_ = self._get_per_token_logps_and_entropies(self.model, ids, attention, made["completion_ids"].size(1))
        sampled = (made["completion_mask"] * made["tool_mask"]).bool()
        difference = (logprobs - made["sampling_per_token_logps"])[sampled].abs()
        self.furthest = max(getattr(self, "furthest", 0.0), float(difference.max()))
        return made


def spelling(running: Any) -> CallEngine:
    return Speller(running.processing_class).engine()


def trainer(folder: Path, tmp_path: Path, tasks: Sequence[Task], steps: int = 2, **settings: Any) -> Any:
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=8,
        num_generations=4,
        max_steps=steps,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        bf16=False,
        max_completion_length=512,
        save_strategy="no",
        beta=0.0,
        seed=1,
    )
    return Watched(
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
        rows.append(
            Row(
                made["prompt_ids"][at][before].tolist(),
                made["completion_ids"][at][after].tolist(),
                made["tool_mask"][at][after].tolist(),
                made["sampling_per_token_logps"][at][after].tolist(),
            )
        )
    return rows


def test_the_log_probs_of_the_engine_are_those_of_the_trainer(folder: Path, tmp_path: Path, played: list[Trajectory]) -> None:
    running = trainer(folder, tmp_path, [Task(GAME, seed) for seed in range(8)], 4, max_tokens=12)
    running.train()
    compare([row for made in running.kept for row in rows_of(made)], played)
    assert len(played) == 4 * 8
    assert running.furthest < 1e-4


def test_two_hundred_episodes_with_cuts_and_failures_arrive_token_by_token(
    folder: Path, tmp_path: Path, played: list[Trajectory]
) -> None:
    steps = 25  # of 8 episodes each
    # Two tasks per batch, of which one at most breaks: a batch in which every episode failed is an error.
    words = transformers.AutoTokenizer.from_pretrained(folder)
    broken = next(one.task for one in expected(rough_tasks(64), words) if one.stop.failed)
    tasks = [broken, *(task for task in rough_tasks(16) if task.seed % 8 != 7)]
    running = trainer(folder, tmp_path, tasks, steps, engine=spelling, max_tokens=MAX_TOKENS, options=RolloutOptions(retries=0))
    running.train()
    rows = [row for made in running.kept for row in rows_of(made)]
    assert len(rows) == len(played) == 8 * steps
    compare(rows, played)
    assert_rough(played)
    columns = bridge._columns(played, renderer_for(running.processing_class, append_only=True))
    assert [value is None for value in columns["palestra_reward"]] == [one.stop.failed for one in played]
    logged = [entry["reward"] for entry in running.state.log_history if "reward" in entry]
    assert all(value == value for value in logged), "a failed episode made the mean of a batch undefined"


@pytest.mark.timeout(3600)
def test_the_reward_rises_with_every_seed() -> None:
    """The example, as it is: on tasks of another split, the interval of after − before is above 0."""
    found = importlib.util.spec_from_file_location("train_with_trl", ROOT / "examples" / "train_with_trl.py")
    assert found is not None
    assert found.loader is not None
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)
    gains = [example.main(["--seed", str(seed)]) for seed in range(3)]
    assert all(gain.low > 0 for gain in gains), gains


def test_an_episode_of_several_segments_is_refused(folder: Path, tmp_path: Path) -> None:
    tasks = [Task(GAME, seed) for seed in range(2)]
    running = trainer(folder, tmp_path, tasks, 1, renderer=Forgetting, engine=spelling, max_tokens=MAX_TOKENS)
    with pytest.raises(UsageError, match="TRL takes one sequence per episode"):
        running.train()


def test_a_thousand_environments_that_the_tool_loop_of_trl_drops_are_closed() -> None:
    factory = bridge.environment_factory(HELD)
    with all_closed():
        for seed in range(EPISODES):
            env = factory()
            assert (env.reset(seed=seed), env.act("x"), env.get_reward()) == ("go", "on", 1.0)
        del env
