"""From a configuration to a trainer: the model, its warm start, the learner, the engine and the policy.

All in this process: the learner's network and the engine's copy of it, which receives the weights after every step.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import transformers

from palestra.core import Sampling
from palestra.engines.hf import HFEngine
from palestra.policies import as_policy
from palestra.policies.sampled import SampledPolicy
from palestra.rendering import renderer_for
from palestra.rollout import collect
from palestra.seeding import derive, derive_seed
from palestra.training.config import TrainConfig, WarmStart
from palestra.training.imitation import TaughtPolicy, imitate
from palestra.training.learner import Learner
from palestra.training.model import ModelConfig, load_model
from palestra.training.trainer import Evaluate, Trainer

__all__ = ["assemble", "warm_start"]


def assemble(
    config: TrainConfig,
    folder: Path,
    *,
    evaluate: Evaluate | None = None,
    show: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Trainer:
    """The trainer of ``config`` in ``folder``, after its warm start if it has one."""
    torch.manual_seed(derive_seed(config.seed, "torch"))
    path = config.model.path
    if config.warm_start is not None:
        path = str(warm_start(config, config.warm_start, folder / "warm-start"))
    settings = msgspec.structs.replace(config.model, path=path)
    reference = None
    if config.needs_reference and settings.lora is None:
        reference = load_model(msgspec.structs.replace(settings, critic=False))
    learner = Learner(load_model(settings), config.learner, reference=reference)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, config.engine.dtype))
    engine = HFEngine(model, decode=tokenizer.decode, batch=config.engine.batch, rows=config.engine.rows)
    sampling = Sampling(max_tokens=config.play.max_tokens, temperature=config.learner.temperature)
    return Trainer(
        config, learner, SampledPolicy(renderer_for(tokenizer), engine, sampling), folder, evaluate=evaluate, show=show
    )


def warm_start(config: TrainConfig, settings: WarmStart, folder: Path) -> Path:
    """The model after imitating the teacher, as a model folder; made once, and complete or absent."""
    if folder.exists():
        return folder
    network = load_model(ModelConfig(config.model.path))
    learner = Learner(network, msgspec.structs.replace(config.learner, learning_rate=settings.learning_rate))
    tokenizer = transformers.AutoTokenizer.from_pretrained(config.model.path)

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    teacher = TaughtPolicy(
        as_policy(settings.teacher),
        renderer_for(tokenizer),
        encode,
        network.language_model.config.max_position_embeddings,
        sampling=Sampling(max_tokens=config.play.max_tokens),
    )
    seed = derive_seed(config.seed, "warm start")
    lessons = collect(list(config.envs), teacher, n=settings.episodes, seed=seed, progress=False)
    rng: np.random.Generator = derive(config.seed, "warm start minibatches")
    imitate(learner, lessons, epochs=settings.epochs, minibatches=settings.minibatches, rng=rng)
    part = folder.with_name(f"{folder.name}.part")
    model = network.language_model
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    part.rename(folder)
    return folder
