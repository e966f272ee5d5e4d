"""A network small enough to take its gradient apart, and a batch to train it on.

Learners and batches are typed ``Any``: what is optional in them is there in these tests.
"""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tests.training.samples import VOCABULARY, random_trajectory
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from palestra.recipes.algorithms import LossConfig
from palestra.recipes.learner import LearnerConfig, PackingConfig
from palestra.recipes.model import ModelConfig
from palestra.training.learner.batch import Batch
from palestra.training.learner.learner import Learner
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import ActorCritic


def tiny_model(**changes: Any) -> Any:
    """A Llama of two layers with weights that are the same every time."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "tie_word_embeddings": True,
    }
    return LlamaForCausalLM(LlamaConfig(**{**settings, **changes}))


def tiny_network(**changes: Any) -> ActorCritic:
    """The tiny model with a critic whose head is not zero, so that its gradient reaches the trunk."""
    network = load_model(ModelConfig("", **{"critic": True, **changes}), tiny_model())
    if network.critic is not None:
        with torch.no_grad():
            network.critic.weight.copy_(torch.randn(network.critic.weight.shape, generator=torch.Generator().manual_seed(1)))
    return network


def random_batch(seed: int = 0, episodes: int = 7) -> Any:
    """Episodes in one or two segments."""
    rng = np.random.default_rng(seed)
    return Batch.of([random_trajectory(rng, turns=3, segments=1 + m % 2, member=m) for m in range(episodes)])


def measured_batch(learner: Learner, seed: int = 0, episodes: int = 7) -> Any:
    """The same, with everything an update needs; the old policy differs from the present one, so that ratios are not 1."""
    batch, rng = random_batch(seed, episodes), np.random.default_rng(seed + 1)
    measured = learner.measure(batch)
    total = len(batch.positions)
    targets = rng.normal(size=total)
    targets[::3] = np.nan
    return replace(
        batch,
        old=measured.logprobs + 0.2 * rng.normal(size=total),
        reference=measured.logprobs + 0.2 * rng.normal(size=total),
        advantages=rng.normal(size=total),
        values=measured.values,
        targets=targets,
    )


def learner_of(
    positions: int = 10_000,
    *,
    network: ActorCritic | None = None,
    loss: LossConfig | None = None,
    role: type[Learner] = Learner,
    **changes: Any,
) -> Any:
    """A learner of the tiny network with micro-batches of this size."""
    packing = PackingConfig(positions, changes.pop("layout", "padded"))
    config = LearnerConfig(packing=packing, loss=loss or LossConfig(kl_coefficient=0.1, entropy_coefficient=0.01), **changes)
    return role(network or tiny_network(), config)


def spoil(network: ActorCritic, segment: Any) -> None:
    """Make the network compute NaN for the first state of ``segment``, wherever it begins."""
    bad = torch.tensor(np.asarray(segment))

    def spoiled(_: Any, inputs: tuple[Tensor], states: Tensor) -> Tensor:
        ids = inputs[0]
        for row, start in itertools.product(range(len(ids)), range(ids.shape[1] - len(bad) + 1)):
            if torch.equal(ids[row, start : start + len(bad)], bad.to(ids.dtype)):
                states = states.index_put((torch.tensor([row]), torch.tensor([start])), torch.tensor(math.nan))
        return states

    network.language_model.get_input_embeddings().register_forward_hook(spoiled)


def gradients(learner: Learner) -> Tensor:
    """All gradients in one vector, gathered from all ranks."""
    parts: list[Any] = [parameter.grad for parameter in learner.parameters]
    return torch.cat([(part.full_tensor() if hasattr(part, "full_tensor") else part).flatten() for part in parts])
