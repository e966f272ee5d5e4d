"""A Llama of two layers with random weights, for tests of engines."""

from typing import Any

import torch
import transformers

WORDS = 97


def tiny_llama(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.4,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()
