"""On-policy distillation: what the teacher adds to advantages, and a model that comes nearer to its teacher."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import transformers
from tests.inference.servers.servers import LENGTH, Server, serving
from tests.training.samples import VOCABULARY
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch, tiny_network

from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.foundation.encoding import ints
from palestra.inference.servers.vllm import VLLMEngine
from palestra.recipes.algorithms import LossConfig
from palestra.recipes.config import TrainConfig
from palestra.recipes.learner import LearnerConfig
from palestra.recipes.play import TEACHER, TeacherSettings
from palestra.training.algorithms.groups import Array
from palestra.training.assembly import assemble
from palestra.training.learner.batch import Batch
from palestra.training.learner.learner import Learner
from palestra.training.teaching import Teacher, TeacherSetup, check_context, taught

pytestmark = pytest.mark.torch

GAME = "game:GuessTheNumber-v0-easy"


def test_the_difference_of_the_log_probabilities_is_added_to_the_advantages() -> None:
    batch = random_batch()
    total, rng = len(batch.positions), np.random.default_rng(0)
    batch = replace(batch, old=rng.normal(size=total), advantages=rng.normal(size=total))
    said = batch.old + np.linspace(-1.0, 6.0, total)
    said[3] = -np.inf
    settings = TeacherSettings(path="t", weight=0.5, task=2.0, largest=4.0)
    found: Any
    found, measured = taught(batch, lambda _: said, settings)
    expected = 2.0 * batch.advantages + 0.5 * np.minimum(np.linspace(-1.0, 6.0, total), 4.0)
    expected[3] = 2.0 * batch.advantages[3]
    np.testing.assert_allclose(found.advantages, expected, atol=1e-12)
    assert measured["teacher/not_finite"] == 1 / total
    known = np.arange(total) != 3
    assert measured["teacher/kl"] == pytest.approx(-np.linspace(-1.0, 6.0, total)[known].mean())


def test_the_learner_measures_its_teacher() -> None:
    torch.manual_seed(1)
    other = tiny_network(critic=False)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    alone, batch = Learner(other, LearnerConfig()), random_batch()
    learner = Learner(tiny_network(), LearnerConfig(), teacher=other)
    np.testing.assert_allclose(learner.measure_teacher(batch), alone.measure(batch).logprobs, atol=1e-6)
    assert not any(parameter.requires_grad for parameter in other.parameters())
    learner.update(measured_batch(learner))
    np.testing.assert_allclose(learner.measure_teacher(batch), alone.measure(batch).logprobs, atol=1e-6)


PROMPT = [1, 2, 3]


def every_continuation() -> Batch:
    """All tokens after one prompt, each as a segment."""
    return Batch(
        ids=tuple(ints([*PROMPT, token]) for token in range(VOCABULARY)),
        owners=np.arange(VOCABULARY),
        count=VOCABULARY,
        segments=np.arange(VOCABULARY),
        positions=np.full(VOCABULARY, len(PROMPT)),
        turns=np.zeros(VOCABULARY, dtype=np.int64),
        sampled=np.zeros(VOCABULARY),
        advantages=np.zeros(VOCABULARY),
    )


def kl(learner: Learner, teacher: Learner) -> torch.Tensor:
    """KL(π ‖ π_teacher) after the prompt, differentiable."""
    own, other = (
        torch.log_softmax(one.network.language_model(torch.tensor([PROMPT])).logits[0, -1], -1) for one in (learner, teacher)
    )
    return (own.exp() * (own - other.detach())).sum()


def test_the_expected_gradient_is_that_of_the_kl_and_following_it_reaches_the_teacher() -> None:
    loss = LossConfig("plain", importance="none")
    config = LearnerConfig(learning_rate=1e-2, loss=loss)
    torch.manual_seed(5)
    other = tiny_network(critic=False)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    teacher, learner = Learner(other, config), Learner(tiny_network(critic=False), config, teacher=other)
    settings, batch = TeacherSettings(path="t"), every_continuation()

    def expected() -> Any:
        """Every token as often as the model samples it: the loss divides by their number."""
        measured: Any = replace(batch, old=learner.measure(batch).logprobs)
        found: Any
        found, _ = taught(measured, learner.measure_teacher, settings)
        return replace(found, advantages=VOCABULARY * np.exp(measured.old) * found.advantages)

    first = kl(learner, teacher)
    first.backward()
    direct = gradients(learner)
    learner.optimizer.zero_grad()
    learner.accumulate(expected())
    torch.testing.assert_close(gradients(learner), direct, atol=1e-5, rtol=1e-4)
    learner.optimizer.zero_grad()
    for _ in range(40):
        learner.update(expected())
    assert float(first.detach()) > 0.05
    assert float(kl(learner, teacher).detach()) < 0.1 * float(first.detach())


def config(model: Path, teacher: dict[str, Any], /, **changes: Any) -> TrainConfig:
    data = {
        "model": {"path": str(model)},
        "envs": {GAME: 1.0},
        "steps": 6,
        "play": {"tasks": 4, "group_size": 4, "max_tokens": 6},
        "learner": {"learning_rate": 1e-2},
        "teacher": teacher,
        **changes,
    }
    return msgspec.convert(data, TrainConfig)


@pytest.fixture
def teacher(tiny_model: Path, tmp_path: Path) -> Path:
    """A model with the same tokens that is surer of other ones."""
    folder = tmp_path / "teacher"
    shutil.copytree(tiny_model, folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        embedding = model.get_output_embeddings().weight
        embedding.add_(0.2 * torch.randn(embedding.shape, generator=generator))
    model.save_pretrained(folder)
    return folder


def halving(setup: TeacherSetup, *, factor: float) -> Teacher:
    """A teacher of one's own: every sampled token is less likely."""

    def measure(batch: Any) -> Array:
        lower: Array = batch.old - factor
        return lower

    return measure


