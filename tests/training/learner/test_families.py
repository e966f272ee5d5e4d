"""Every family that the page names: the learner computes what the model computes, and writes what transformers writes."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from tests.training.learner.families import EXPERTS, FAMILIES, SMALL, family_folder, family_model
from tests.training.learner.test_sharded import multimodal
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch

from palestra.errors import Unsupported
from palestra.inference.servers.publishing import PolicyWeights
from palestra.recipes.model import LoraSettings, ModelConfig
from palestra.training.learner.batch import Batch
from palestra.training.learner.checks import check_packing
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import ActorCritic

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning:peft")]

SOUND = [kind for kind, family in FAMILIES.items() if not family.obstacle]
HYBRID = [kind for kind, family in FAMILIES.items() if family.obstacle]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Some families say that a faster kernel is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def network(kind: str, **changes: Any) -> ActorCritic:
    return load_model(ModelConfig("", **changes), family_model(kind))


def alone(kind: str, batch: Batch) -> np.ndarray[Any, Any]:
    """Log-probabilities by the model's own forward pass, one segment at a time, without anything of ours."""
    model = family_model(kind).eval()
    found = []
    for s, ids in enumerate(batch.ids):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(np.asarray(ids)).long().unsqueeze(0)).logits[0].log_softmax(-1)
        places = batch.positions[batch.segments == s]
        found += [float(logits[place - 1, ids[place]]) for place in places]
    return np.array(found)


@pytest.mark.parametrize("kind", FAMILIES)
def test_both_layouts_compute_what_the_model_computes(kind: str) -> None:
    batch, model = random_batch(), network(kind)
    expected = alone(kind, batch)
    padded = learner_of(network=model).measure(batch).logprobs
    assert np.abs(padded - expected).max() <= 1e-4
    if kind in SOUND:
        packed = learner_of(network=model, layout="packed").measure(batch).logprobs
        assert np.abs(packed - expected).max() <= 1e-4
    else:
        name = type(model.language_model).__name__
        with pytest.raises(Unsupported, match=rf'{name} lets packed.*learner\.packing\.layout = "padded"'):
            learner_of(network=model, layout="packed")


@pytest.mark.parametrize("kind", FAMILIES)
def test_published_weights_are_a_checkpoint_of_the_family(kind: str, tmp_path: Path) -> None:
    checkpoint = family_folder(kind, tmp_path / "checkpoint")
    learner = learner_of(network=load_model(ModelConfig(str(checkpoint))))
    written = tmp_path / "written"
    written.mkdir()
    (written / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    PolicyWeights(learner).write(written, "float32")
    assert shapes(written) == shapes(checkpoint)
    again = transformers.AutoModelForCausalLM.from_pretrained(written)
    for name, tensor in family_model(kind).state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return found


def test_a_text_model_out_of_a_multimodal_checkpoint_is_written_under_its_names(tmp_path: Path) -> None:
    learner = learner_of(network=load_model(ModelConfig(str(multimodal(tmp_path / "checkpoint")))))
    (tmp_path / "written").mkdir()
    PolicyWeights(learner).write(tmp_path / "written", "float32")
    expected = {name: shape for name, shape in shapes(tmp_path / "checkpoint").items() if ".visual." not in name}
    assert shapes(tmp_path / "written") == expected
    assert any(name.startswith("model.language_model.layers.") for name in expected)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ("llama", "qwen3_moe") else pytest.mark.slow) for kind in FAMILIES]
)
def test_adapters_and_recomputation(kind: str) -> None:
    plain, again = learner_of(network=network(kind)), learner_of(network=network(kind, recompute=True))
    batch = measured_batch(plain)
    for learner in (plain, again):
        learner.accumulate(batch)
    expected = gradients(plain)
    assert float((gradients(again) - expected).abs().max()) <= 1e-5 * float(expected.abs().max())
    adapted = learner_of(network=network(kind, lora=LoraSettings(rank=2, targets=FAMILIES[kind].targets)), learning_rate=1e-2)
    before = adapted.measure(batch).logprobs
    assert np.abs(before - plain.measure(batch).logprobs).max() <= 1e-4
    adapted.update(batch)
    after = adapted.measure(batch).logprobs
    assert np.abs(after - before).max() > 1e-4
    merged = family_model(kind)
    missing, unknown = merged.load_state_dict(dict(adapted.weights()), strict=False)
    assert not unknown
    assert set(missing) <= set(merged.all_tied_weights_keys)
    assert np.abs(learner_of(network=load_model(ModelConfig(""), merged)).measure(batch).logprobs - after).max() <= 1e-4


@pytest.mark.parametrize(("kind", "targets"), [("falcon_h1", "all-linear"), ("llama", ("nowhere", "lost"))])
def test_layers_that_cannot_have_adapters_are_refused_with_those_that_can(kind: str, targets: Any) -> None:
    with pytest.raises(
        Unsupported, match=r"cannot have adapters at model\.lora\.targets = .*linear layers are .*, k_proj, lm_head, o_proj"
    ):
        network(kind, lora=LoraSettings(rank=2, targets=targets))


@pytest.mark.parametrize("kind", HYBRID)
def test_a_family_that_cannot_share_prefixes_is_refused_with_what_to_type(kind: str) -> None:
    with pytest.raises(Unsupported, match=r"model\.share_prefix = false"):
        network(kind, share_prefix=True)


def other_model(kind: str, **config: Any) -> Any:
    """A model of a family that is not on the page."""
    made = transformers.AutoConfig.for_model(kind, **{**SMALL, **config})
    return transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").float()


def test_a_window_that_only_the_mask_knows_is_refused_packed() -> None:
    window = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 64, "use_sliding_window": True}
    model = load_model(ModelConfig(""), other_model("qwen2_moe", **EXPERTS, **window))
    with pytest.raises(Unsupported, match="limits attention to 64 positions in its mask alone"):
        check_packing(model)


def test_a_model_without_a_decoder_of_its_own_is_refused() -> None:
    with pytest.raises(Unsupported, match="does not give hidden states"):
        load_model(ModelConfig(""), other_model("llama4_text", num_local_experts=2))
