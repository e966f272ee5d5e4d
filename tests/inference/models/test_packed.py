import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.cli.demo import GAMES
from palestra.errors import SchemaError
from palestra.foundation.encoding import ints
from palestra.inference.models.packed import PackedModel, load_demo_model, load_packed
from palestra.registry import make
from palestra.rollouts import collect
from palestra.trajectory import Message, text_of


@pytest.fixture(scope="module")
def model() -> PackedModel:
    return load_demo_model()


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_it_plays_better_than_random_moves(game: str, model: PackedModel) -> None:
    measured = json.loads((Path(__file__).parents[3] / "docs" / "reference" / "suite" / "scores.json").read_text())
    random = measured[game]["random"]["high"]
    assert model.history["made"] == "the whole recipe"
    assert model.history["scores"][game][1] > random  # the intervals do not overlap
    played = [one.reward for one in collect(game, "tiny", n=40, seed=7) if one.reward is not None]
    assert len(played) == 40
    assert sum(played) / 40 > random


@pytest.mark.parametrize("game", GAMES)
def test_it_knows_every_word_of_its_games(game: str, model: PackedModel) -> None:
    renderer, unknown = model.renderer, model.renderer.tokenizer.words.index("<|unknown|>")
    with make(game) as env:
        for seed in range(3):
            observation, _ = env.reset(seed=1000 + seed)
            while True:
                ids = renderer.first([Message("user", text_of(observation))])
                assert unknown not in ids.tolist()
                step = env.step(env.oracle())
                if step.terminated or step.truncated:
                    break
                observation = step.observation


def test_what_is_rendered_is_read_back_and_extends_what_was_sampled(model: PackedModel) -> None:
    renderer = model.renderer
    prompt = renderer.first([Message("user", "The board:\n1 2 | . .")])
    sampled = ints([*renderer.tokenizer.encode("\\boxed{1 2}"), *renderer.stop_ids])
    assert renderer.read(prompt, sampled).text == "\\boxed{1 2}"
    following = [Message("user", "At turn 1, you guessed 1 2")]
    closed, cut = renderer.extend(prompt, sampled, following), renderer.extend(prompt, ints(sampled[:-1]), following)
    assert closed is not None
    assert cut is not None
    assert cut.tolist() == [*renderer.stop_ids, *closed.tolist()]
    whole = renderer.first([Message("user", "The board:\n1 2 | . ."), Message("assistant", "\\boxed{1 2}"), *following])
    assert whole.tolist() == [*prompt.tolist(), *sampled.tolist(), *closed.tolist()]
    assert renderer.extend(prompt, sampled, [Message("system", "no")]) is None


def test_special_tokens_in_a_text_stay_text(model: PackedModel) -> None:
    ids = model.renderer.tokenizer.encode("<|end|> <|assistant|>")
    assert not set(ids) & {*model.renderer.stop_ids, model.renderer.tokenizer.words.index("<|assistant|>")}


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04"])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    file.write_bytes(content)
    with pytest.raises(SchemaError, match="is not a packed model"):
        load_packed(file)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    np.savez(file, about=np.array([{"words": []}], dtype=object))
    assert zipfile.is_zipfile(file)
    with pytest.raises(SchemaError, match="is not a packed model"):
        load_packed(file)


@pytest.mark.torch
@pytest.mark.slow
def test_words_are_those_of_the_tokenizer_it_was_trained_with(tmp_path: Path) -> None:
    import transformers

    from palestra.inference.models import build_tiny
    from palestra.inference.models.packed import pack_model

    folder = build_tiny(tmp_path / "tiny", envs="game:TowerofHanoi-v0-easy,game:Sudoku-v0-easy", words=0, unit="word", width=16)
    pack_model(folder, tmp_path / "tiny.npz", {})
    renderer = load_packed(tmp_path / "tiny.npz").renderer
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    @given(st.text(st.characters(codec="ascii"), max_size=60))
    @settings(max_examples=100, deadline=None)
    def same(text: str) -> None:
        assert renderer.tokenizer.encode(text) == tokenizer.encode(text, add_special_tokens=False)

    same()
    chat = [{"role": "user", "content": "The board:\n1 2"}, {"role": "assistant", "content": "\\boxed{1 1 2}"}]
    chat.append({"role": "user", "content": "right"})
    expected = tokenizer.apply_chat_template(chat, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert renderer.first([Message(one["role"], one["content"]) for one in chat]).tolist() == expected  # type: ignore[arg-type]
