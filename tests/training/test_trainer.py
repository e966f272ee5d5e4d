"""The loop: it plays, learns, accounts for everything, and goes on after a crash as if there had been none."""

import asyncio
import hashlib
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import torch
import transformers

from palestra.core import AsyncEnv, Step
from palestra.durable.ledger import Ledger
from palestra.inference.rendering import renderer_for
from palestra.policies import as_policy
from palestra.recipes.config import TrainConfig
from palestra.registry import register
from palestra.rollouts import collect, read_trajectories
from palestra.training.assembly import assemble
from palestra.training.experience import Experience
from palestra.training.imitation import TaughtPolicy
from palestra.training.stream import PlayedTask
from palestra.training.tasks import KnownOutcomes
from palestra.training.trainer import Trainer
from palestra.trajectory import Content, Task, TrajectoryGroup

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

GAME = "game:GuessTheNumber-v0-easy"


def config(model: Path, *, critic: bool = False, **changes: Any) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(model), "critic": critic},
        "envs": {GAME: 1.0},
        "steps": 4,
        # One request at a time: then the arithmetic of sampling does not depend on who is in the batch with whom.
        "play": {"tasks": 2, "group_size": 2, "concurrency": 1, "max_tokens": 6},
        "engine": {"batch": 1, "rows": 1},
        "advantage": {"method": "rebn", "discount": 0.9},
        "learner": {"learning_rate": 1e-2},
        "minibatches": 2,
        "checkpoint_every": 2,
        **changes,
    }
    return msgspec.convert(data, TrainConfig)


def train(settings: TrainConfig, folder: Path, **options: Any) -> Trainer:
    trainer = assemble(settings, folder, **options)
    asyncio.run(trainer.train())
    return trainer


def fingerprint(trainer: Trainer) -> str:
    """Of the weights, the optimizer, the generator and the ledger, to the bit."""
    hasher = hashlib.sha256()
    for parameter in trainer.learner.parameters:
        hasher.update(parameter.detach().numpy().tobytes())
        for value in trainer.learner.optimizer.state[parameter].values():
            hasher.update(value.numpy().tobytes())
    hasher.update(torch.get_rng_state().numpy().tobytes())
    hasher.update((trainer.folder / "ledger").read_bytes())
    return hasher.hexdigest()


