"""Tiny random models of the families that ``docs/reference/families.md`` names, and which of them may be packed."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

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
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MIXED = ["sliding_attention", "full_attention"]
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LINEAR: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}


class Family(NamedTuple):
    """A family of models: the smallest configuration that has all of its kinds of layers."""

    config: dict[str, Any]
    obstacle: str = ""
    """Why segments cannot be packed; empty if they can."""
    targets: str | tuple[str, ...] = "all-linear"
    """Layers that can have adapters."""


FAMILIES: dict[str, Family] = {
    "llama": Family({"tie_word_embeddings": True}),
    "mistral": Family({"sliding_window": 8}),
    "qwen2": Family({"layer_types": MIXED, "sliding_window": 8, "use_sliding_window": True}),
    "qwen3": Family({"tie_word_embeddings": True}),
    "qwen3_moe": Family(EXPERTS),
    "gemma3_text": Family({"layer_types": MIXED, "sliding_window": 8, "tie_word_embeddings": True}),
    "olmo3": Family({"layer_types": MIXED, "sliding_window": 8}),
    "gpt_oss": Family({"layer_types": MIXED, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_5_text": Family(LINEAR, "linear attention"),
    "qwen3_next": Family({**LINEAR, **EXPERTS, "shared_expert_intermediate_size": 32}, "linear attention"),
    "falcon_h1": Family(
        {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1},
        "state-space layers",
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "in_proj"),
    ),
}


def family_model(kind: str, **changes: Any) -> Any:
    """A model of the family with weights that are the same every time. ``changes`` go into its configuration."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about kernels that are not installed
        config = transformers.AutoConfig.for_model(kind, **{**SMALL, **FAMILIES[kind].config, **changes})
        return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()


def family_folder(kind: str, folder: Path) -> Path:
    """The model as a checkpoint that transformers wrote."""
    family_model(kind).save_pretrained(folder)
    return folder
