"""TRL's own ``GRPOTrainer`` on a CPU, with a tiny model: the tokens that it trains on are those of the trajectories."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
import transformers
import trl
from datasets import Dataset

from palestra import Message, StopReason, Task, Trajectory, make
from palestra.core import Sampling
from palestra.encoding import Ints, ints
from palestra.engines.calls import CallEngine, Sampled
from palestra.errors import UsageError
from palestra.integrations import trl as bridge
from palestra.models.tiny import build_tiny
from palestra.rendering import renderer_for
from palestra.rollout import RolloutOptions

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

GAME = "game:GuessTheNumber-v0-easy"


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


def rows_of(made: Any) -> list[tuple[list[int], list[int], list[int], list[float]]]:
    """(prompt, response, mask, log-probs) of each sequence, without TRL's padding."""
    rows = []
    for at in range(len(made["prompt_ids"])):
        before, after = made["prompt_mask"][at].bool(), made["completion_mask"][at].bool()
        rows.append(
            (
                made["prompt_ids"][at][before].tolist(),
                made["completion_ids"][at][after].tolist(),
                made["tool_mask"][at][after].tolist(),
                made["sampling_per_token_logps"][at][after].tolist(),
            )
        )
    return rows


def compare(rows: list[tuple[list[int], list[int], list[int], list[float]]], played: list[Trajectory]) -> None:
    """Ids, mask and log-probs of TRL's rows are those of the trajectories, token by token."""
    for (prompt, response, mask, logprobs), trajectory in zip(rows, played, strict=True):
        if not trajectory.segments:
            assert mask == [0]
            continue
        (segment,) = trajectory.segments
        start = segment.spans[0].start
        assert prompt + response == segment.ids.tolist()
        assert len(prompt) == start
        assert mask == segment.mask[start:].astype(int).tolist()
        assert [value for value, one in zip(logprobs, mask, strict=True) if one] == segment.logprobs.tolist()


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
    tasks = [Task("tests.integrations.test_trl:Broken" if seed % 8 == 7 else GAME, seed) for seed in range(64)]
    running = trainer(folder, tmp_path, tasks, steps, engine=spelling, max_tokens=16, options=RolloutOptions(retries=0))
    running.train()
    rows = [row for made in running.kept for row in rows_of(made)]
    assert len(rows) == len(played) == 8 * steps
    compare(rows, played)
    assert {one.stop for one in played} >= {StopReason.TERMINATED, StopReason.LENGTH_CUT, StopReason.ERROR}
    assert max(len(one.turns) for one in played) > 2
    columns = bridge._columns(played, renderer_for(running.processing_class, append_only=True))
    assert [value is None for value in columns["palestra_reward"]] == [one.stop.failed for one in played]
    logged = [entry["reward"] for entry in running.state.log_history if "reward" in entry]
    assert all(value == value for value in logged), "a failed episode made the mean of a batch undefined"


def test_an_episode_of_several_segments_is_refused(folder: Path, tmp_path: Path) -> None:
    tasks = [Task(GAME, seed) for seed in range(2)]
    running = trainer(folder, tmp_path, tasks, 1, renderer=Forgetting, engine=spelling, max_tokens=16)
    with pytest.raises(UsageError, match="TRL takes one sequence per episode"):
        running.train()


def test_the_tool_loop_of_trl_closes_what_it_drops() -> None:
    from tests.leftovers import nothing_left

    factory = bridge.environment_factory(GAME)
    with nothing_left():
        for seed in range(100):
            env = factory()
            assert "number" in env.reset(seed=seed)
            env.act("\\boxed{5}")
            assert env.get_reward() <= 1.0
        del env


def spelling(running: Any) -> CallEngine:
    """Writes one random guess per turn; every tenth is cut."""
    tokenizer, chance = running.processing_class, random.Random(running.state.global_step)

    async def call(prompt_ids: list[int], sampling: Sampling) -> Sampled:
        ids = [*tokenizer.encode(f"\\boxed{{{chance.randint(1, 10)}}}", add_special_tokens=False), sampling.stop_ids[0]]
        stopped = chance.random() < 0.9
        ids = ids if stopped else ids[:2]
        return Sampled(ids, [-(at + 1) / 64 for at in range(len(ids))], stopped)

    return CallEngine(call, context_length=2048)


class Forgetting:
    """A renderer whose template rewrites what stands before: every turn starts a new segment."""

    def __init__(self, tokenizer: Any) -> None:
        self._inner = renderer_for(tokenizer)
        self.stop_ids = self._inner.stop_ids
        self.read = self._inner.read

    def first(self, messages: Sequence[Message]) -> Ints:
        return ints([len(messages), *self._inner.first(messages)])

    def extend(self, *_: Any) -> None:
        return None


class Broken(type(make(GAME).unwrapped)):  # type: ignore[misc]
    def step(self, action: str) -> Any:
        raise RuntimeError("broken")