@pytest.mark.gate
@pytest.mark.parametrize("method", ["rebn", "grpo", "ppo_turn", "ppo_token", "gigpo"])
@pytest.mark.slow
def test_a_run_accounts_for_everything_it_did(tiny_model: Path, tmp_path: Path, method: str) -> None:
    shown: list[Any] = []
    settings = config(
        tiny_model,
        steps=2,
        play={"tasks": 3, "group_size": 2, "max_tokens": 6},
        engine={"batch": 8, "rows": 8},
        advantage={"method": method},
        critic=method.startswith("ppo"),
    )
    trainer = train(settings, tmp_path, show=shown.append)
    with Ledger(tmp_path / "ledger") as ledger:
        audit = ledger.audit()
    assert audit.balanced
    assert audit.issued == 12
    assert audit.committed == audit.consumed > 0
    lines = [msgspec.json.decode(line) for line in (tmp_path / "metrics.jsonl").read_bytes().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert lines == shown
    for line in lines:
        assert line["members/members"] == 6
        assert line[f"env/{GAME}/episodes"] + line[f"env/{GAME}/failed"] == 6
        assert line["staleness"] == 0
        assert line["masked"] == 0
        # An untrained model may pay all its episodes the same. Then only a critic has something to learn.
        assert line["updates"] == 2 or not (method.startswith("ppo") or line["updates"])
        if line["updates"]:
            assert line["importance"] == pytest.approx(1.0, abs=1e-3)
            assert line["skipped"] == 0
            assert 0 <= line["sampler/kl"] < 1e-6
            assert 0 <= line["sampler/worst_token"] < 1e-2
            assert line["learning_rate"] == 1e-2
            assert line[f"env/{GAME}/entropy"] > 0
        assert 0 <= line["constant_groups"] <= 1
        assert line["cut"] == line.get("stop/length_cut", 0) / 6
    assert trainer.engine.version == 2  # type: ignore[attr-defined]
    kept = list(read_trajectories(tmp_path / "trajectories.jsonl"))
    assert [one.info["step"] for one in kept] == [1] * 4 + [2] * 4
    assert {(one.info["step"], segment.spans[0].version) for one in kept for segment in one.segments} == {(1, 0), (2, 1)}
    assert all("advantage" in turn.info for one in kept for turn in one.turns)


class Crash(Exception):
    """Stands for a power cut."""


def crash_in(name: str, step: int, *, after: bool) -> Callable[[Trainer], None]:
    """Make ``Trainer.<name>`` crash at its ``step``-th call, before or after it has done its work."""

    def arm(trainer: Trainer) -> None:
        owner = next(one for one in (trainer, trainer.accounts, trainer.checkpoints, trainer.record) if hasattr(one, name))
        original, calls = getattr(owner, name), itertools.count(1)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if next(calls) < step:
                return original(*args, **kwargs)
            result = original(*args, **kwargs) if after else None
            if asyncio.iscoroutine(result):
                result.close()
            raise Crash

        setattr(owner, name, wrapped)

    return arm


@pytest.fixture(scope="module")
def undisturbed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return fingerprint(train(config(tiny_model), tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.gate
@pytest.mark.parametrize(
    ("name", "call", "after"),
    [
        *(("_play", 1, False), ("_prepare", 2, True), ("_learn", 3, True), ("enter_step", 2, True), ("enter_step", 4, False)),
        *(("begin", 1, True), ("commit", 1, False), ("commit", 1, True), ("commit", 2, True), ("sample", 2, False)),
        ("add", 3, True),
    ],
)
@pytest.mark.slow
def test_a_run_that_crashed_ends_where_the_undisturbed_one_ends(
    tiny_model: Path, tmp_path: Path, undisturbed: str, name: str, call: int, after: bool
) -> None:
    trainer = assemble(config(tiny_model), tmp_path)
    crash_in(name, call, after=after)(trainer)
    with pytest.raises(Crash):
        asyncio.run(trainer.train())
    trainer = train(config(tiny_model), tmp_path)
    assert fingerprint(trainer) == undisturbed
    lines = [msgspec.json.decode(line) for line in (tmp_path / "metrics.jsonl").read_bytes().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    kept = [one.info["step"] for one in read_trajectories(tmp_path / "trajectories.jsonl")]
    assert kept == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4


def learn_after(trainer: Trainer, count: int) -> None:
    """Let the learner begin when ``count`` groups have been played, so that these groups have the first version's tokens."""
    play, prepare, played = trainer._play, trainer._prepare, threading.Semaphore(0)

    async def counted(numbers: range, version: int) -> AsyncGenerator[PlayedTask, None]:
        async with aclosing(play(numbers, version)) as tasks:
            async for task in tasks:
                played.release()
                yield task

    def late(step: int, groups: Sequence[TrajectoryGroup]) -> Experience:
        for _ in range(count if step == 0 else 0):
            assert played.acquire(timeout=120)
        return prepare(step, groups)

    trainer._play, trainer._prepare = counted, late  # type: ignore[method-assign]


@pytest.mark.gate
@pytest.mark.parametrize("crash", [None, "_learn", "commit"])
@pytest.mark.slow
def test_groups_are_played_ahead_and_never_staler_than_allowed(tiny_model: Path, tmp_path: Path, crash: str | None) -> None:
    shown: list[Any] = []
    settings = config(
        tiny_model, staleness=2, ahead=2, play={"tasks": 3, "group_size": 2, "max_tokens": 6}, engine={"batch": 4, "rows": 8}
    )
    trainer = assemble(settings, tmp_path, show=shown.append)
    if crash is None:
        learn_after(trainer, 9)  # the groups of three steps start with the first weights
    else:
        crash_in(crash, 2, after=True)(trainer)
        with pytest.raises(Crash):
            asyncio.run(trainer.train())
        trainer = assemble(settings, tmp_path, show=shown.append)
    asyncio.run(trainer.train())
    assert all(line["staleness"] <= 2 for line in shown)
    if crash is None:
        assert [line["staleness"] for line in shown][:3] == [0, 1, 2]
    with Ledger(tmp_path / "ledger") as ledger:
        assert ledger.audit().balanced
        assert ledger.audit().issued == 4 * 6


class Poisoned(AsyncEnv):
    """Every second episode is paid far too much, and says that it was solved."""

    played: ClassVar[int] = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._begin(seed, task)
        return "go", {}

    async def step(self, action: str) -> Step:
        Poisoned.played += 1
        poisoned = Poisoned.played % 2 == 0
        return Step("end", 1e8 if poisoned else 1.0, True, False, {"success": poisoned})


@pytest.mark.gate
@pytest.mark.slow
def test_invalid_episodes_reach_neither_curves_nor_horizons_and_the_accounts_agree(tiny_model: Path, tmp_path: Path) -> None:
    register("test:Poisoned-v0", Poisoned)
    trainer = train(config(tiny_model, envs={"test:Poisoned-v0": 1.0}, steps=1), tmp_path)
    (line,) = (msgspec.json.decode(line) for line in (tmp_path / "metrics.jsonl").read_bytes().splitlines())
    assert (line["reward"], line["success"], line["invalid/reward_huge"]) == (1.0, 0.0, 2)
    ((outcome,),) = trainer.accounts.outcomes.values()
    assert (outcome.episodes, outcome.successes) == (2, 0)
    # One member in two is too few for its group.
    assert (line["members/invalid"], line["members/dropped"], line["members/failed"]) == (2, 2, 0)
    with Ledger(tmp_path / "ledger") as ledger:
        assert ledger.audit().dropped == 4


def test_a_teachers_words_become_the_tokens_the_model_would_have_sampled(tiny_model: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    renderer = renderer_for(tokenizer)
    policy = TaughtPolicy(as_policy("oracle"), renderer, lambda text: list(tokenizer.encode(text)), 2048)
    for one in collect(GAME, policy, n=8, seed=0, progress=False):
        (segment,) = one.segments
        assert len(segment.spans) == len(one.turns)
        for span, turn in zip(segment.spans, one.turns, strict=True):
            assert tokenizer.decode(segment.ids[span.start : span.stop - 1]) == turn.action
            assert segment.ids[span.stop - 1] in renderer.stop_ids


@pytest.mark.gate
@pytest.mark.slow
def test_a_warm_start_teaches_the_form_and_is_made_once(tiny_model: Path, tmp_path: Path) -> None:
    teacher = {"teacher": "random", "episodes": 128, "epochs": 10, "minibatches": 8, "learning_rate": 5e-3}
    settings = config(
        tiny_model,
        steps=1,
        warm_start=teacher,
        play={"tasks": 16, "group_size": 2, "max_tokens": 8},
        engine={"batch": 32, "rows": 32},
    )
    shown: list[Any] = []
    train(settings, tmp_path, show=shown.append)
    # A legal move most of the time: format errors end an episode at once, with a reward of -0.1.
    assert shown[0]["turns"] > 1.5
    made = (tmp_path / "warm-start" / "model.safetensors").stat().st_mtime_ns
    train(msgspec.structs.replace(settings, steps=2), tmp_path)
    assert (tmp_path / "warm-start" / "model.safetensors").stat().st_mtime_ns == made


class Waiting(AsyncEnv):
    """Begins at once in the first step; in the second, when a checkpoint is being written."""

    first_step: ClassVar[set[int]] = set()
    saving = threading.Event()

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        assert task is not None
        while task.seed not in self.first_step and not self.saving.is_set():
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)
        return "go", {}

    async def step(self, action: str) -> Step:
        return Step("end", 1.0, True, False, {})


@pytest.mark.slow
def test_a_slow_checkpoint_costs_no_episode_that_is_being_played(tiny_model: Path, tmp_path: Path) -> None:
    register("test:Waiting-v0", Waiting)
    deadline, writing = 15.0, 16.0
    settings = config(
        tiny_model,
        envs={"test:Waiting-v0": 1.0},
        steps=2,
        staleness=1,
        play={"tasks": 4, "group_size": 2, "max_tokens": 6, "deadline": deadline},
        engine={"batch": 8, "rows": 8},
        checkpoint_every=1,
    )
    shown: list[Any] = []
    trainer = assemble(settings, tmp_path, show=shown.append)
    Waiting.first_step = {trainer.drawing.draw(number, KnownOutcomes({}, {})).seed for number in range(4)}
    save = trainer.learner.save

    def slow(folder: Path) -> Any:
        if not Waiting.saving.is_set():
            Waiting.saving.set()
            time.sleep(writing)
        return save(folder)

    trainer.learner.save = slow  # type: ignore[method-assign]
    asyncio.run(trainer.train())
    assert [line["failed"] for line in shown] == [0, 0]
    assert shown[1]["seconds/checkpoint"] >= writing
