"""Packed segments must not see each other: families whose layers ignore position ids are refused at the start."""

import warnings
from typing import Any

import pytest
import torch
from tests.training.tiny import learner_of

from palestra.errors import Unsupported
from palestra.training.learner.model import ActorCritic, ModelConfig, check_packing, load_model

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
}
LINEAR: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LEAKING: dict[str, dict[str, Any]] = {
    "qwen3_next": {**LINEAR, **EXPERTS, "shared_expert_intermediate_size": 32},
    "qwen3_5_text": LINEAR,
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1},
}
SOUND: dict[str, dict[str, Any]] = {"llama": {}, "qwen3": {}, "gemma3_text": {}, "olmo3": {}}


def network(family: str, *, share: bool = False, **changes: Any) -> ActorCritic:
    if family not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {family}")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about kernels that are not installed
        config = transformers.AutoConfig.for_model(family, **{**SMALL, **changes})
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa" if family in SOUND else "eager"
        )
        return load_model(ModelConfig("", share_prefix=share), model)


@pytest.mark.parametrize("family", LEAKING)
def test_a_family_whose_segments_leak_is_refused_with_what_to_type(family: str) -> None:
    leaking = network(family, **LEAKING[family])
    with pytest.raises(Unsupported, match=r'see each other.*learner\.packing\.layout = "padded"'):
        learner_of(network=leaking, layout="packed")
    learner_of(network=leaking, layout="padded")


@pytest.mark.parametrize("family", SOUND)
def test_a_family_that_keeps_segments_apart_is_accepted(family: str) -> None:
    check_packing(network(family, **SOUND[family]))


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5_text", "falcon_h1"])
def test_a_family_that_cannot_share_prefixes_is_refused_with_what_to_type(family: str) -> None:
    with pytest.raises(Unsupported, match=r"model\.share_prefix = false"):
        network(family, share=True, **LEAKING[family])


def test_a_family_that_can_share_prefixes_is_accepted() -> None:
    assert network("llama", share=True).config.share_prefix