def test_a_teacher_may_be_a_strangers(tiny_model: Path, tmp_path: Path) -> None:
    shown: list[Any] = []
    own = {"kind": {"use": f"{__name__}:halving", "factor": 0.7}}
    trainer = assemble(config(tiny_model, own, steps=1), tmp_path / "run", show=shown.append)
    asyncio.run(trainer.train())
    assert shown[0]["teacher/kl"] == pytest.approx(0.7)


@pytest.mark.parametrize("shape", [(-1, 1), (1, -1)])
def test_a_teacher_that_returns_another_shape_is_refused(shape: tuple[int, int]) -> None:
    batch = random_batch()
    total = len(batch.positions)
    batch = replace(batch, old=np.zeros(total), advantages=np.zeros(total))
    with pytest.raises(UsageError, match=rf"one log-probability per sampled token \({total}\), got an array of shape"):
        taught(batch, lambda _: np.zeros(total).reshape(shape), TeacherSettings(path="t"))


def test_a_teacher_with_other_tokens_is_refused(tiny_model: Path, teacher: Path, tmp_path: Path) -> None:
    path = teacher / "tokenizer.json"
    data = msgspec.json.decode(path.read_bytes())
    vocabulary = data["model"]["vocab"]
    first, second, *_ = vocabulary
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_bytes(msgspec.json.encode(data))
    with pytest.raises(UsageError, match=r"has other tokens than the model: \d+ of \d+ differ"):
        assemble(config(tiny_model, {"path": str(teacher)}), tmp_path / "run")


@pytest.mark.parametrize(
    ("teacher", "changes", "message"),
    [
        ({}, {}, r"needs a model: set teacher\.path"),
        ({"kind": "vllm"}, {}, r"needs servers: set teacher\.urls"),
        ({"kind": "vllm", "urls": ["http://x"]}, {"learner": {"temperature": 0.7}}, "servers score at temperature 1"),
        ({"path": "t", "urls": ["http://x"]}, {}, r"teacher\.urls is for servers"),
        ({"kind": "vllm", "urls": ["http://x"], "path": "t"}, {}, r"teacher\.path is for a local teacher"),
        ({"path": "t", "weight": 0.0}, {}, r"teacher\.weight and teacher\.task are both 0"),
        ({"path": "t"}, {"partial": {"keep_constant": False}}, r"partial\.keep_constant = false is about rewards"),
        ({"path": "t"}, {"advantage": {"kl_in_reward": 0.1}}, r"advantage\.kl_in_reward is about rewards"),
        ({"path": "t"}, {"model": {"path": "m", "critic": True}}, r"model\.critic is about rewards"),
    ],
)
def test_a_teacher_that_cannot_work_is_refused(teacher: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        config(Path("m"), teacher, **changes)


def _asked(url: str, batch: Batch, *others: str) -> Array:
    settings = TeacherSettings(kind="vllm", urls=(*others, url))
    measure: Teacher = TEACHER.load("vllm")(TeacherSetup(settings, learner_of(), 20.0))
    return measure(batch)


async def test_servers_score_what_the_model_sampled() -> None:
    server, batch = Server(), random_batch()
    server.faults.extend(["500", "429"])
    async with serving(server.app()) as url:
        found = await asyncio.to_thread(_asked, url, batch)
    sampled = [batch.ids[segment][place] for segment, place in zip(batch.segments, batch.positions, strict=True)]
    np.testing.assert_allclose(found, -0.01 * np.array(sampled))
    assert all(body["max_tokens"] == 1 and body["temperature"] == 1.0 for body in server.bodies)


async def test_servers_whose_context_has_no_room_for_a_full_segment_are_refused() -> None:
    async with serving(Server().app()) as url:
        settings = TeacherSettings(kind="vllm", urls=(url,))
        await check_context(settings, LENGTH - 1, 20.0)
        with pytest.raises(UsageError, match=rf"must be longer than the {LENGTH} tokens of the engine: .*{LENGTH + 1} or more"):
            await check_context(settings, LENGTH, 20.0)


def test_a_teacher_is_found_as_a_model_is_and_before_the_warm_start(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))
    warm = {"warm_start": {"episodes": 4}}
    with pytest.raises(UsageError, match=r'teacher\.path = ".*" has other tokens than the model'):
        assemble(config(tiny_model, {"path": "tiny:game:GuessTheNumber-v0-easy"}, **warm), tmp_path / "run")
    assert not (tmp_path / "run").exists()


async def test_a_server_without_log_probs_of_the_prompt_is_named() -> None:
    server = Server()
    server.tamper = "text"
    async with serving(server.app()) as url:
        engine = VLLMEngine([url])
        await engine.connect()
        with pytest.raises(PolicyError, match=r"did not answer with the log-probs of the prompt"):
            await engine.score(random_batch().ids[0])
        await engine.close()
    with pytest.raises(InfrastructureError, match="does not answer"):
        await asyncio.to_thread(_asked, "http://127.0.0.1:9", random_batch())
